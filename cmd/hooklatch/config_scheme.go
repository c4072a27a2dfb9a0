package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/hooklatch/hooklatch/verify"
)

// schemeConfig is the scheme of a source: the name of a preset or a recipe, or two of
// them while the sender goes over from one to the other.
type schemeConfig struct {
	name   string
	recipe json.RawMessage // as JSON
	second *schemeConfig
}

func (s *schemeConfig) decodeNode(d *decoder, n ast.Node, path string) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		s.decodeOne(d, n, path)
		return
	}
	if len(list.Values) != 2 {
		d.problem(n, path, "a list of schemes holds two: the one that the sender leaves and the one that it goes over to")
		return
	}
	s.decodeOne(d, list.Values[0], path+"[0]")
	s.second = &schemeConfig{}
	s.second.decodeOne(d, list.Values[1], path+"[1]")
}

func (s *schemeConfig) decodeOne(d *decoder, n ast.Node, path string) {
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	d.at[path] = beginOf(n)
	if _, ok := n.(ast.MapNode); ok {
		s.recipe = d.readRecipe(n, path)
		return
	}
	s.name, _ = d.text(n, path)
}

// MarshalJSON implements json.Marshaler.
func (s schemeConfig) MarshalJSON() ([]byte, error) {
	if s.second != nil {
		second := *s.second
		s.second = nil
		return json.Marshal([]schemeConfig{s, second})
	}
	if s.recipe != nil {
		return s.recipe, nil
	}
	return json.Marshal(s.name)
}

// each lists the one scheme or the two, with their places below at.
func (s *schemeConfig) each(at string) ([]*schemeConfig, []string) {
	if s.second == nil {
		return []*schemeConfig{s}, []string{at}
	}
	return []*schemeConfig{s, s.second}, []string{at + "[0]", at + "[1]"}
}

// read finds the recipe.
func (s *schemeConfig) read() (verify.Recipe, error) {
	if s.recipe != nil {
		return verify.ParseRecipe(s.recipe)
	}
	if s.name == "" {
		return verify.Recipe{}, errors.New("scheme is missing")
	}
	scheme, ok := verify.Preset(s.name)
	if !ok {
		return verify.Recipe{}, unknownPreset(s.name)
	}
	return scheme.Recipe(), nil
}

// schemeError is a scheme that cannot be, and its place below that of the source.
type schemeError struct {
	at     string
	recipe bool // it was written out, so that its fields have places
	err    error
}

func (e *schemeError) Error() string { return withoutPackage(e.err) }
func (e *schemeError) Unwrap() error { return e.err }

// compile makes the schemes of a source, one or two, with its header names.
func (s *sourceConfig) compile() ([]verify.Scheme, error) {
	configs, places := s.Scheme.each(".scheme")
	var schemes []verify.Scheme
	used := map[string]bool{}
	for i, c := range configs {
		recipe, err := c.read()
		if err == nil {
			var scheme verify.Scheme
			if scheme, err = recipe.Compile(); err == nil {
				schemes = append(schemes, scheme)
				continue
			}
		}
		return nil, &schemeError{places[i], c.recipe != nil, err}
	}
	for i, scheme := range schemes {
		names := headersOf(scheme, s.Rename, used)
		if len(names) == 0 {
			continue
		}
		recipe, err := scheme.Recipe().Rename(names)
		if err == nil {
			schemes[i], err = recipe.Compile()
		}
		if err != nil {
			return nil, &schemeError{".rename", false, err}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Rename)) {
		if !used[name] {
			return nil, &schemeError{".rename", false, fmt.Errorf("rename: no header %s is named by %s", name, titles(schemes))}
		}
	}
	return schemes, nil
}

// headersOf are the new names of the headers that a scheme names.
func headersOf(scheme verify.Scheme, rename map[string]string, used map[string]bool) map[string]string {
	names := map[string]string{}
	for from, to := range rename {
		if slices.ContainsFunc(scheme.Headers(), func(h string) bool { return strings.EqualFold(h, from) }) {
			names[from], used[from] = to, true
		}
	}
	return names
}

// titles names one scheme or two in a sentence.
func titles(schemes []verify.Scheme) string {
	if len(schemes) == 1 {
		return title(schemes[0])
	}
	return "schemes " + schemes[0].Name() + " and " + schemes[1].Name()
}

// keysOf are the keys of a source that serve a scheme of it, with their places in the
// list. Of one scheme all do.
func (s *sourceConfig) keysOf(scheme verify.Scheme) (keys []keyConfig, places []int) {
	for i, k := range s.Keys {
		if s.Scheme.second == nil || k.Scheme == scheme.Name() {
			keys, places = append(keys, k), append(places, i)
		}
	}
	return keys, places
}

// scheme points at what a scheme cannot be made of.
func (ch *checker) scheme(at string, err error) {
	var wrong *schemeError
	if !errors.As(err, &wrong) {
		ch.problem(at+".scheme", "%v", err)
		return
	}
	if wrong.recipe {
		ch.problems = append(ch.problems, ch.c.at.recipeProblem(at+wrong.at, wrong.err))
		return
	}
	ch.problem(at+wrong.at, "%v", wrong)
}

// pair checks two schemes of one source against each other and their keys.
func (ch *checker) pair(at string, s *sourceConfig, schemes []verify.Scheme) {
	one, two := schemes[0], schemes[1]
	switch {
	case one.Name() == "" || two.Name() == "":
		ch.problem(at+".scheme", "of two schemes each needs a name, which its keys say")
		return
	case one.Name() == two.Name():
		ch.problem(at+".scheme[1]", "scheme %s stands twice", two.Name())
		return
	case one.HasDeliveryID() != two.HasDeliveryID():
		with, without := one, two
		if two.HasDeliveryID() {
			with, without = two, one
		}
		ch.problem(at+".scheme", "%s carries a delivery id, %s does not: one delivery would come in twice", title(with), title(without))
	}
	names := []string{one.Name(), two.Name()}
	for i, k := range s.Keys {
		entry := fmt.Sprintf("%s.keys[%d]", at, i)
		switch {
		case k.Scheme == "":
			ch.problem(entry, "key %s does not say its scheme: %s or %s", k.ID, names[0], names[1])
			return
		case !slices.Contains(names, k.Scheme):
			ch.oneOf(entry+".scheme", k.Scheme, names...)
			return
		}
	}
	for _, scheme := range schemes {
		if keys, _ := s.keysOf(scheme); len(keys) == 0 && len(s.Keys) > 0 {
			ch.problem(at+".keys", "no key is for %s", title(scheme))
		}
	}
	for _, w := range []string{weakest(one, two), weakest(two, one)} {
		if w != "" {
			ch.warn(at+".scheme", "%s; a source is as strong as its weaker scheme", w)
		}
	}
}

// weigh warns of a recipe of one's own that can be made safer, and keeps for whoever
// reads the check or the log what each scheme leaves open. Presets are as their
// senders sign.
func (ch *checker) weigh(at string, s *sourceConfig, schemes []verify.Scheme) {
	configs, places := s.Scheme.each(at + ".scheme")
	for i, scheme := range schemes {
		if configs[i].recipe != nil {
			preset, _ := verify.Preset(scheme.Name()) // what it has itself is no news
			for _, w := range scheme.Warnings() {
				if !slices.Contains(preset.Warnings(), w) {
					ch.warn(places[i], "%s", w)
				}
			}
			if s.Tolerance == 0 && scheme.Tolerance() > max(wideTolerance, preset.Tolerance()) {
				ch.warn(places[i]+".timestamp", "a window above %s lets a captured request be sent again for long", duration(wideTolerance))
			}
		}
		for _, w := range scheme.Weaknesses() {
			text := w.Text
			if w.Code == "id_unsigned" && s.guarded(scheme) {
				text += "; body_guard takes it for a duplicate"
			}
			ch.notes = append(ch.notes, problem{Path: at + ".scheme", Message: title(scheme) + ": " + text, token: ch.c.at.near(places[i])})
		}
	}
}

// weakest says what a leaves open that b does not.
func weakest(a, b verify.Scheme) string {
	for _, w := range a.Weaknesses() {
		if !slices.ContainsFunc(b.Weaknesses(), func(o verify.Weakness) bool { return o.Code == w.Code }) {
			return title(a) + ": " + w.Text
		}
	}
	return ""
}
