package verify

import (
	"fmt"
	"strings"
)

// Rename returns the recipe with header names replaced wherever they stand. It is
// an error if the recipe does not name such a header.
func (r Recipe) Rename(names map[string]string) (Recipe, error) {
	c := r.clone()
	used := map[string]bool{}
	name := func(s string) string {
		for from, to := range names {
			if strings.EqualFold(from, s) {
				used[from] = true
				return to
			}
		}
		return s
	}
	source := func(s string) string {
		if h, ok := strings.CutPrefix(s, "header:"); ok {
			return "header:" + name(h)
		}
		return s
	}
	template := func(s string) string {
		var b strings.Builder
		for {
			before, rest, ok := strings.Cut(s, "{header:")
			b.WriteString(before)
			if !ok {
				return b.String()
			}
			h, after, ok := strings.Cut(rest, "}")
			if !ok {
				b.WriteString("{header:" + rest)
				return b.String()
			}
			b.WriteString("{header:" + name(h) + "}")
			s = after
		}
	}
	sources := func(f Sources) {
		for i := range f {
			f[i] = template(source(f[i]))
		}
	}
	if c.Signature.In == "" || c.Signature.In == "header" {
		if c.Signature.Name == "" && len(c.Signature.Names) == 0 && c.Algo == "basic" {
			c.Signature.Name = "Authorization"
		}
		c.Signature.Name = name(c.Signature.Name)
		for i := range c.Signature.Names {
			c.Signature.Names[i] = name(c.Signature.Names[i])
		}
	}
	c.Template = template(c.Template)
	if c.Timestamp != nil {
		c.Timestamp.From = source(c.Timestamp.From)
	}
	if c.ID != nil {
		sources(c.ID.From)
	}
	if c.KeyID != nil {
		sources(c.KeyID.From)
	}
	if c.EventType != nil {
		sources(c.EventType.From)
	}
	for i := range c.Require {
		c.Require[i].Header = name(c.Require[i].Header)
	}
	for from, to := range names {
		if !used[from] {
			return Recipe{}, fmt.Errorf("verify: rename: the recipe names no header %s", from)
		}
		if !validHeaderName(to) {
			return Recipe{}, fmt.Errorf("verify: rename: %q is no header name", to)
		}
	}
	return c, nil
}
