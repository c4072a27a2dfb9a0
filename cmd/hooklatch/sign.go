package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

func signCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "sign",
		Usage: "make the signature headers of a request",
		Description: example("Print the headers that sign a body, to add to the request. The body is taken byte for\n"+
			"byte. What verify would refuse is not signed. Where the signature lies in the body or the\n"+
			"URL, --output request prints the whole. Of a pair the private key signs.",
			"hooklatch sign --scheme zhisou-v1 --secret-file k1=keys/billing-1 --body event.json",
			"hooklatch sign -c hooklatch.yaml --source billing --body event.json --url http://127.0.0.1:8080/in/billing --output curl"),
		Flags: append(append(requestFlags(), schemeFlags()...),
			&cli.StringFlag{Name: "id", Usage: "delivery `ID`; a new one if left out"},
			&cli.StringFlag{Name: "timestamp", Usage: "time in `UNIX` seconds; now if left out"},
			&cli.StringFlag{Name: "output", Value: "headers", Usage: "print headers, the whole request or a curl line: `KIND` is headers, request or curl"},
			jsonFlag()),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return sign(c.Context, s, signOptions{
				scheme: readSchemeOptions(c).signing(), request: readRequestOptions(c),
				id: c.String("id"), timestamp: c.String("timestamp"), output: c.String("output"), json: c.Bool("json"),
			})
		},
	}
}

func signOutputs() []string { return []string{"headers", "request", "curl"} }

type signOptions struct {
	scheme        schemeOptions
	request       requestOptions
	id, timestamp string
	output        string
	json          bool
}

// signature is the JSON of sign.
type signature struct {
	V          int         `json:"v"`
	Scheme     string      `json:"scheme"`
	KeyID      string      `json:"key_id"`
	DeliveryID string      `json:"delivery_id"`
	Timestamp  string      `json:"timestamp"`
	BodyHash   string      `json:"body_sha256"`
	Headers    http.Header `json:"headers"`
	// Of schemes that sign in the body or the URL.
	URL  string `json:"url,omitempty"`
	Body []byte `json:"body_base64,omitempty"`
}

func sign(ctx context.Context, s *stdio, o signOptions) error {
	if !slices.Contains(signOutputs(), o.output) {
		return usagef("--output curl", "unknown output %q: %s are known", o.output, listed(signOutputs()))
	}
	at, err := parseUnix("--timestamp", o.timestamp)
	if err != nil {
		return err
	}
	all, r, err := readSigned(ctx, s, o.scheme, o.request)
	if err != nil {
		return err
	}
	v := all[0]
	if r.Header.Get("Content-Type") == "" && o.output != "headers" && !o.json {
		// Before signing: Twilio signs a form otherwise than other bodies.
		r.Header.Set("Content-Type", contentType(r.Body, sampleOf(v.Scheme, "", time.Now())))
	}
	signed, err := signRequest(v, r, verify.SignOptions{DeliveryID: o.id, Time: at})
	if err != nil {
		return err
	}
	added := addedHeader(r, signed)
	inHeaders := signed.URL == r.URL && bytes.Equal(signed.Body, r.Body)
	if o.json {
		return printJSON(s.out, describeSignature(v, signed, added, inHeaders))
	}
	if o.output == "headers" {
		if !inHeaders {
			return usagef("--output request, or --output curl", "sign: %s signs in the body or the URL: headers alone do not carry it", title(v.Scheme))
		}
		return writeHeader(s.out, added)
	}
	if o.output == "request" {
		signed.URL = cmp.Or(signed.URL, "http://localhost/")
		return writeRequest(s.out, signed)
	}
	return o.curl(s, signed, bytes.Equal(signed.Body, r.Body))
}

// curl prints a line that sends the request, to the source where there is one.
func (o signOptions) curl(s *stdio, r verify.Request, sameBody bool) error {
	host := ""
	if r.URL == "" {
		if o.scheme.source == "" {
			return usagef("--url URL", "sign: to which URL shall curl send it?")
		}
		c, err := readConfig(o.scheme.config)
		if err != nil {
			return err
		}
		to, err := c.sourceTarget(o.scheme.source)
		if err != nil {
			return err
		}
		r.URL, host = to.url, to.host
	}
	file := ""
	if sameBody && o.request.body != "-" {
		file = o.request.body
	}
	_, err := fmt.Fprintln(s.out, curlLine(r, host, file))
	return err
}

// addedHeader is what signing has added to the header.
func addedHeader(before, after verify.Request) http.Header {
	added := http.Header{}
	for name, values := range after.Header {
		if !slices.Equal(values, before.Header[name]) {
			added[name] = values
		}
	}
	return added
}

// signRequest signs with the newest active key, under a new delivery id where
// none is given and the scheme has a header for one.
func signRequest(v *verify.Verifier, r verify.Request, o verify.SignOptions) (verify.Request, error) {
	if o.DeliveryID == "" {
		o.DeliveryID = newDeliveryID()
	}
	signed, err := v.SignRequest(r, o)
	switch {
	case err == nil:
		return signed, nil
	case o.Key.Secret.IsZero() && noneActive(v.Keys.Keys(), o.Time):
		return signed, outsideSpan(v.Keys.Keys(), o.Time)
	case errors.Is(err, verify.ErrNoSigner):
		return signed, usagef(noSigner(v.Scheme), "sign: %s", withoutPackage(err))
	case v.Scheme.UsesKeyID() && o.Key.ID == "" && slices.ContainsFunc(v.Keys.Keys(), func(k verify.Key) bool { return k.ID == "" }):
		return signed, usagef("--secret-file ID=FILE", "sign: %s", withoutPackage(err))
	}
	var refusal *verify.Error
	if errors.As(err, &refusal) {
		return signed, usagef(whole(v.Scheme), "sign: it would be refused: %s", withoutPackage(err))
	}
	return signed, usagef(whole(v.Scheme), "sign: %s", withoutPackage(err))
}

// whole says where a request stands that has all that a scheme looks for.
func whole(scheme verify.Scheme) string {
	if _, preset := verify.Preset(scheme.Name()); !preset {
		return ""
	}
	return "hooklatch schemes " + scheme.Name() + "   shows a request with all that the scheme looks for"
}

// noSigner says what helps where nothing can be signed.
func noSigner(scheme verify.Scheme) string {
	if signingSpec(scheme).Encoding == "pem" {
		return "the private key as PEM: hooklatch keygen --scheme " + scheme.Name() + " -o FILE   makes a pair"
	}
	return ""
}

// noneActive says whether no key is valid at that time, now where it is zero.
func noneActive(keys []verify.Key, at time.Time) bool {
	if at.IsZero() {
		at = time.Now()
	}
	return !slices.ContainsFunc(keys, func(k verify.Key) bool { return k.Active(at) })
}

// outsideSpan says of keys that are not valid at that time when they are.
func outsideSpan(keys []verify.Key, at time.Time) error {
	if at.IsZero() {
		at = time.Now()
	}
	var spans []string
	try := "a key that is valid then"
	for _, k := range keys {
		if at.Before(k.NotBefore) {
			spans = append(spans, fmt.Sprintf("key %s is valid from %s", k.ID, k.NotBefore.UTC().Format(time.RFC3339)))
			try = fmt.Sprintf("another --key-id, or hooklatch sign --timestamp %d   as it will be signed then", k.NotBefore.Unix())
		} else {
			spans = append(spans, fmt.Sprintf("key %s was valid until %s", k.ID, k.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return usagef(try, "sign: no key is valid at that time: %s", listed(spans))
}

// newDeliveryID returns an id that sorts by time.
func newDeliveryID() string {
	id, err := uuid.NewV7()
	if err != nil {
		id = uuid.New()
	}
	return "dlv_" + id.String()
}

// describeSignature reads back what was signed, as the receiver will.
func describeSignature(v *verify.Verifier, r verify.Request, added http.Header, inHeaders bool) signature {
	sum := sha256.Sum256(r.Body)
	result := signature{V: 1, Scheme: v.Scheme.Name(), BodyHash: hex.EncodeToString(sum[:]), Headers: added}
	if !inHeaders {
		result.URL, result.Body = r.URL, r.Body
	}
	if e, err := v.Verify(r); err == nil {
		result.KeyID, result.DeliveryID, result.Timestamp = e.KeyID, e.DeliveryID, e.Timestamp
	}
	return result
}

func writeHeader(w io.Writer, header http.Header) error {
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			if _, err := fmt.Fprintf(w, "%s: %s\n", name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRequest writes the raw request that verify --request reads.
func writeRequest(w io.Writer, r verify.Request) error {
	target, host := "/", ""
	if u, err := url.Parse(r.URL); err == nil && r.URL != "" {
		target, host = u.RequestURI(), u.Host
	}
	fmt.Fprintf(w, "%s %s HTTP/1.1\n", r.Method, target)
	if host != "" {
		fmt.Fprintf(w, "Host: %s\n", host)
	}
	header := r.Header.Clone()
	header.Set("Content-Length", fmt.Sprint(len(r.Body)))
	if err := writeHeader(w, header); err != nil {
		return err
	}
	_, err := w.Write(append([]byte("\n"), r.Body...))
	return err
}
