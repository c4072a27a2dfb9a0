package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/printer"
	"github.com/goccy/go-yaml/token"
)

// problem is one thing that is wrong with a configuration, and where.
type problem struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`

	token *token.Token
	hide  bool // no excerpt: it might hold a secret
	kind  problemKind
}

// problemKind is what a problem of the decoder has left undone.
type problemKind int

const (
	wrongValue   problemKind = iota // what stands at the path was not read
	unknownField                    // a field beside it may be missing
	laterField                      // nothing: no rule of this version reads it
)

// text writes the problem as file:line:column, message, excerpt and caret.
func (p problem) text(file string) string {
	where := file
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
	}
	text := where + ": " + p.Message
	if p.token == nil || p.hide {
		return text
	}
	var excerpt printer.Printer
	return text + "\n" + strings.TrimRight(excerpt.PrintErrorToken(p.token, false), "\n ")
}

// sorted orders problems by their place in the file.
func sorted(problems []problem) []problem {
	for i, p := range problems {
		if p.token != nil && p.token.Position != nil {
			problems[i].Line, problems[i].Column = p.token.Position.Line, p.token.Position.Column
		}
	}
	slices.SortStableFunc(problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return problems
}

// configProblems is the error of a configuration that cannot be used.
type configProblems struct {
	file     string
	problems []problem
}

func problemsFound(file string, problems []problem) error {
	return fail(exitConfig, &configProblems{file, sorted(problems)}, "hooklatch config schema   shows every key")
}

func (e *configProblems) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %s", e.file, counted(len(e.problems), "problem"))
	for _, p := range e.problems {
		b.WriteString("\n" + p.text(e.file))
	}
	return b.String()
}

// counted writes "1 problem", "2 problems".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// configured says which names there are.
func configured(names []string) string {
	if len(names) == 1 {
		return names[0] + " is configured"
	}
	return listed(names) + " are configured"
}

// listed joins names for a sentence, the first 12 of them.
func listed(names []string) string {
	text := ""
	for i, n := range names {
		if i == 12 {
			return text + fmt.Sprintf(" and %d more", len(names)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += n
	}
	return text
}
