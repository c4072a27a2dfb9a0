package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

// sendTimeout bounds one request, answer included.
const sendTimeout = 30 * time.Second

func sendCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "send",
		Usage: "send a signed delivery, or a broken one",
		Description: example("Sign a body and post it. Without --url it goes to --source of the configuration, else\n"+
			"to the running dev. --break spoils it in one way, to see each refusal once:\n\n"+breakHelp()+"\n\n"+
			"Exit code 0: answered as named here, without --break with 2xx; 1: answered otherwise;\n"+
			"2: the scheme has no such part; 4: no answer.",
			"hooklatch send",
			"hooklatch send --break body",
			"hooklatch send -c hooklatch.yaml --source billing",
			"hooklatch send --url https://hooks.example.com/in/billing --scheme zhisou-v1 --secret-file k1=keys/k1 --body event.json"),
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "`URL` to post to; that of --source, else the running dev, if left out"},
			&cli.StringFlag{Name: "body", TakesFile: true, Usage: "`FILE` with the body; - is stdin; a small event if left out"},
			&cli.StringFlag{Name: "id", Usage: "delivery `ID`; a new one if left out"},
			&cli.StringSliceFlag{Name: "header", Usage: "`'NAME: VALUE'` to add, repeatable"},
			&cli.StringFlag{Name: "break", Usage: "`KIND` of fault: " + strings.Join(breakNames(), " ")},
			jsonFlag(),
		}, schemeFlags()...),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return send(c.Context, s, sendOptions{
				scheme: readSchemeOptions(c).signing(), url: c.String("url"), body: c.String("body"), id: c.String("id"),
				headers: c.StringSlice("header"), fault: c.String("break"), json: c.Bool("json"),
			})
		},
	}
}

type sendOptions struct {
	scheme        schemeOptions
	url, body, id string
	headers       []string
	fault         string
	json          bool
}

func send(ctx context.Context, s *stdio, o sendOptions) error {
	if o.fault != "" && findBreak(o.fault) == nil {
		return usagef("hooklatch send --help", "send: unknown fault %q: %s are known", o.fault, strings.Join(breakNames(), ", "))
	}
	v, to, err := o.receiver(ctx, s)
	if err != nil {
		return err
	}
	d, err := o.delivery(ctx, s, v)
	if err != nil {
		return err
	}
	d.to = to
	exchanges, err := d.plan(o.fault)
	if err != nil {
		return err
	}
	client := newSender()
	defer client.CloseIdleConnections()
	asExpected := true
	for _, x := range exchanges {
		got, err := x.post(ctx, client)
		if err != nil {
			if ctx.Err() != nil {
				return context.Canceled
			}
			return fail(exitUnreachable, fmt.Errorf("send: %w", err), o.unanswered(to, err))
		}
		asExpected = asExpected && got.AsExpected
		if o.json {
			err = printJSON(s.out, got)
		} else {
			err = got.print(s.out, isTerminal(s.out))
		}
		if err != nil {
			return err
		}
	}
	if !asExpected {
		return answerNo()
	}
	if o.fault == "revision" {
		s.note("revision 2 is missing now, which shows where the source has an ordering:  %s resources gaps", programName())
	}
	return nil
}

// receiver finds where to send and how to sign: from the flags, from the
// configuration, or as the running dev has left it.
func (o sendOptions) receiver(ctx context.Context, s *stdio) (*verify.Verifier, target, error) {
	if o.url == "" && !o.scheme.named() {
		dev, err := readDevState()
		if err != nil {
			return nil, target{}, err
		}
		v, err := dev.verifier()
		if err != nil {
			return nil, target{}, fail(exitConfig, fmt.Errorf("send: %w", err), "")
		}
		return v, target{url: dev.URL}, nil
	}
	if o.url == "" && o.scheme.source == "" {
		return nil, target{}, usagef("--url URL", "send: to which URL?")
	}
	if o.url != "" {
		u, err := url.Parse(o.url)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, target{}, usagef("--url http://127.0.0.1:8787/in/dev", "send: %q is no http or https URL", o.url)
		}
	}
	v, err := o.scheme.verifier(ctx, s)
	if err != nil || o.scheme.source == "" {
		return v, target{url: o.url}, err
	}
	c, err := readConfig(o.scheme.config)
	if err != nil {
		return nil, target{}, err
	}
	to, err := c.sourceTarget(o.scheme.source)
	if o.url != "" {
		to.url, to.host, err = o.url, "", nil
	}
	return v, to, err
}

// delivery is what is sent, before it is spoiled.
type delivery struct {
	v      *verify.Verifier
	to     target
	id     string
	at     time.Time   // of signing; the sample holds it too
	key    verify.Key  // zero: the newest active one
	given  http.Header // by the person
	header http.Header // the same and what the scheme demands, beside those that sign
	query  url.Values  // that the scheme demands
	body   []byte
	// sampled: the body is a sample, and not given.
	sampled bool
}

func (o sendOptions) delivery(ctx context.Context, s *stdio, v *verify.Verifier) (*delivery, error) {
	d := &delivery{v: v, id: o.id, at: time.Now(), given: http.Header{}, sampled: o.body == ""}
	if d.id == "" {
		d.id = newDeliveryID()
	}
	for _, line := range o.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, usagef("--header 'X-Name: value'", "send: header %q has no colon", line)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		d.given[name] = append(d.given[name], strings.TrimSpace(value))
	}
	if o.body != "" {
		var err error
		if d.body, err = readInput(ctx, s, o.body); err != nil {
			return nil, err
		}
	}
	d.sample()
	return d, nil
}

// sample adds what the sender of such an event would send, where nothing is given.
func (d *delivery) sample() {
	of := sampleOf(d.v.Scheme, d.id, d.at)
	if d.sampled {
		d.body = of.body
	} else {
		of.header.Set("Content-Type", contentType(d.body, of))
	}
	d.header, d.query = of.header, of.query
	for name, values := range d.given {
		d.header[name] = values
	}
}

// target is the URL with the query that the scheme demands.
func (d *delivery) target() string {
	u, err := url.Parse(d.to.url)
	if err != nil || len(d.query) == 0 {
		return d.to.url
	}
	given := u.Query()
	for name, values := range d.query {
		if !given.Has(name) {
			given[name] = values
		}
	}
	u.RawQuery = given.Encode()
	return u.String()
}

// exchange is one request and the answer that is expected.
type exchange struct {
	url    string
	host   string
	header http.Header
	body   []byte
	id     string // that it carries; empty: none
	inHead string // the same, where it stands in the header
	expect func(status int) bool
	wanted string // what is expected, for people
}

// sign makes the exchange of the delivery, rightly signed.
func (d *delivery) sign() (*exchange, error) {
	r, err := signRequest(d.v, verify.Request{Method: http.MethodPost, URL: d.target(), Header: d.header, Body: d.body},
		verify.SignOptions{Key: d.key, DeliveryID: d.id, Time: d.at})
	if err != nil {
		return nil, err
	}
	head := r
	head.Body = nil
	return &exchange{
		url: r.URL, host: d.to.host, header: r.Header, body: r.Body,
		id: wireID(d.v.Scheme, r), inHead: wireID(d.v.Scheme, head), expect: is2xx, wanted: "2xx",
	}, nil
}

func is2xx(status int) bool { return status >= 200 && status <= 299 }

// sent is the JSON of send: one answer.
type sent struct {
	V          int     `json:"v"`
	Status     int     `json:"status"`
	Code       string  `json:"code,omitempty"` // of a refusal
	DeliveryID string  `json:"delivery_id"`
	Duplicate  bool    `json:"duplicate"`
	RequestID  string  `json:"request_id,omitempty"`
	Took       float64 `json:"took_ms"`
	Wanted     string  `json:"wanted"`
	AsExpected bool    `json:"as_expected"`

	inHead string // the delivery id that is known of a refused request too
}

func newSender() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A receiver that refuses by the headers alone has the time to say so before
	// the body is sent.
	transport.ExpectContinueTimeout = 2 * time.Second
	return &http.Client{
		Transport:     transport,
		Timeout:       sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (x *exchange) post(ctx context.Context, client *http.Client) (sent, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(x.body))
	if err != nil {
		return sent{}, err
	}
	for name, values := range x.header {
		r.Header[name] = values
	}
	if len(x.body) > verify.DefaultMaxBody {
		r.Header.Set("Expect", "100-continue")
	}
	r.Host = cmp.Or(x.host, r.Host)
	start := time.Now()
	answer, err := client.Do(r)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = fmt.Errorf("%s: %w", x.url, e.Err)
		}
		return sent{}, err
	}
	defer answer.Body.Close()
	got := sent{V: 1, Status: answer.StatusCode, DeliveryID: x.id, RequestID: answer.Header.Get("X-Request-Id"),
		Wanted: x.wanted, AsExpected: x.expect(answer.StatusCode), inHead: x.inHead}
	got.read(answer.Body)
	got.Took = float64(time.Since(start).Microseconds()) / 1000
	return got, nil
}

// read takes what it knows from the answer's body; other servers answer otherwise.
func (g *sent) read(body io.Reader) {
	var known struct {
		Code       string `json:"code"`
		DeliveryID string `json:"delivery_id"`
		Duplicate  bool   `json:"duplicate"`
	}
	text, err := io.ReadAll(io.LimitReader(body, 64<<10))
	if err != nil || json.Unmarshal(text, &known) != nil {
		return
	}
	g.Code, g.Duplicate = known.Code, known.Duplicate
	if known.DeliveryID != "" {
		g.DeliveryID = known.DeliveryID
	}
}

func (g sent) print(w io.Writer, terminal bool) error {
	what := g.Code
	switch {
	case g.Duplicate:
		what = "duplicate"
	case is2xx(g.Status):
		what = "accepted"
	case what == "":
		what = http.StatusText(g.Status)
	}
	// What dev's live view and a server's log know the request by.
	id := g.DeliveryID
	if !is2xx(g.Status) && g.Status != http.StatusConflict {
		id = g.inHead
	}
	if id == "" && g.RequestID != "" {
		id = "request " + g.RequestID
	}
	verdict := "as expected"
	if !g.AsExpected {
		verdict = "expected " + g.Wanted
	}
	_, err := fmt.Fprintf(w, "%d %-24s %s   %.0f ms   %s\n", g.Status, cell(what, terminal), cell(id, terminal), g.Took, verdict)
	return err
}
