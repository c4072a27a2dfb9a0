package verify

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Contentful signs a canonical request: method, path with query, the headers that
// x-contentful-signed-headers names, and the body, by HMAC-SHA256 in hex.
//
// Source: github.com/contentful/node-apps-toolkit, src/requests.
var contentful = coder{
	algo:    "hmac-sha256",
	fields:  []string{"tolerance_s"},
	compile: compileContentful,
	covers:  func(b *builder, v *place) bool { return v.kind == placeHeader && v.slot == b.p.timestamp.from.slot },
	signs:   []string{"method", "path", "timestamp", "listed headers", "body"},
	open:    openContentful,
	sign:    signContentful,
}

const (
	contentfulSignature = "x-contentful-signature"
	contentfulNames     = "x-contentful-signed-headers"
	contentfulTime      = "x-contentful-timestamp"
)

func compileContentful(b *builder) error {
	if err := b.signatureOf(&SignatureRecipe{Name: contentfulSignature, Encoding: "hex"}); err != nil {
		return err
	}
	if _, err := b.slot(contentfulNames, true); err != nil {
		return err
	}
	slot, err := b.slot(contentfulTime, true)
	if err != nil {
		return err
	}
	window, err := b.codeWindow(30 * time.Second)
	if err != nil {
		return err
	}
	from := place{kind: placeHeader, name: contentfulTime, slot: slot}
	b.p.timestamp = &timestampSpec{from: from, format: unixMillis, window: window}
	b.p.bodySigned, b.p.needsURL = true, true
	return nil
}

type contentfulRequest struct {
	headers string   // name:value joined by semicolons
	heads   [][]byte // what stands before the body, one for each spelling of the path
}

func openContentful(c *check) *Error {
	if err := c.signature(); err != nil {
		return err
	}
	r := &contentfulRequest{}
	c.coded = r
	list, _, _ := headerValue(c.r.Header, contentfulNames)
	names, ok := nameList(list, ",")
	if !ok {
		return c.fail(ReasonSignatureMalformed, contentfulNames)
	}
	// A list without itself could be shortened, and one without the time is forever.
	for _, name := range []string{contentfulNames, contentfulTime} {
		if !slices.Contains(names, name) {
			return c.fail(ReasonNotCovered, name)
		}
	}
	return r.name(c, names)
}

func (r *contentfulRequest) name(c *check, names []string) *Error {
	slices.Sort(names)
	values, err := c.namedHeaders(names)
	if err != nil {
		return err
	}
	c.cover(names)
	for i, name := range names {
		for _, other := range names { // which the value would then hold, or its neighbour
			if strings.Contains(values[i], ";"+other+":") {
				return c.fail(ReasonSignatureMalformed, name)
			}
		}
		values[i] = name + ":" + strings.TrimSpace(values[i])
	}
	r.headers = strings.Join(values, ";")
	return nil
}

func (r *contentfulRequest) read(c *check) *Error {
	if c.r.Method == "" {
		return c.fail(ReasonHeaderMissing, "method")
	}
	path, err := c.urlToken(partPathQuery)
	if err != nil {
		return err
	}
	// The toolkit escapes a path once more; other code of the sender does not.
	for _, p := range []string{path, escapedAgain(path)} {
		head := []byte(c.r.Method + "\n" + p + "\n" + r.headers + "\n")
		if len(r.heads) == 0 || p != path {
			r.heads = append(r.heads, head)
		}
	}
	return nil
}

func (r *contentfulRequest) fits(c *check, k *Key) bool {
	fits := false
	for _, head := range r.heads {
		equal := c.candidateIs(k.mac(c.p.algo.hash, head, c.r.Body))
		fits = fits || equal
	}
	return fits
}

func (*contentfulRequest) claims(*check) *Error { return nil }

// escapedAgain is encodeURI of a path, with the query escaped as one component
// before. Of two question marks the second ends the query there; here it does not,
// and such a request is refused, since something in it would not be signed.
func escapedAgain(path string) string {
	path, query, ok := strings.Cut(path, "?")
	if ok {
		path += "?" + escape(query, "-_.!~*'()")
	}
	return escape(path, "-_.!~*'();/?:@&=+$,#")
}

// escape writes every byte that is no letter, no digit and not in safe as %XX.
func escape(s, safe string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func signContentful(c *check, key *Key, _ SignOptions) (Request, error) {
	names := []string{contentfulNames, contentfulTime}
	if _, ok, _ := headerValue(c.r.Header, "x-contentful-topic"); ok {
		names = append(names, "x-contentful-topic")
	}
	c.addHeader(contentfulNames, strings.Join(names, ","))
	r := &contentfulRequest{}
	if err := r.name(c, names); err != nil {
		return Request{}, err
	}
	if err := r.read(c); err != nil {
		return Request{}, err
	}
	head := r.heads[len(r.heads)-1] // the toolkit knows its own spelling alone
	c.addHeader(contentfulSignature, hex.EncodeToString(key.mac(c.p.algo.hash, head, c.r.Body)))
	return c.r, nil
}
