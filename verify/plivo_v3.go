package verify

import (
	"net/http"
	"strconv"
	"strings"
)

const (
	plivoSignature = "X-Plivo-Signature-V3"
	plivoNonce     = "X-Plivo-Signature-V3-Nonce"
)

// plivoV3 is code:plivo-v3: base64 of HMAC-SHA256, a list, one for each auth token of
// the account. Signed are the URL with its query sorted, the fields of the form, sorted
// and joined by nothing, and a nonce: nothing says when. A GET has all in the query.
//
// Source: github.com/plivo/plivo-go, utils.go, and plivo-python, signature_v3.py. They
// differ on escapes in the query; decoded, as in Python and Java, is what Plivo's GET
// requests need. No single value but the nonce is called signed: each may hold what
// joins it to the next, and so be cut in another place.
var plivoV3 = coder{
	algo: "hmac-sha256", compile: compilePlivo,
	covers: func(_ *builder, v *place) bool { return v.kind == placeHeader && strings.EqualFold(v.name, plivoNonce) },
	signs:  []string{"URL", "form", "nonce"}, part: "form_sorted",
	open: openPlivo, sign: signPlivo,
}

func compilePlivo(b *builder) error {
	err := b.signatureOf(&SignatureRecipe{Name: plivoSignature, ListSep: ",", Encoding: "base64"})
	if err != nil {
		return err
	}
	_, err = b.slot(plivoNonce, true)
	b.p.needsURL = true
	return err
}

// plivoRequest holds the signed text once it is known.
type plivoRequest struct {
	nonce string
	text  []byte
}

func openPlivo(c *check) *Error {
	// A dot stands between the form and the nonce. With one in the nonce, the form
	// could be cut short at any dot of its own.
	nonce, _, _ := headerValue(c.r.Header, plivoNonce)
	if strings.Contains(nonce, ".") {
		return c.fail(ReasonSignatureMalformed, plivoNonce)
	}
	c.coded = &plivoRequest{nonce: nonce}
	return c.signature()
}

func (r *plivoRequest) read(c *check) *Error {
	text, err := c.plivoText(r.nonce)
	r.text = []byte(text)
	return err
}

func (r *plivoRequest) fits(c *check, k *Key) bool {
	return c.candidateIs(k.mac(c.p.algo.hash, r.text))
}

func (r *plivoRequest) claims(*check) *Error { return nil }

func (c *check) plivoText(nonce string) (string, *Error) {
	full, fault := c.urlToken(partURL)
	if fault != nil {
		return "", fault
	}
	query, err := formPairs(rawQuery(full))
	if err != nil {
		return "", c.fail(ReasonBodyUnparsable, "query")
	}
	form, err := formPairs(string(c.r.Body))
	if err != nil {
		return "", c.fail(ReasonBodyUnparsable, "form")
	}
	if c.r.Method == http.MethodGet {
		query, form = append(query, form...), nil
	}
	text, _, _ := strings.Cut(full, "?")
	if len(query)+len(form) > 0 {
		text += "?"
	}
	text += joinPairs(query, "=", "&")
	if len(query) > 0 && len(form) > 0 {
		text += "."
	}
	return text + joinPairs(form, "", "") + "." + nonce, nil
}

// signPlivo makes the nonce of the time where the request has none.
func signPlivo(c *check, k *Key, _ SignOptions) (Request, error) {
	nonce, there, err := headerValue(c.r.Header, plivoNonce)
	if !there && err == nil {
		nonce = strconv.FormatInt(c.now.UnixNano(), 10)
		c.addHeader(plivoNonce, nonce)
	}
	text, fault := c.plivoText(nonce)
	if fault != nil {
		return Request{}, fault
	}
	c.addHeader(plivoSignature, c.p.signature.encode(k.mac(c.p.algo.hash, []byte(text))))
	return c.r, nil
}
