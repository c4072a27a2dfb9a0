package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

func verifyCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "verify",
		Usage: "say whether a request is rightly signed",
		Description: example("Check one request: a raw one with its request line, headers, blank line and body, or\n"+
			"its headers and body from two files. Exit code 0: it verifies, 1: it does not, 3: the\n"+
			"recipe, a key or the configuration is wrong.",
			"hooklatch verify --scheme zhisou-v1 --secret-file k1=keys/billing-1 --request captured.http",
			"hooklatch verify -c hooklatch.yaml --source billing --headers h.txt --body b.json --json"),
		Flags: append(judgeFlags(), jsonFlag()),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return verifyRequest(c.Context, s, readSchemeOptions(c), readRequestOptions(c), c.String("now"), c.Bool("json"))
		},
	}
}

// judgeFlags say what is judged, by which scheme and keys, and when.
func judgeFlags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "request", TakesFile: true, Usage: "`FILE` with the raw request; - is stdin"},
	}, requestFlags(), schemeFlags(), []cli.Flag{
		&cli.StringFlag{Name: "now", Usage: "clock in `UNIX` seconds"},
		&cli.StringFlag{Name: "tolerance", Usage: "how far the timestamp may be from now, such as `300s`"},
	})
}

// verdict is the JSON of verify.
type verdict struct {
	V          int      `json:"v"`
	Valid      bool     `json:"valid"`
	Code       string   `json:"code"`
	Reason     string   `json:"reason"`
	Scheme     string   `json:"scheme"`
	KeyID      string   `json:"key_id"`
	DeliveryID string   `json:"delivery_id"`
	IDSigned   bool     `json:"delivery_id_signed"`
	Timestamp  string   `json:"timestamp"`
	Distance   *float64 `json:"distance_s"` // null: no timestamp was read
	Retiring   bool     `json:"retiring"`
	BodyHash   string   `json:"body_sha256"`

	field    string
	bodySize int
}

func verifyRequest(ctx context.Context, s *stdio, scheme schemeOptions, request requestOptions, now string, asJSON bool) error {
	at, err := parseUnix("--now", now)
	if err != nil {
		return err
	}
	v, r, err := readJudged(ctx, s, scheme, request, at)
	if err != nil {
		return err
	}
	result, err := judge(v, r)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(s.out, result)
	} else {
		err = result.print(s.out, isTerminal(s.out))
	}
	if err == nil && !result.Valid {
		err = answerNo()
		if !asJSON && !s.quiet {
			err = fail(exitNo, nil, explainLine(scheme, request, now))
		}
	}
	return err
}

// explainLine is the command that says why. What came from stdin is gone.
func explainLine(scheme schemeOptions, request requestOptions, now string) string {
	words := []string{"hooklatch explain"}
	flag := func(name string, values ...string) {
		for _, value := range values {
			switch id, stdin := strings.CutSuffix(value, "-"); {
			case value == "":
				continue
			case stdin && (id == "" || strings.HasSuffix(id, "=")):
				value = id + "FILE"
			}
			words = append(words, "--"+name+" "+shellQuote(value))
		}
	}
	if scheme.source != "" {
		flag("config", scheme.config)
	}
	flag("source", scheme.source)
	flag("scheme", scheme.scheme)
	flag("recipe", scheme.recipe)
	flag("secret-file", scheme.secretFiles...)
	flag("key-id", scheme.keyID)
	flag("param", scheme.params...)
	flag("tolerance", scheme.tolerance)
	flag("request", request.request)
	flag("headers", request.headers)
	flag("body", request.body)
	if request.method != http.MethodPost {
		flag("method", request.method)
	}
	flag("url", request.url)
	flag("now", now)
	return strings.Join(words, " ")
}

// readSigned makes verifiers and reads a request for them. The URL that is signed is
// the request's, unless the configuration has one.
func readSigned(ctx context.Context, s *stdio, scheme schemeOptions, request requestOptions) ([]*verify.Verifier, verify.Request, error) {
	all, err := scheme.unplaced(ctx, s)
	if err != nil {
		return nil, verify.Request{}, err
	}
	r, err := request.read(ctx, s)
	for i := 0; err == nil && i < len(all); i++ {
		err = signsAt(all[i], r.URL)
	}
	return all, r, err
}

// readJudged is readSigned for a request to be judged at a time: of two schemes by the
// one whose word counts in the server. That is the first which applies and verifies,
// else the last which applies, else the first. The zero time is now.
func readJudged(ctx context.Context, s *stdio, scheme schemeOptions, request requestOptions, at time.Time) (*verify.Verifier, verify.Request, error) {
	all, r, err := readSigned(ctx, s, scheme, request)
	if err != nil {
		return nil, r, err
	}
	if at.IsZero() {
		at = time.Now()
	}
	judge := all[0]
	for _, v := range all {
		v.Now = func() time.Time { return at }
		if !v.Applies(r) {
			continue
		}
		judge = v
		if _, err := v.Verify(r); err == nil {
			break
		}
	}
	return judge, r, nil
}

func judge(v *verify.Verifier, r verify.Request) (verdict, error) {
	sum := sha256.Sum256(r.Body)
	result := verdict{V: 1, Scheme: v.Scheme.Name(), BodyHash: hex.EncodeToString(sum[:]), bodySize: len(r.Body)}
	e, err := v.Verify(r)
	if err == nil {
		result.Valid, result.Code, result.Reason = true, "ok", "ok"
		result.KeyID, result.Retiring = e.KeyID, e.Retiring
		result.DeliveryID, result.IDSigned, result.Timestamp = e.DeliveryID, e.IDSigned, e.Timestamp
		if !e.Time.IsZero() {
			result.Distance = seconds(e.Distance)
		}
		return result, nil
	}
	var refusal *verify.Error
	if !errors.As(err, &refusal) {
		return result, fmt.Errorf("verify: %w", err)
	}
	result.refuse(refusal)
	return result, nil
}

func (r *verdict) refuse(e *verify.Error) {
	r.Code, r.Reason = e.Reason.Code(), string(e.Reason)
	r.KeyID, r.field = e.KeyID, e.Field
	r.DeliveryID, r.Timestamp = e.DeliveryID, e.Timestamp
	if e.Timestamp != "" {
		r.Distance = seconds(e.Distance)
	}
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// print writes the verdict for people.
func (r verdict) print(w io.Writer, terminal bool) error {
	sign := "✗"
	if r.Valid {
		sign = "✓"
	}
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-12s %s\n", name, cell(value, terminal))
		}
	}
	_, err := fmt.Fprintf(w, "%s %s   %s   %d body bytes, body hash %s…\n", sign, r.Code, r.Scheme, r.bodySize, r.BodyHash[:8])
	if r.Reason != r.Code {
		line("reason", r.Reason)
	}
	line("at", r.field)
	key := r.KeyID
	if r.Retiring {
		key += "   retiring: a later key is active"
	}
	line("key id", key)
	if r.DeliveryID != "" {
		covered := "not covered by the signature"
		switch {
		case !r.Valid:
			covered = "not verified"
		case r.IDSigned:
			covered = "signed"
		}
		line("delivery id", r.DeliveryID+"   "+covered)
	}
	distance := ""
	if r.Distance != nil {
		distance = distanceText(*r.Distance)
	}
	switch {
	case r.Timestamp != "":
		line("timestamp", r.Timestamp+"   "+distance)
	case distance != "":
		line("timestamp", distance)
	}
	return err
}

func distanceText(s float64) string {
	s = math.Round(s*1000) / 1000
	text := strconv.FormatFloat(math.Abs(s), 'f', -1, 64)
	switch {
	case s < 0:
		return text + " s behind this clock"
	case s > 0:
		return text + " s ahead of this clock"
	}
	return "this very second"
}
