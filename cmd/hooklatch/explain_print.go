package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hooklatch/hooklatch/verify"
)

// print writes the explanation for people.
func (e *explanation) print(w io.Writer, terminal bool) {
	sign := "✗"
	if e.Valid {
		sign = "✓"
	}
	fmt.Fprintf(w, "%s %s   %s   %d body bytes, body hash %s…\n", sign, e.Code, e.Scheme, e.bodySize, e.BodyHash[:8])
	for _, row := range e.facts() {
		if row[1] != "" || row[2] != "" {
			line := fmt.Sprintf("  %-12s %-*s  %s", row[0], e.width(), cell(row[1], terminal), cell(row[2], terminal))
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		}
	}
	for _, c := range e.Causes {
		paragraph(w, "cause", c.Code+"   "+cell(c.Text, terminal))
		paragraph(w, "fix", cell(c.Fix, terminal))
	}
	if e.SignedText != "" {
		fmt.Fprintf(w, "  %-12s %s\n", "signed text", cell(e.frame(), terminal))
	}
	if slices.ContainsFunc(e.Causes, func(c verify.Cause) bool { return c.Code == "no_match" || c.Code == "search_cut" }) {
		fmt.Fprintf(w, "  %-12s %d signatures, %s hashed\n", "tried", e.MACs, roughly(e.Bytes))
	}
	if e.Expected != "" {
		fmt.Fprintf(w, "  %-12s %s\n", "expected", cell(e.Expected, terminal))
	}
}

// facts are the parts of the request: name, value, what is known of it.
func (e *explanation) facts() [][3]string {
	x := &e.found
	state := func(prefixes ...string) string {
		for _, c := range e.Causes {
			for _, p := range prefixes {
				if strings.HasPrefix(c.Code, p) {
					return "not as it should be"
				}
			}
		}
		return "ok"
	}
	rows := [][3]string{{"key id", x.KeyID, x.KeyNote}}
	if x.Timestamp != "" {
		note := state("ts_")
		if x.Distance != 0 || note == "ok" { // else no time was read
			note = distanceText(x.Distance.Seconds()) + "   " + note
		}
		if x.Tolerance > 0 {
			note += fmt.Sprintf(" (tolerance %g s)", x.Tolerance.Seconds())
		}
		rows = append(rows, [3]string{"timestamp", x.Timestamp, note})
	}
	if x.DeliveryID != "" {
		rows = append(rows, [3]string{"delivery id", x.DeliveryID, state("delivery_id_")})
	}
	if x.Signature != "" {
		rows = append(rows, [3]string{"signature", x.Signature, state("sig_", "hash_")})
	}
	return rows
}

// width is that of the values, so that what is said of them stands in one column.
func (e *explanation) width() int {
	width := 0
	for _, row := range e.facts() {
		width = max(width, utf8.RuneCountInString(row[1]))
	}
	return min(width, 40)
}

// frame shows the signed text with the length of the body in its place.
func (e *explanation) frame() string {
	body := fmt.Sprintf("%d body bytes", e.bodySize)
	before, behind, found := strings.Cut(e.SignedText, "{body}")
	text := ""
	if before != "" {
		text = "|" + before + "|"
	}
	switch {
	case !found:
		return text
	case text != "":
		text += " + " + body
	default:
		text = body
	}
	if behind != "" {
		text += " + |" + behind + "|"
	}
	return text
}

const paragraphWidth = 100

// paragraph writes text under a name, broken between words.
func paragraph(w io.Writer, name, text string) {
	line := fmt.Sprintf("  %-12s ", name)
	empty := strings.Repeat(" ", len(line))
	for _, word := range strings.SplitAfter(text, " ") {
		if utf8.RuneCountInString(line+word) > paragraphWidth {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = empty
		}
		line += word
	}
	fmt.Fprintln(w, line)
}

// roughly is a number of bytes at a glance.
func roughly(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
