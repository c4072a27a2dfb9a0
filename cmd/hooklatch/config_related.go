package main

import "strings"

// explains says whether p, which a check has found, may only be the consequence
// of a problem of the decoder: what that one has left empty would be complained
// about a second time, and in words that mislead.
func (d *decoder) explains(p problem) bool {
	for _, cause := range d.problems {
		switch cause.kind {
		case laterField:
			continue
		case unknownField:
			// Misspelled: what was meant is missing beside it, or in what it holds.
			parent := cause.Path[:max(0, strings.LastIndex(cause.Path, "."))]
			if parent == "" || within(parent, p.Path) || within(p.Path, parent) && d.at[p.Path] == nil {
				return true
			}
		case wrongValue:
			if within(cause.Path, p.Path) || within(p.Path, cause.Path) {
				return true
			}
		}
		// What is checked against another part of the file.
		switch {
		case within(cause.Path, "destinations") && strings.Contains(p.Path, ".forward["),
			within(cause.Path, "tls") && within(p.Path, "listen"),
			within(cause.Path, "limits") && strings.HasSuffix(p.Path, ".max_body"):
			return true
		}
	}
	return false
}

// within says whether path is whole or lies in it.
func within(path, whole string) bool {
	rest, ok := strings.CutPrefix(path, whole)
	return ok && (whole == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
