package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// devEvents shows what happens while dev runs: what is about dev itself on
// stderr, requests and attempts on stdout. These wait until dev is ready, so that
// its lines come first.
type devEvents struct {
	s           *stdio
	kind        string // lines, json, quiet
	destination string
	program     string // how a person calls it

	mu      sync.Mutex
	isReady bool
	waiting []string
	counts  map[proxy.Outcome]int
	tried   map[string]bool // before dev was ready: id of a delivery, whether it was handed on
	first   string          // id of the start-up delivery; empty: nobody waits for it
	failing bool            // who waits wants to know too that it was not taken
	handed  chan bool       // whether that was handed on
}

func newDevEvents(s *stdio, kind string) *devEvents {
	return &devEvents{s: s, kind: kind, program: programName(), counts: map[proxy.Outcome]int{}, tried: map[string]bool{}, handed: make(chan bool, 1)}
}

// head writes one line of the introduction.
func (e *devEvents) head(name, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.s.note("  %-12s %s", name, fmt.Sprintf(format, args...))
}

// step is a head that took time.
func (e *devEvents) step(begun time.Time, name, format string, args ...any) {
	e.head(name, "%-66s %.1f s", fmt.Sprintf(format, args...), time.Since(begun).Seconds())
}

// plain writes text that is to be copied as it stands.
func (e *devEvents) plain(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.s.note("%s", text)
}

// warn is a head that must not be missed.
func (e *devEvents) warn(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.s.note("%s", paint(e.s, e.s.err, colourYellow, fmt.Sprintf("  %-12s %s", "!", text)))
}

// trouble writes what went wrong beside the deliveries.
func (e *devEvents) trouble(what string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := fmt.Sprintf("%s  !  %s", clock(), what)
	if err != nil {
		text += ": " + cell(err.Error(), isTerminal(e.s.err))
	}
	fmt.Fprintln(e.s.err, paint(e.s, e.s.err, colourRed, text))
}

func clock() string { return time.Now().Format("15:04:05.000") }

const (
	// handPatience is how long the start-up delivery may take to the built-in app,
	// which takes it for sure.
	handPatience = 10 * time.Second
	// appPatience is how long dev waits to see whether an app of the user takes it.
	appPatience = 2 * time.Second
)

// handedOn waits until the start-up delivery was handed on, which may be so by now.
func (e *devEvents) handedOn(ctx context.Context, id string) error {
	e.mu.Lock()
	e.first = id
	e.tell()
	e.mu.Unlock()
	timer := time.NewTimer(handPatience)
	defer timer.Stop()
	select {
	case <-e.handed:
		return nil
	case <-timer.C:
		return fmt.Errorf("dev: the start-up delivery was committed, and not handed on within %s", handPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tookIt says whether the app of the user takes the start-up delivery, as far as
// its first attempt shows it soon.
func (e *devEvents) tookIt(ctx context.Context, id string) bool {
	e.mu.Lock()
	e.first, e.failing = id, true
	e.tell()
	e.mu.Unlock()
	timer := time.NewTimer(appPatience)
	defer timer.Stop()
	select {
	case taken := <-e.handed:
		return taken
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// ready writes the ready line and lets the events through.
func (e *devEvents) ready(st devState, text string) {
	e.head("ready", "%s", text)
	if e.kind == "json" {
		e.print(jsonLine(devReady{V: 1, Time: time.Now().UTC(), Event: "ready", URL: st.URL, Admin: st.Admin, Scheme: st.Scheme, KeyID: st.KeyID}))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isReady = true
	for _, line := range e.waiting {
		io.WriteString(e.s.out, line)
	}
	e.waiting = nil
}

// print writes a line of the live view, at once or once dev is ready. What is no
// event, the ready line, does not wait.
func (e *devEvents) print(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isReady && !strings.Contains(line, `"event":"ready"`) {
		e.waiting = append(e.waiting, line)
		return
	}
	io.WriteString(e.s.out, line)
}

// request shows one request.
func (e *devEvents) request(ctx context.Context, r *proxy.Result) {
	e.mu.Lock()
	e.counts[r.Outcome]++
	e.mu.Unlock()
	switch e.kind {
	case "lines":
		carried, _ := ctx.Value(wireIDKey{}).(string)
		e.print(e.requestLine(r, carried))
	case "json":
		e.print(jsonLine(newDevRequest(r)))
	}
}

// attempt shows one attempt.
func (e *devEvents) attempt(r *consumer.AttemptResult) {
	switch e.kind {
	case "lines":
		e.print(e.attemptLine(r))
	case "json":
		e.print(jsonLine(newDevAttempt(r)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if id := r.Forward.Delivery.DeliveryID; !e.isReady {
		e.tried[id] = e.tried[id] || r.Settlement.Outcome == inbox.OutcomeAccepted
		e.tell()
	}
}

func (e *devEvents) tell() {
	taken, tried := e.tried[e.first]
	if e.first != "" && tried && (taken || e.failing) {
		e.first = ""
		e.handed <- taken // there is room: it is told once
	}
}

func (e *devEvents) requestLine(r *proxy.Result, carried string) string {
	id := r.DeliveryID
	if id == "" && r.Reason != string(verify.ReasonDeliveryIDInvalid) {
		id = carried
	}
	if id == "" {
		id = "request " + requestID(r.RequestID) // the sender got it too
	}
	sign, colour, what, detail := "✗", colourRed, fmt.Sprintf("%d %s", r.Status, r.Code), refusalText(r)
	diff := e.program + " events diff --conflict " + shellQuote(r.DeliveryID)
	switch r.Outcome {
	case proxy.OutcomeAccepted:
		sign, colour, what = "→", colourGreen, fmt.Sprintf("%d accepted", r.Status)
		detail = fmt.Sprintf("%s  %s", took(r.Duration), r.KeyID)
	case proxy.OutcomeDuplicate:
		sign, colour, what, detail = "=", colourNone, fmt.Sprintf("%d duplicate", r.Status), "nothing new"
		switch {
		case r.KeptAs != "":
			detail = "body known under another id, " + r.KeptAs
		case r.Conflict:
			sign, colour, detail = "≠", colourYellow, "same id, other bytes, the first stay   "+diff
		}
	case proxy.OutcomeHandshake:
		sign, colour, what, detail = "↔", colourGreen, fmt.Sprintf("%d handshake", r.Status), r.Handshake+", nothing stored"
	case proxy.OutcomeConflict:
		sign, colour, detail = "≠", colourYellow, "same id, other bytes   "+diff
	}
	return e.line(sign, colour, r.Source, id, r.EventType, what, detail)
}

func (e *devEvents) attemptLine(r *consumer.AttemptResult) string {
	s := &r.Settlement
	what := s.Class
	if s.Status != 0 {
		what = fmt.Sprint(s.Status)
	}
	colour, detail := colourGreen, fmt.Sprintf("%s  accepted", took(s.Duration))
	switch s.Outcome {
	case inbox.OutcomeRetry:
		colour, detail = colourYellow, fmt.Sprintf("%s  again in %s   %s", took(s.Duration), s.Delay.Round(10*time.Millisecond), s.Error)
	case inbox.OutcomeBlocked:
		colour, detail = colourRed, fmt.Sprintf("%s  blocked: %s   %s", took(s.Duration), s.Reason, s.Error)
	}
	if r.LeaseLost {
		detail += "   lease lost"
	}
	return e.line("←", colour, r.Forward.Destination, r.Forward.Delivery.DeliveryID, "attempt "+fmt.Sprint(r.Forward.Attempt), what, detail)
}

// line puts the parts into columns. An id stays whole, so that it can be copied.
func (e *devEvents) line(sign, colour, who, id, kind, what, detail string) string {
	terminal := isTerminal(e.s.out)
	text := fmt.Sprintf("%s  %s  %-5s %-12s  %-14s  %-22s %s", clock(), paint(e.s, e.s.out, colour, sign),
		cell(who, terminal), cell(id, terminal), cell(kind, terminal), what, cell(detail, terminal))
	return strings.TrimRight(text, " ") + "\n"
}

func took(d time.Duration) string {
	return fmt.Sprintf("%4d ms", d.Round(time.Millisecond).Milliseconds())
}

// refusalText says in words what the precise reason is.
func refusalText(r *proxy.Result) string {
	switch verify.Reason(r.Reason) {
	case verify.ReasonSignatureMismatch:
		return "signature_mismatch: signed with another secret, or the body changed on its way"
	case verify.ReasonKeyUnknown:
		return "key_unknown: no key has that id"
	case verify.ReasonTimestampOutOfWindow:
		side := "behind"
		if r.Distance > 0 {
			side = "ahead of"
		}
		return fmt.Sprintf("%.0f s %s this clock", r.Distance.Abs().Seconds(), side)
	case verify.ReasonBodyTooLarge:
		return fmt.Sprintf("%d bytes, %d are taken", r.BodyBytes, r.BodyLimit)
	}
	var parts []string
	if r.Reason != r.Code {
		parts = append(parts, r.Reason)
	}
	if r.Field != "" {
		parts = append(parts, r.Field)
	}
	if r.Err != nil {
		parts = append(parts, r.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// summary is the last line.
func (e *devEvents) summary(data string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var parts []string
	for _, o := range outcomes {
		n := e.counts[o]
		switch {
		case o == proxy.OutcomeAccepted && n > 0:
			parts = append(parts, fmt.Sprintf("%d accepted (1 the start-up test)", n))
		case n > 0:
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	start := "  "
	if isTerminal(e.s.err) {
		start = "\r  " // over the terminal's ^C
	}
	e.s.note("%s%-12s %s. %s", start, "stopped", strings.Join(parts, ", "), data)
}

const (
	colourNone   = ""
	colourRed    = "\x1b[31m"
	colourGreen  = "\x1b[32m"
	colourYellow = "\x1b[33m"
)

func paint(s *stdio, w io.Writer, colour, text string) string {
	if colour == colourNone || !s.colour(w) {
		return text
	}
	return colour + text + "\x1b[0m"
}

// devLog is dev's logger: warnings only, in the form of the live view.
type devLog struct {
	events *devEvents
	attrs  []slog.Attr
}

// Enabled implements slog.Handler.
func (l *devLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (l *devLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	add := func(a slog.Attr) bool {
		text += fmt.Sprintf("  %s=%v", a.Key, a.Value)
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	l.events.trouble(cell(text, isTerminal(l.events.s.err)), nil)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *devLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &devLog{l.events, append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...)}
}

// WithGroup implements slog.Handler; nobody here groups.
func (l *devLog) WithGroup(string) slog.Handler { return l }

// devReady, devRequest and devAttempt are the JSON of the live view.
type devReady struct {
	V      int       `json:"v"`
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	URL    string    `json:"url"`
	Admin  string    `json:"admin"`
	Scheme string    `json:"scheme"`
	KeyID  string    `json:"key_id"`
}

type devRequest struct {
	V          int       `json:"v"`
	Time       time.Time `json:"time"`
	Event      string    `json:"event"`
	RequestID  string    `json:"request_id"`
	Source     string    `json:"source"`
	Outcome    string    `json:"outcome"`
	Handshake  string    `json:"handshake,omitempty"`
	Status     int       `json:"status"`
	Code       string    `json:"code,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	DeliveryID string    `json:"delivery_id,omitempty"`
	EventType  string    `json:"event_type,omitempty"`
	KeyID      string    `json:"key_id,omitempty"`
	BodyHash   string    `json:"body_sha256,omitempty"`
	Bytes      int64     `json:"bytes"`
	Took       float64   `json:"took_ms"`
}

func newDevRequest(r *proxy.Result) devRequest {
	line := devRequest{
		V: 1, Time: time.Now().UTC(), Event: "request", RequestID: requestID(r.RequestID), Source: r.Source, Outcome: string(r.Outcome),
		Handshake: r.Handshake, Status: r.Status, Code: r.Code, Reason: r.Reason, DeliveryID: r.DeliveryID, EventType: r.EventType, KeyID: r.KeyID,
		Bytes: r.BodyBytes, Took: float64(r.Duration.Microseconds()) / 1000,
	}
	if r.BodyHash != [32]byte{} {
		line.BodyHash = hex.EncodeToString(r.BodyHash[:])
	}
	return line
}

type devAttempt struct {
	V           int       `json:"v"`
	Time        time.Time `json:"time"`
	Event       string    `json:"event"`
	Destination string    `json:"destination"`
	DeliveryID  string    `json:"delivery_id"`
	Attempt     int       `json:"attempt"`
	State       string    `json:"state"`
	Class       string    `json:"class"`
	Status      int       `json:"status,omitempty"`
	Error       string    `json:"error,omitempty"`
	RetryIn     float64   `json:"retry_in_s,omitempty"`
	Took        float64   `json:"took_ms"`
}

func newDevAttempt(r *consumer.AttemptResult) devAttempt {
	s := &r.Settlement
	return devAttempt{
		V: 1, Time: time.Now().UTC(), Event: "attempt", Destination: r.Forward.Destination, DeliveryID: r.Forward.Delivery.DeliveryID,
		Attempt: r.Forward.Attempt, State: string(stateAfter(s.Outcome)), Class: s.Class, Status: s.Status, Error: s.Error,
		RetryIn: s.Delay.Seconds(), Took: float64(s.Duration.Microseconds()) / 1000,
	}
}

func jsonLine(v any) string {
	var b strings.Builder
	if err := printJSON(&b, v); err != nil {
		return "" // none of these types can fail
	}
	return b.String()
}
