package verify

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
)

// Twilio signs the URL and, of a form, names and values, sorted by name, each value
// of a name once, joined by nothing; by HMAC-SHA1 in base64. Another body is covered
// by its SHA-256, which then stands in the URL as bodySHA256.
//
// Its servers do not agree on how a URL is written: with or without the port, and
// with the query escaped or not. So five spellings are tried.
//
// Where a value of the form begins and ends is not signed, so none is called signed.
//
// Source: github.com/twilio/twilio-node, src/webhooks/webhooks.ts.
var twilio = coder{
	algo:    "hmac-sha1",
	compile: compileTwilio,
	signs:   []string{"URL", "form"}, part: "form_sorted",
	open: openTwilio,
	sign: signTwilio,
}

const twilioSignature = "X-Twilio-Signature"

func compileTwilio(b *builder) error {
	b.p.needsURL = true
	if err := b.signatureOf(&SignatureRecipe{Name: twilioSignature, Encoding: "base64"}); err != nil {
		return err
	}
	_, err := b.slot("Content-Type", false)
	return err
}

type twilioRequest struct {
	urls   []string
	pairs  []byte
	intact bool // the body is the one that the URL names
}

func openTwilio(c *check) *Error {
	c.coded = &twilioRequest{}
	return c.signature()
}

func (r *twilioRequest) read(c *check) *Error {
	url, err := c.urlToken(partURL)
	if err != nil {
		return err
	}
	r.urls = twilioURLs(url)
	want, named, fault := formValue(rawQuery(url), "bodySHA256")
	switch {
	case fault == errFieldTwice:
		return c.fail(ReasonHeaderDuplicated, "query:bodySHA256")
	case fault != nil:
		return c.fail(ReasonBodyUnparsable, "query")
	case named:
		sum := sha256.Sum256(c.r.Body)
		r.intact = hmac.Equal([]byte(hex.EncodeToString(sum[:])), []byte(want))
		return nil
	}
	r.intact = true
	if !c.isForm() {
		return c.fail(ReasonNotCovered, "body")
	}
	pairs, fault := formPairs(string(c.r.Body))
	if fault != nil {
		return c.fail(ReasonBodyUnparsable, "form")
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.value, b.value))
	})
	for _, p := range slices.Compact(pairs) {
		r.pairs = append(append(r.pairs, p.name...), p.value...)
	}
	return nil
}

func (r *twilioRequest) fits(c *check, k *Key) bool {
	fits := false
	for _, url := range r.urls {
		equal := c.candidateIs(k.mac(c.p.algo.hash, []byte(url), r.pairs))
		fits = fits || equal
	}
	return fits && r.intact
}

func (*twilioRequest) claims(*check) *Error { return nil }

// twilioURLs are the spellings of a URL: as it is; then without and with its port,
// the query as it is and escaped.
func twilioURLs(url string) []string {
	all := []string{url}
	scheme, rest, _ := strings.Cut(url, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	without, with := host, host
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexAny(host, "@]") {
		without = host[:i]
	} else if scheme == "https" {
		with += ":443"
	} else {
		with += ":80"
	}
	before, query, _ := strings.Cut(path, "?")
	escaped := path
	if query != "" {
		escaped = before + "?" + escape(query, "!$%&()*+,-./:;=?@[\\]^_`{|}~")
	}
	for _, p := range []string{path, escaped} {
		for _, h := range []string{without, with} {
			if u := scheme + "://" + h + p; !slices.Contains(all, u) {
				all = append(all, u)
			}
		}
	}
	return all
}

// signTwilio writes the hash of a body that is no form into the URL.
func signTwilio(c *check, key *Key, _ SignOptions) (Request, error) {
	if !c.isForm() && !strings.Contains(rawQuery(c.r.URL), "bodySHA256=") {
		if strings.Contains(c.v.URL, "?") {
			return Request{}, errors.New("the public URL has a query of its own, so there is no place for the hash of the body")
		}
		sep := "?"
		if strings.Contains(c.r.URL, "?") {
			sep = "&"
		}
		sum := sha256.Sum256(c.r.Body)
		c.r.URL += sep + "bodySHA256=" + hex.EncodeToString(sum[:])
	}
	r := &twilioRequest{}
	if err := r.read(c); err != nil {
		return Request{}, err
	}
	sum := key.mac(c.p.algo.hash, []byte(r.urls[0]), r.pairs)
	c.addHeader(twilioSignature, base64.StdEncoding.EncodeToString(sum))
	return c.r, nil
}
