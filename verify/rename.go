package verify

import (
	"errors"
	"fmt"
	"strings"
)

// Rename returns the recipe with header names replaced wherever they stand. It is
// an error if the recipe names no such header, or if two headers become one.
func (r Recipe) Rename(names map[string]string) (Recipe, error) {
	before, err := r.Compile()
	if err != nil {
		return Recipe{}, err
	}
	n := renamer{names: names, used: map[string]bool{}}
	c := n.recipe(r.clone())
	for from, to := range names {
		if !n.used[from] {
			return Recipe{}, fmt.Errorf("verify: rename: the recipe names no header %s", from)
		}
		if !validHeaderName(to) {
			return Recipe{}, fmt.Errorf("verify: rename: %q is no header name", to)
		}
	}
	after, err := c.Compile()
	if err != nil {
		return Recipe{}, fmt.Errorf("verify: rename: %w", err)
	}
	if len(after.Headers()) != len(before.Headers()) {
		return Recipe{}, errors.New("verify: rename: two headers would have one name")
	}
	return c, nil
}

type renamer struct {
	names map[string]string
	used  map[string]bool
}

func (n renamer) recipe(c Recipe) Recipe {
	if c.Signature.In == "" || c.Signature.In == "header" {
		if c.Algo == "basic" && c.Signature.Name == "" && len(c.Signature.Names) == 0 {
			c.Signature.Name = "Authorization"
		}
		c.Signature.Name = n.name(c.Signature.Name)
		for i := range c.Signature.Names {
			c.Signature.Names[i] = n.name(c.Signature.Names[i])
		}
	}
	c.Template = n.template(c.Template)
	if c.Timestamp != nil {
		c.Timestamp.From = n.source(c.Timestamp.From)
	}
	if c.ID != nil {
		n.sources(c.ID.From)
	}
	if c.KeyID != nil {
		n.sources(c.KeyID.From)
	}
	if c.EventType != nil {
		n.sources(c.EventType.From)
	}
	c.Header = n.name(c.Header)
	for i := range c.Require {
		c.Require[i].Header = n.name(c.Require[i].Header)
	}
	for i := range c.Handshake {
		h := &c.Handshake[i]
		h.From, h.Verify = n.source(h.From), n.source(h.Verify)
		for j := range h.When {
			h.When[j].From = n.source(h.When[j].From)
		}
	}
	return c
}

func (n renamer) name(s string) string {
	for from, to := range n.names {
		if strings.EqualFold(from, s) {
			n.used[from] = true
			return to
		}
	}
	return s
}

func (n renamer) source(s string) string {
	if h, ok := strings.CutPrefix(s, "header:"); ok {
		return "header:" + n.name(h)
	}
	return s
}

func (n renamer) sources(f Sources) {
	for i := range f {
		f[i] = n.template(n.source(f[i]))
	}
}

func (n renamer) template(s string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "{header:")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		h, after, _ := strings.Cut(rest, "}") // the recipe compiles, so it is there
		b.WriteString("{header:" + n.name(h) + "}")
		s = after
	}
}
