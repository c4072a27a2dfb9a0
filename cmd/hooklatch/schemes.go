package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

func schemesCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "schemes",
		Usage:     "list the built-in signature schemes, or show one as a recipe",
		ArgsUsage: "[NAME]",
		Description: example("List what is built in: what each signature covers, where the delivery id comes from, the\n"+
			"window, the answer to an accepted delivery, and where the recipe comes from. With NAME print\n"+
			"its recipe as YAML, ready for --recipe FILE and for scheme: {…} in a configuration, and as\n"+
			"comments the headers of an example, handshakes, the answer and weaknesses.",
			"hooklatch schemes",
			"hooklatch schemes stripe > stripe.yaml"),
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.Args().Len() == 0 {
				return schemes(s, c.Bool("json"))
			}
			args, err := arguments(c, "NAME")
			if err != nil {
				return err
			}
			return showScheme(s, args[0], c.Bool("json"))
		},
	}
}

// schemeLine is the JSON of schemes: one scheme.
type schemeLine struct {
	V         int      `json:"v"`
	Name      string   `json:"name"`
	Covers    []string `json:"covers"`
	ID        []string `json:"delivery_id"` // empty: the source's event.id takes its place, or a token holds it
	IDSigned  bool     `json:"delivery_id_signed"`
	Timestamp bool     `json:"timestamp"`
	Window    int64    `json:"window_s,omitempty"`
	PastOnly  bool     `json:"past_only,omitempty"`
	Status    int      `json:"success_status"`
	Reference string   `json:"reference"`

	Weaknesses []weaknessLine `json:"weaknesses"`

	hasID   bool
	expires bool // a token says itself until when it holds; the window is what clocks may differ by

	// Of one scheme alone.
	Recipe  *verify.Recipe `json:"recipe,omitempty"`
	Example *exampleLine   `json:"example,omitempty"`
}

type weaknessLine struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// exampleLine is a request that hooklatch itself has signed.
type exampleLine struct {
	Secret    string      `json:"secret,omitempty"`
	PublicKey string      `json:"public_key,omitempty"`
	Method    string      `json:"method"`
	URL       string      `json:"url"`
	Headers   http.Header `json:"headers"`
	Body      []byte      `json:"body_base64"`
}

func describeScheme(scheme verify.Scheme) schemeLine {
	recipe := scheme.Recipe()
	line := schemeLine{
		V: 1, Name: scheme.Name(), Covers: append([]string{}, scheme.Covers()...), ID: []string{}, IDSigned: scheme.IDSigned(),
		Timestamp: scheme.HasTimestamp(), Status: http.StatusAccepted, Reference: recipe.Reference, Weaknesses: []weaknessLine{},
		hasID: scheme.HasDeliveryID(), expires: recipe.Algo == "code:messagebird-jwt" || recipe.Algo == "code:monday-jwt",
	}
	if recipe.ID != nil {
		line.ID = recipe.ID.From
	}
	line.Window = int64(scheme.Tolerance() / time.Second)
	if recipe.Timestamp != nil {
		line.PastOnly = recipe.Timestamp.PastOnly
	}
	if recipe.Ack != nil {
		line.Status = cmp.Or(recipe.Ack.SuccessStatus, line.Status)
	}
	for _, w := range scheme.Weaknesses() {
		line.Weaknesses = append(line.Weaknesses, weaknessLine(w))
	}
	return line
}

// coversWidth is what fits beside the rest on a terminal.
const coversWidth = 28

func schemes(s *stdio, asJSON bool) error {
	var rows [][]string
	for _, name := range verify.Presets() {
		scheme, _ := verify.Preset(name)
		line := describeScheme(scheme)
		if asJSON {
			if err := printJSON(s.out, line); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{line.Name, line.covered(), line.id(), line.window(), fmt.Sprint(line.Status), line.Reference})
	}
	if asJSON {
		return nil
	}
	width := s.width()
	if width > 0 {
		for _, row := range rows {
			row[1] = text.Snip(row[1], coversWidth, "…")
		}
	}
	s.printCut([]string{"scheme", "covers", "delivery id", "window", "answer", "recipe from"}, rows, width)
	s.note("hooklatch schemes NAME   prints a recipe, an example and what the scheme leaves open")
	return nil
}

func (l schemeLine) covered() string {
	if len(l.Covers) == 0 {
		return "nothing"
	}
	return strings.Join(l.Covers, ", ")
}

func (l schemeLine) id() string {
	switch {
	case len(l.ID) == 0 && l.hasID:
		return "in the token"
	case len(l.ID) == 0:
		return "set event.id"
	}
	var places []string
	for _, from := range l.ID {
		from = strings.NewReplacer("{header:", "", "}", "").Replace(from)
		for _, kind := range []string{"header:", "json:"} {
			from = strings.TrimPrefix(from, kind)
		}
		places = append(places, from)
	}
	text := strings.ReplaceAll(strings.Join(places, " or "), "body_sha256_hex", "body hash")
	if !l.IDSigned {
		text += ", unsigned"
	}
	return text
}

func (l schemeLine) window() string {
	switch {
	case !l.Timestamp:
		return "no timestamp"
	case l.expires && l.Window == 0:
		return "in the token"
	case l.expires:
		return fmt.Sprintf("in the token ± %d s", l.Window)
	case l.Window == 0:
		return "none"
	case l.PastOnly:
		return fmt.Sprintf("%d s, past", l.Window)
	}
	return fmt.Sprintf("%d s", l.Window)
}

func showScheme(s *stdio, name string, asJSON bool) error {
	scheme, ok := verify.Preset(name)
	if !ok {
		try := "hooklatch schemes   lists them"
		if near := nearest(name, verify.Presets()); near != "" {
			try = "hooklatch schemes " + near
		}
		return usagef(try, "schemes: no scheme is called %q", name)
	}
	line := describeScheme(scheme)
	ex, err := exampleOf(scheme)
	if err != nil {
		return fmt.Errorf("schemes: sign an example with %s: %w", name, err)
	}
	recipe := scheme.Recipe()
	if asJSON {
		line.Recipe, line.Example = &recipe, ex
		return printJSON(s.out, line)
	}
	if err := writeRecipe(s.out, recipe); err != nil {
		return err
	}
	return line.comments(s.out, recipe, ex)
}

// comments writes what a recipe does not say by itself.
func (l schemeLine) comments(w io.Writer, recipe verify.Recipe, ex *exampleLine) error {
	var b strings.Builder
	comment := func(format string, args ...any) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("# "+format, args...), " ") + "\n")
	}
	if ex == nil {
		comment("example: none, since nobody but the sender has keys of this kind")
	} else {
		ex.comments(comment)
	}
	comment("covered by the signature: %s", l.covered())
	comment("delivery id: %s", l.id())
	comment("window: %s", l.window())
	comment("answer: %s", answerText(recipe.Ack))
	for _, h := range recipe.Handshake {
		comment("handshake: %s", handshakeText(h))
	}
	if len(l.Weaknesses) == 0 {
		comment("weaknesses: none known")
	}
	for _, weak := range l.Weaknesses {
		comment("weakness: %s", weak.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (ex *exampleLine) comments(comment func(string, ...any)) {
	what, key := "secret", ex.Secret
	if ex.PublicKey != "" {
		what, key = "public key", ex.PublicKey
	}
	if key = strings.TrimSpace(key); strings.Contains(key, "\n") {
		key = "made for this example, see --json"
	}
	comment("example, signed by hooklatch itself for the %s %s:", what, key)
	comment("  %s %s", ex.Method, ex.URL)
	for _, name := range slices.Sorted(maps.Keys(ex.Headers)) {
		for _, value := range ex.Headers[name] {
			comment("  %s: %s", name, value)
		}
	}
	comment(" ")
	for line := range strings.Lines(string(ex.Body)) {
		comment("  %s", strings.TrimSuffix(line, "\n"))
	}
}

// handshakeText says what is answered without a delivery.
func handshakeText(h verify.HandshakeRecipe) string {
	what := h.From
	for _, w := range h.When {
		if what != "" {
			what += ", "
		}
		if what += w.From; !w.Absent {
			what += " = " + w.Equals
		} else {
			what += " absent"
		}
	}
	text := cmp.Or(h.Method, http.MethodPost) + " with " + cmp.Or(what, "nothing special") + ": " + h.Kind
	switch h.Verify {
	case "":
		return text + ", not signed"
	case "signature":
		return text + ", once the signature is known to be right"
	}
	return text + ", where " + h.Verify + " is the word that was agreed on"
}

// answerText says how an accepted delivery is answered.
func answerText(ack *verify.Ack) string {
	if ack == nil {
		ack = &verify.Ack{}
	}
	text := fmt.Sprint(cmp.Or(ack.SuccessStatus, http.StatusAccepted))
	switch {
	case ack.SuccessBody != nil && *ack.SuccessBody == "", ack.SuccessStatus == http.StatusNoContent:
		text += " without a body"
	case ack.SuccessBody != nil:
		text += fmt.Sprintf(" %q as %s", *ack.SuccessBody, cmp.Or(ack.SuccessType, "text/plain"))
	}
	if ack.RefusalStatus != 0 {
		text += fmt.Sprintf("; %d for a bad signature", ack.RefusalStatus)
	}
	switch {
	case ack.OnConflict == "accept_first":
		text += "; a success for other bytes under a known id too, of which the first stay"
	case ack.ConflictStatus != 0:
		text += fmt.Sprintf("; %d for other bytes under a known id", ack.ConflictStatus)
	}
	return text
}
