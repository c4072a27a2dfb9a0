package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/hooklatch/hooklatch/verify"
)

// parseRecipe reads a recipe, YAML or JSON, and makes a scheme of it. file names
// it in the error, which has exit code 3 and points at each fault.
func parseRecipe(file string, text []byte) (verify.Scheme, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // as some editors begin a file
	d := newDecoder()
	isJSON := json.Valid(text)
	var raw json.RawMessage
	if n := d.root(text, "recipe"); n != nil {
		raw = d.readRecipe(n, "")
	} else if isJSON {
		d.problems = nil // it only lacks places
	}
	if isJSON {
		raw = text // not every escape of JSON is one of YAML
	}
	if len(d.problems) == 0 {
		recipe, err := verify.ParseRecipe(raw)
		if err == nil {
			var scheme verify.Scheme
			if scheme, err = recipe.Compile(); err == nil {
				return scheme, nil
			}
		}
		d.problems = append(d.problems, d.at.recipeProblem("", err))
	}
	return verify.Scheme{}, fail(exitConfig, &configProblems{file, sorted(d.problems)}, "hooklatch schemes stripe   prints a recipe to start from")
}

// readRecipe is the one reader of recipes in YAML. It returns the recipe as JSON
// that verify.ParseRecipe takes, or nil and a problem at the place of each fault.
func (d *decoder) readRecipe(n ast.Node, path string) json.RawMessage {
	before := len(d.problems)
	if d.recipe(n, reflect.TypeFor[recipeConfig](), path); len(d.problems) > before {
		return nil
	}
	raw := d.json(n, path)
	if len(d.problems) > before {
		return nil
	}
	if _, err := verify.ParseRecipe(raw); err != nil {
		d.problems = append(d.problems, d.at.recipeProblem(path, err))
		return nil
	}
	return raw
}

// recipe finds names that no recipe has, and notes the places of the others.
// verify.ParseRecipe refuses them too, but knows no places, and stops at the first.
func (d *decoder) recipe(n ast.Node, t reflect.Type, path string) {
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	if d.at[path] == nil {
		d.at[path] = beginOf(n)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if list, ok := n.(*ast.SequenceNode); ok && t.Kind() == reflect.Slice {
		for i, value := range list.Values {
			d.recipe(value, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	}
	if _, ok := n.(ast.MapNode); !ok || t.Kind() != reflect.Struct {
		return
	}
	entries, _ := d.entries(n, path)
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = f.Type
		}
	}
	for _, e := range entries {
		at := join(path, e.key)
		switch field := fields[e.key]; {
		case field != nil:
			d.mark(e, at)
			d.recipe(e.value, field, at)
		default:
			d.unknown(e, at, slices.Sorted(maps.Keys(fields)))
		}
	}
}

// json writes a node as JSON, anchors and merged mappings followed.
func (d *decoder) json(n ast.Node, path string) json.RawMessage {
	if d.depth++; d.depth > maxDepth {
		d.problem(n, path, "nested too deeply")
		d.depth--
		return nil
	}
	defer func() { d.depth-- }()
	n, ok := d.resolve(n, path)
	if !ok {
		return nil
	}
	var value any
	switch node := n.(type) {
	case ast.MapNode:
		entries, _ := d.entries(n, path)
		object := map[string]json.RawMessage{}
		for _, e := range entries {
			object[e.key] = d.json(e.value, join(path, e.key))
		}
		value = object
	case *ast.SequenceNode:
		list := []json.RawMessage{}
		for i, v := range node.Values {
			list = append(list, d.json(v, fmt.Sprintf("%s[%d]", path, i)))
		}
		value = list
	case *ast.NullNode:
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
		value = node.(ast.ScalarNode).GetValue()
	default:
		value, _ = d.text(n, path)
	}
	text, err := json.Marshal(value)
	if err != nil {
		d.problem(n, path, "%v", err)
	}
	return text
}

var listIndex = regexp.MustCompile(`\[[0-9]+\]`)

// recipeProblem points at the field of the recipe at path that err is about.
func (at positions) recipeProblem(path string, err error) problem {
	var wrong *verify.RecipeError
	if !errors.As(err, &wrong) {
		return problem{Path: path, Message: withoutPackage(err), token: at.near(path)}
	}
	p := problem{Path: path, Message: wrong.Err.Error()}
	if wrong.Field != "" {
		p.Path = join(path, wrong.Field)
		p.Message = wrong.Field + ": " + p.Message
	}
	p.token = at.near(p.Path)
	field := listIndex.ReplaceAllString(wrong.Field, ".[]")
	switch {
	case strings.HasSuffix(p.Message, "a mapping where a text belongs"):
		p.Message += ": put a text that begins with { in quotes"
	case strings.HasSuffix(p.Message, "where a mapping belongs"):
		if names := recipeFields(field); len(names) > 0 {
			p.Message += ", of " + listed(names)
		}
	}
	known := recipeChoices(field)
	if t := at[p.Path]; t != nil && !slices.Contains(known, t.Value) {
		if near := nearest(t.Value, known); near != "" {
			p.Message += ", did you mean " + near + "?"
		} else if len(known) > 0 {
			p.Message += ": " + quoted(known) + " are known"
		}
	}
	return p
}

// quoted lists values of which some are a single mark.
func quoted(values []string) string {
	if len(values[0]) > 1 {
		return listed(values)
	}
	var all []string
	for _, v := range values {
		all = append(all, strconv.Quote(v))
	}
	return listed(all)
}

// recipeFields are the names below a field, also where it is a list.
func recipeFields(field string) (names []string) {
	for _, f := range recipeTexts() {
		name, below := strings.CutPrefix(f.path, field+".")
		if name = strings.TrimPrefix(name, "[]."); below && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	return names
}

// recipeChoices are the values of a field of which every one is known.
func recipeChoices(field string) []string {
	if field == "preset" {
		return verify.Presets()
	}
	for _, f := range recipeTexts() {
		if f.path == field {
			return f.choices
		}
	}
	return nil
}
