package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

// explainBytes is the most that explain hashes: who waits at a terminal can wait
// longer than a server, and can leave.
const explainBytes = 8 << 30

func explainCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "explain",
		Usage: "say why a signature does not match, and what to do",
		Description: example("Find out why a request does not verify: another key, another reading of the secret,\n"+
			"another text that was signed, a body that was changed on the way, another spelling, the\n"+
			"clock. A cause is seen in the request, or proven: without it the signature agrees. With\n"+
			"--source the keys of the tenant's other sources are tried too. Exit code 0: it verifies,\n"+
			"1: it does not.",
			"hooklatch explain -c hooklatch.yaml --source billing --request captured.http",
			"hooklatch explain --scheme stripe --secret-file keys/stripe --headers h.txt --body b.json --now 1700000000"),
		Flags: append(judgeFlags(),
			&cli.BoolFlag{Name: "show-expected", Usage: "print the signature that was expected too; it is as good as a signed request"},
			jsonFlag()),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return explain(c.Context, s, explainOptions{
				scheme: readSchemeOptions(c), request: readRequestOptions(c), now: c.String("now"),
				showExpected: c.Bool("show-expected"), json: c.Bool("json"),
			})
		},
	}
}

type explainOptions struct {
	scheme       schemeOptions
	request      requestOptions
	now          string
	showExpected bool
	json         bool
}

// explanation is the JSON of explain: what verify says, and why.
type explanation struct {
	verdict
	Causes     []verify.Cause `json:"causes"` // best first; empty if it verifies
	Signature  string         `json:"signature,omitempty"`
	SignedText string         `json:"signed_text,omitempty"` // without the body
	MACs       int            `json:"macs"`
	Bytes      int64          `json:"bytes_hashed"`
	Expected   string         `json:"expected,omitempty"`

	found verify.Explanation
}

func explain(ctx context.Context, s *stdio, o explainOptions) error {
	at, err := parseUnix("--now", o.now)
	if err != nil {
		return err
	}
	v, r, err := readJudged(ctx, s, o.scheme, o.request, at)
	if err != nil {
		return err
	}
	v.ExplainBytes = explainBytes
	others, err := o.scheme.others(ctx, s)
	if err != nil {
		return err
	}
	result, err := lookInto(ctx, v, r, others)
	if err != nil {
		return err
	}
	if o.showExpected {
		if result.Expected, err = expected(v, r, result.found); err != nil {
			return fail(exitUsage, fmt.Errorf("--show-expected: %s", withoutPackage(err)), "")
		}
	}
	if o.json {
		err = printJSON(s.out, result)
	} else {
		result.print(s.out, isTerminal(s.out))
	}
	if err == nil && !result.Valid {
		err = answerNo()
	}
	return err
}

// lookInto explains, unless ctx ends before: a search over a large body takes
// seconds, and goes on until the process ends.
func lookInto(ctx context.Context, v *verify.Verifier, r verify.Request, others []sourceKeys) (*explanation, error) {
	done := make(chan *explanation, 1)
	failed := make(chan error, 1)
	go func() {
		verdict, err := judge(v, r)
		if err != nil {
			failed <- err
			return
		}
		sets := make([]verify.KeySet, len(others))
		for i := range others {
			sets[i] = others[i].keys
		}
		e := v.Explain(r, sets...)
		if e.Error != nil {
			verdict.refuse(e.Error) // without a secret that was sent in the wrong place
		}
		nameSource(v, r, &e, others)
		done <- &explanation{
			verdict: verdict, Causes: append([]verify.Cause{}, e.Causes...), Signature: e.Signature, SignedText: e.Frame,
			MACs: e.MACs, Bytes: e.Bytes, found: e,
		}
	}()
	select {
	case result := <-done:
		return result, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sourceKeys are the keys of another source of the same tenant.
type sourceKeys struct {
	source string
	keys   verify.KeySet
}

// others are the keys of the tenant's other sources. Those that cannot be read are
// left out, since they are not the ones asked about.
func (o schemeOptions) others(ctx context.Context, s *stdio) ([]sourceKeys, error) {
	if o.source == "" {
		return nil, nil
	}
	c, err := readConfig(o.config)
	if err != nil {
		return nil, err
	}
	var all []sourceKeys
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		if name == o.source || c.Sources[name].Tenant != c.Sources[o.source].Tenant {
			continue
		}
		verifiers, err := c.sourceVerifiers(ctx, name)
		if err != nil {
			s.note("note: the keys of source %s cannot be read, so they are not tried", name)
			continue
		}
		for _, v := range verifiers {
			all = append(all, sourceKeys{name, v.Keys})
		}
	}
	return all, nil
}

// nameSource adds whose key it was: the library knows keys, and no sources.
func nameSource(v *verify.Verifier, r verify.Request, e *verify.Explanation, others []sourceKeys) {
	foreign := func(c verify.Cause) bool { return c.Code == "key_other_source" }
	i := slices.IndexFunc(e.Causes, foreign)
	if i < 0 {
		return
	}
	for _, other := range others {
		if slices.ContainsFunc(v.Explain(r, other.keys).Causes, foreign) {
			e.Causes[i].Text += " (source " + other.source + ")"
			return
		}
	}
}

// expected is the header that the request should have had. Only who holds the key
// is asked for it, so it tells nothing new; it is made as any request is signed.
func expected(v *verify.Verifier, r verify.Request, e verify.Explanation) (string, error) {
	recipe := v.Scheme.Recipe()
	if recipe.Algo == "token" || recipe.Algo == "basic" {
		return "", fmt.Errorf("with %s it is the secret itself", recipe.Algo)
	}
	bare := r
	bare.Header = r.Header.Clone()
	for _, name := range slices.Concat(signedHeaders(recipe), []string{recipe.Signature.Name}, recipe.Signature.Names) {
		for got := range bare.Header {
			if strings.EqualFold(got, name) {
				delete(bare.Header, got)
			}
		}
	}
	options := verify.SignOptions{DeliveryID: e.DeliveryID}
	if e.Timestamp != "" {
		options.Time = v.Now().Add(e.Distance)
	}
	for _, k := range v.Keys.Keys() {
		if k.ID == e.KeyID || k.ID == "" || e.KeyID == "" {
			k.NotBefore, k.NotAfter = time.Time{}, time.Time{}
			if k.ID == "" {
				k.ID = e.KeyID
			}
			options.Key = k
			break
		}
	}
	if options.Key.Secret.IsZero() {
		return "", fmt.Errorf("the key that the request names is not there")
	}
	added, err := v.Sign(bare, options)
	if err != nil {
		return "", err
	}
	if t := recipe.Timestamp; t != nil {
		if name, ok := strings.CutPrefix(t.From, "header:"); ok && added.Get(name) != e.Timestamp {
			return "", fmt.Errorf("the timestamp is not as the scheme writes it")
		}
	}
	name := cmp.Or(append([]string{recipe.Signature.Name}, recipe.Signature.Names...)...)
	return name + ": " + added.Get(name), nil
}
