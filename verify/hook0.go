package verify

import (
	"cmp"
	"encoding/hex"
	"strings"
)

// Hook0 signs the time and the body (v0), or between them the names and values of
// the headers that the signature lists under h (v1), by HMAC-SHA256 in hex. Of the
// two the stronger counts alone: who could choose would choose the weaker.
//
// Values are joined by dots, so from the first that holds one on, where a value ends
// and the next or the body begins can be moved. A delivery id there is not called
// signed. Nor does anything tell a code of v1 from one of v0 over a body that begins
// with the names and values.
//
// Source: github.com/hook0/hook0, clients/go/signature.go.
var hook0 = coder{
	algo:    "hmac-sha256",
	fields:  []string{"header", "tolerance_s"},
	compile: compileHook0,
	covers:  func(_ *builder, v *place) bool { return v.kind == placeSig },
	signs:   []string{"timestamp", "listed headers", "body"},
	open:    openHook0,
	sign:    signHook0,
}

func compileHook0(b *builder) error {
	name := cmp.Or(b.r.Header, "X-Hook0-Signature")
	if !validHeaderName(name) {
		return wrongf("header", "%q is no header name", name)
	}
	window, err := b.codeWindow(defaultTolerance)
	if err != nil {
		return err
	}
	if err := b.signatureOf(&SignatureRecipe{Name: name, ListSep: ",", KVSep: "=", Tags: []string{"v1", "v0"}}); err != nil {
		return err
	}
	b.p.fields = []string{"t"}
	b.p.timestamp = &timestampSpec{from: place{kind: placeSig, name: "t"}, window: window, stage: stageCode}
	b.p.bodySigned = true
	return nil
}

// hook0Request is what stands before the body in the signed text.
type hook0Request struct{ head []byte }

func openHook0(c *check) *Error {
	h, strong, err := c.hook0Items()
	if err != nil {
		return err
	}
	if err := c.decodable(); err != nil {
		return err
	}
	t := c.fields[0]
	if t == "" {
		return c.fail(ReasonHeaderMissing, "sig:t")
	}
	r := &hook0Request{head: []byte(t + ".")}
	c.coded = r
	if strong {
		if r.head, err = c.hook0Head(t, h); err != nil {
			return err
		}
	}
	return c.judge(t)
}

// hook0Items finds t, the names of headers, and the candidates: those of v1 if there
// is one, else those of v0.
func (c *check) hook0Items() (h string, strong bool, err *Error) {
	var codes [2][]string
	seen := false
	for _, line := range c.lines[c.p.signature.places[0].slot] {
		if c.sigBytes += len(line); c.sigBytes > maxSignature {
			return "", false, c.malformed()
		}
		for item := range strings.SplitSeq(line, ",") {
			if item = strings.Trim(item, " \t"); item == "" {
				continue
			}
			tag, value, ok := strings.Cut(item, "=")
			switch {
			case !ok:
				return "", false, c.malformed()
			case tag == "t" && c.fieldSeen != 0, tag == "h" && seen:
				return "", false, c.fail(ReasonHeaderDuplicated, "sig:"+tag)
			case tag == "t":
				c.fields[0], c.fieldSeen = value, 1
			case tag == "h":
				h, seen = value, true
			case tag == "v0":
				codes[0] = append(codes[0], value)
			case tag == "v1":
				codes[1] = append(codes[1], value)
			}
		}
	}
	chosen := codes[0]
	if strong = len(codes[1]) > 0; strong {
		chosen = codes[1]
	}
	if len(chosen) > maxCandidates {
		return "", false, c.malformed()
	}
	c.count = copy(c.candidates[:], chosen)
	return h, strong, nil
}

// hook0Head is what v1 signs before the body.
func (c *check) hook0Head(t, h string) ([]byte, *Error) {
	var names, values []string
	if h != "" {
		var ok bool
		var err *Error
		// A dot in a name would end the list early, and what follows would be a value.
		if names, ok = nameList(h, " "); !ok || strings.Contains(h, ".") {
			return nil, c.malformed()
		}
		if values, err = c.namedHeaders(names); err != nil {
			return nil, err
		}
	}
	certain := 0
	for certain < len(values) && !strings.Contains(values[certain], ".") {
		certain++
	}
	c.cover(names[:certain])
	return []byte(t + "." + strings.Join(names, " ") + "." + strings.Join(values, ".") + "."), nil
}

func (*hook0Request) read(*check) *Error { return nil }

func (r *hook0Request) fits(c *check, k *Key) bool {
	return c.candidateIs(k.mac(c.p.algo.hash, r.head, c.r.Body))
}

func (*hook0Request) claims(*check) *Error { return nil }

// signHook0 covers the header of the delivery id, where the recipe names one.
func signHook0(c *check, key *Key, _ SignOptions) (Request, error) {
	t := c.p.timestamp.format.format(c.now)
	head, before, tag := []byte(t+"."), "t="+t, ",v0="
	if id := c.p.id; id != nil && id.template == nil && id.from[0].kind == placeHeader {
		h := strings.ToLower(id.from[0].name)
		var err *Error
		if head, err = c.hook0Head(t, h); err != nil {
			return Request{}, err
		}
		before, tag = before+",h="+h, ",v1="
	}
	sum := key.mac(c.p.algo.hash, head, c.r.Body)
	c.addHeader(c.p.signature.places[0].name, before+tag+hex.EncodeToString(sum))
	return c.r, nil
}
