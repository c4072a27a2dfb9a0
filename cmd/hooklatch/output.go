package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// printable makes text from elsewhere harmless on a terminal: control characters
// could move the cursor or retitle the window, bidirectional ones could show an
// id that it is not. Elsewhere bytes pass as they are.
func printable(s string, terminal bool) string {
	if !terminal {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			fmt.Fprintf(&b, "\\u%04x", r)
		case r == unicode.ReplacementChar:
			b.WriteString("\\ufffd")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cell is printable for one line: line ends are escaped too.
func cell(s string, terminal bool) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(printable(s, terminal))
}

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printTable writes rows in columns, the header in upper case.
func (s *stdio) printTable(header []string, rows [][]string) { s.printCut(header, rows, 0) }

// printCut is printTable with lines of at most width characters; 0: of any length.
func (s *stdio) printCut(header []string, rows [][]string, width int) {
	t := table.NewWriter()
	t.SetOutputMirror(s.out)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	style.Size.WidthMax = width
	style.Box.UnfinishedRow = "…"
	if s.colour(s.out) {
		style.Color.Header = text.Colors{text.Bold}
	}
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(tableRow(header, false))
	terminal := isTerminal(s.out)
	for _, r := range rows {
		t.AppendRow(tableRow(r, terminal))
	}
	t.Render()
}

func tableRow(cells []string, terminal bool) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = cell(c, terminal)
	}
	return row
}
