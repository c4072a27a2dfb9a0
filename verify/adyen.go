package verify

import (
	"crypto/hmac"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// Adyen signs eight fields of each item of a notification, joined by colons, by
// HMAC-SHA256 in base64; the signature stands in the item. The rest of the body is
// not signed.
//
// A colon in a field is not escaped, so where one ends could be moved. The reference
// is the merchant's and may hold one; in the seven others, which Adyen makes, none is
// let stand.
//
// Source: github.com/Adyen/adyen-node-api-library, src/utils/hmacValidator.ts.
var adyen = coder{
	algo:     "hmac-sha256",
	encoding: "hex",
	compile:  compileAdyen,
	covers:   coversAdyen,
	signs:    []string{"eight fields of each item"}, part: "eight fields of each item",
	open: func(c *check) *Error { c.coded = &adyenRequest{}; return nil },
	sign: signAdyen,
}

// adyenReference is the field that may hold colons.
const adyenReference = "merchantReference"

var adyenFields = [...][]string{
	{"pspReference"}, {"originalReference"}, {"merchantAccountCode"}, {adyenReference},
	{"amount", "value"}, {"amount", "currency"}, {"eventCode"}, {"success"},
}

// maxAdyenItems are found in one scan. Adyen sends one in JSON.
const maxAdyenItems = maxTargets / (len(adyenFields) + 1)

func adyenPath(item int, field ...string) []string {
	return append([]string{"notificationItems", strconv.Itoa(item), "NotificationRequestItem"}, field...)
}

func compileAdyen(b *builder) error {
	return b.signatureOf(&SignatureRecipe{
		In: "json", Name: strings.Join(adyenPath(0, "additionalData", "hmacSignature"), "."), Encoding: "base64",
	})
}

func coversAdyen(_ *builder, v *place) bool {
	if v.kind != placeJSON || len(v.path) < 4 {
		return false
	}
	for _, field := range adyenFields {
		if slices.Equal(v.path, adyenPath(arrayIndex(v.path[1]), field...)) {
			return true
		}
	}
	return false
}

// adyenRequest has the signed text of each item; the candidates are their signatures.
type adyenRequest struct{ texts []string }

func (r *adyenRequest) read(c *check) *Error {
	signatures, err := r.scan(c)
	if err != nil {
		return err
	}
	for _, t := range signatures {
		if t.kind != jsonString || t.found == "" {
			return c.fail(ReasonSignatureMissing, "json:"+strings.Join(t.path, "."))
		}
		if !c.p.signature.spelled(t.found) {
			return c.fail(ReasonSignatureMalformed, "json:"+strings.Join(t.path, "."))
		}
		c.candidates[c.count] = t.found
		c.count++
	}
	return nil
}

// scan makes the texts, and finds where the signatures are or belong.
func (r *adyenRequest) scan(c *check) (signatures []jsonTarget, err *Error) {
	items, fault := adyenItems(c.r.Body)
	switch {
	case fault != nil:
		return nil, c.fail(ReasonBodyUnparsable, "json:notificationItems")
	case items == 0:
		return nil, c.fail(ReasonSignatureMissing, c.p.signature.places[0].String())
	case items > maxAdyenItems:
		return nil, c.malformed()
	}
	var targets []jsonTarget
	for i := range items {
		for _, field := range adyenFields {
			targets = append(targets, jsonTarget{path: adyenPath(i, field...)})
		}
		targets = append(targets, jsonTarget{path: adyenPath(i, "additionalData", "hmacSignature")})
	}
	jsonScanSigned(c.r.Body, targets)
	var fields []string
	for i := range targets {
		t := &targets[i]
		switch moved := strings.Contains(t.found, ":") && t.path[len(t.path)-1] != adyenReference; {
		case t.err == nil && t.kind != jsonOther && len(fields) == len(adyenFields):
			signatures = append(signatures, *t)
			r.texts = append(r.texts, strings.Join(fields, ":"))
			fields = fields[:0]
			continue
		case t.err != nil, t.kind == jsonOther, moved:
			return nil, c.fail(ReasonBodyUnparsable, "json:"+strings.Join(t.path, "."))
		case t.kind == jsonNull:
			t.found = ""
		}
		fields = append(fields, t.found)
	}
	return signatures, nil
}

// adyenItems counts the items, up to one more than are read.
func adyenItems(body []byte) (int, error) {
	var targets [maxAdyenItems + 1]jsonTarget
	for i := range targets {
		targets[i].path = []string{"notificationItems", strconv.Itoa(i)}
	}
	jsonScanSigned(body, targets[:])
	for i := range targets {
		if targets[i].err != nil || targets[i].kind == jsonAbsent {
			return i, targets[i].err
		}
	}
	return len(targets), nil
}

// fits wants every item to be signed with the same key.
func (r *adyenRequest) fits(c *check, k *Key) bool {
	fits := len(r.texts) > 0
	for i, text := range r.texts {
		var buf [maxDigest]byte
		equal := hmac.Equal(k.mac(c.p.algo.hash, []byte(text)), c.p.signature.decode(buf[:0], c.candidates[i]))
		fits = fits && equal
	}
	return fits
}

func (*adyenRequest) claims(*check) *Error { return nil }

// signAdyen writes a signature into each item.
func signAdyen(c *check, key *Key, _ SignOptions) (Request, error) {
	r := &adyenRequest{}
	signatures, err := r.scan(c)
	if err != nil {
		return Request{}, err
	}
	for i, t := range signatures {
		p := place{kind: placeJSON, name: strings.Join(t.path, "."), path: t.path}
		if t.kind != jsonAbsent {
			return Request{}, c.fail(ReasonHeaderDuplicated, p.String())
		}
		sum := key.mac(c.p.algo.hash, []byte(r.texts[i]))
		if err := c.r.insert(&p, base64.StdEncoding.EncodeToString(sum)); err != nil {
			return Request{}, err
		}
	}
	return c.r, nil
}
