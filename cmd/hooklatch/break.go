package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// breakKind is a way to spoil a delivery.
type breakKind struct {
	name, help string
	make       func(d *delivery) ([]*exchange, error)
}

func breakKinds() []breakKind {
	return []breakKind{
		{"body", "one byte of the body changes after signing: 401", (*delivery).breakBody},
		{"clock", "signed 1,000 seconds ago, longer where the window is wider: 401", (*delivery).breakClock},
		{"key", "a key id that nobody knows: 401", (*delivery).breakKey},
		{"sig", "one digit of the signature differs: 401", (*delivery).breakSignature},
		{"id", "a delivery id that breaks the grammar: 400", (*delivery).breakID},
		{"dup", "the same sent twice: 2xx, 2xx", (*delivery).sendTwice},
		{"conflict", "the same id with another body: 2xx, 409", (*delivery).sendOther},
		{"revision", "revisions 1 and 3 of a resource: 2xx, 2xx, and 3 is held under ordering strict", (*delivery).skipRevision},
		{"big", "one byte more than the source takes: 413", (*delivery).breakSize},
	}
}

func breakNames() []string {
	var names []string
	for _, k := range breakKinds() {
		names = append(names, k.name)
	}
	return names
}

func breakHelp() string {
	var lines []string
	for _, k := range breakKinds() {
		lines = append(lines, fmt.Sprintf("   %-9s %s", k.name, k.help))
	}
	return strings.Join(lines, "\n")
}

func findBreak(name string) *breakKind {
	for _, k := range breakKinds() {
		if k.name == name {
			return &k
		}
	}
	return nil
}

// plan makes the requests to send.
func (d *delivery) plan(fault string) ([]*exchange, error) {
	if fault == "" {
		return one(d.sign())
	}
	return findBreak(fault).make(d)
}

func one(x *exchange, err error) ([]*exchange, error) {
	if err != nil {
		return nil, err
	}
	return []*exchange{x}, nil
}

// wants sets the one status that is expected.
func (x *exchange) wants(status int) *exchange {
	x.expect = func(got int) bool { return got == status }
	x.wanted = fmt.Sprint(status)
	return x
}

// noPart is the answer where the scheme has nothing to spoil in that way.
func (d *delivery) noPart(what string) error {
	return usagef("another --break, or another scheme", "send: scheme %s has no %s", d.v.Scheme.Name(), what)
}

// refused is what the receiver would refuse x for, as far as we know it; empty: it
// would not.
func (d *delivery) refused(x *exchange) verify.Reason {
	_, err := d.v.Verify(verify.Request{Method: http.MethodPost, URL: x.url, Header: x.header, Body: x.body})
	var refusal *verify.Error
	if errors.As(err, &refusal) {
		return refusal.Reason
	}
	return ""
}

// wantsRefusal expects the answer to failures of key and signature.
func (x *exchange) wantsRefusal(d *delivery) *exchange {
	return x.wants(cmp.Or(d.to.refusal, d.ack().RefusalStatus, http.StatusUnauthorized))
}

// ack is how the scheme's sender is answered.
func (d *delivery) ack() verify.Ack {
	if ack := d.v.Scheme.Recipe().Ack; ack != nil {
		return *ack
	}
	return verify.Ack{}
}

func (d *delivery) breakBody() ([]*exchange, error) {
	x, err := d.sign()
	if err != nil {
		return nil, err
	}
	if len(d.body) == 0 {
		return nil, usagef("--body FILE", "send: the body is empty: there is no byte to change")
	}
	signed := x.body
	// What signing has put into the body is no part of what was signed.
	begin := commonPrefix(signed, d.body)
	end := len(signed) - (len(d.body) - begin)
	for at, tries := len(signed)-1, 0; at >= 0 && tries < 256; at-- {
		// A letter or digit, so that only the signature can tell.
		if c := signed[at]; at >= begin && at < end || !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			continue
		}
		tries++
		x.body = bytes.Clone(signed)
		x.body[at] ^= 1
		if d.refused(x) == verify.ReasonSignatureMismatch {
			return []*exchange{x.wantsRefusal(d)}, nil
		}
	}
	return nil, d.noPart("signature over the body")
}

func commonPrefix(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (d *delivery) breakClock() ([]*exchange, error) {
	ago := 1000 * time.Second
	if window := cmp.Or(d.v.Tolerance, d.v.Scheme.Tolerance()); window >= ago {
		ago += window
	}
	late := *d
	late.at = time.Now().Add(-ago)
	late.sample()
	x, err := late.sign()
	if err != nil {
		return nil, err
	}
	if d.refused(x) != verify.ReasonTimestampOutOfWindow {
		return nil, d.noPart("window of time")
	}
	return []*exchange{x.wants(http.StatusUnauthorized)}, nil
}

func (d *delivery) breakKey() ([]*exchange, error) {
	if !d.v.Scheme.UsesKeyID() {
		return nil, d.noPart("key id")
	}
	other := *d
	other.key = d.v.Keys.Keys()[0]
	other.key.ID, other.key.NotBefore, other.key.NotAfter = "unknown-key", time.Time{}, time.Time{}
	x, err := other.sign()
	if err != nil {
		return nil, err
	}
	return []*exchange{x.wantsRefusal(d)}, nil
}

func (d *delivery) breakSignature() ([]*exchange, error) {
	x, err := d.sign()
	if err != nil {
		return nil, err
	}
	for _, from := range d.v.Scheme.SignatureAt() {
		if x.spoil(from) && d.refused(x) == verify.ReasonSignatureMismatch {
			return []*exchange{x.wantsRefusal(d)}, nil
		}
	}
	return nil, d.noPart("signature that can be changed")
}

// spoil changes one digit of the signature that stands at a place, and says whether
// one stands there.
func (x *exchange) spoil(from string) bool {
	field, err := verify.ParseField(from)
	if err != nil {
		return false
	}
	value, there, err := field.Read(verify.Request{Method: http.MethodPost, URL: x.url, Header: x.header, Body: x.body})
	if err != nil || !there {
		return false
	}
	kind, name, _ := strings.Cut(from, ":")
	other := otherDigit(value)
	switch kind {
	case "header":
		x.header = x.header.Clone()
		x.header.Set(name, other)
	case "query":
		x.url = strings.Replace(x.url, url.QueryEscape(value), url.QueryEscape(other), 1)
	case "form":
		x.body = bytes.Replace(x.body, []byte(url.QueryEscape(value)), []byte(url.QueryEscape(other)), 1)
	case "json":
		x.body = bytes.Replace(x.body, []byte(value), []byte(other), 1)
	}
	return true
}

// otherDigit changes one character well inside the signature, so that its length
// and its spelling stay right, in hex and in base64.
func otherDigit(signature string) string {
	at := max(0, len(signature)-10)
	other := byte('0')
	if signature[at] == '0' {
		other = '1'
	}
	return signature[:at] + string(other) + signature[at+1:]
}

func (d *delivery) breakID() ([]*exchange, error) {
	x, err := d.sign()
	if err != nil {
		return nil, err
	}
	if name := d.idHeader(); name != "" {
		// A dot, or where that fits more characters than any id may have.
		for _, id := range []string{"dlv.broken", "dlv-" + strings.Repeat("x", 253)} {
			x.id, x.inHead = id, ""
			x.header[http.CanonicalHeaderKey(name)] = []string{id}
			err := d.v.CheckHeader(verify.Request{Method: http.MethodPost, URL: x.url, Header: x.header})
			var refusal *verify.Error
			if errors.As(err, &refusal) && refusal.Reason == verify.ReasonDeliveryIDInvalid {
				return []*exchange{x.wants(http.StatusBadRequest)}, nil
			}
		}
	}
	return nil, d.noPart("delivery id in a header")
}

// idHeader is a header that the delivery id stands in, whole or in part.
func (d *delivery) idHeader() string {
	recipe := d.v.Scheme.Recipe()
	if recipe.ID == nil {
		return ""
	}
	for _, from := range recipe.ID.From {
		if _, token, ok := strings.Cut(from, "{header:"); ok {
			name, _, _ := strings.Cut(token, "}")
			return name
		}
		if name, ok := strings.CutPrefix(from, "header:"); ok {
			return name
		}
	}
	return ""
}

func (d *delivery) sendTwice() ([]*exchange, error) {
	x, err := d.sign()
	if err != nil {
		return nil, err
	}
	return []*exchange{x, x}, nil
}

func (d *delivery) sendOther() ([]*exchange, error) {
	first, err := d.sign()
	if err != nil {
		return nil, err
	}
	other := *d
	other.body = d.padded(2)
	second, err := other.sign()
	if err != nil {
		return nil, err
	}
	if first.id != second.id {
		return nil, d.noPart("delivery id beside the body's own hash")
	}
	if cmp.Or(d.to.onConflict, d.ack().OnConflict) == "accept_first" {
		return []*exchange{first, second}, nil // told as a duplicate
	}
	return []*exchange{first, second.wants(cmp.Or(d.to.conflict, d.ack().ConflictStatus, http.StatusConflict))}, nil
}

// padded is the body with n more bytes that say nothing: blanks behind JSON, which
// has the same id then, and a field without a value behind a form.
func (d *delivery) padded(n int) []byte {
	pad := bytes.Repeat([]byte{' '}, n)
	if strings.HasPrefix(d.header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		pad = append([]byte{'&'}, bytes.Repeat([]byte{'x'}, n-1)...)
	}
	return append(bytes.Clone(d.body), pad...)
}

func (d *delivery) breakSize() ([]*exchange, error) {
	most := d.v.MaxBody
	if most == 0 {
		most = verify.DefaultMaxBody
	}
	pad := most + 1 - len(d.body)
	if pad < 1 {
		return nil, usagef("leave --body out", "send: the body is larger than %d bytes already", most)
	}
	big := *d
	v := *d.v
	v.MaxBody = most + 64<<10 // the signature may stand in the body
	big.v = &v
	big.body = d.padded(pad)
	x, err := big.sign()
	if err != nil {
		return nil, err
	}
	return []*exchange{x.wants(http.StatusRequestEntityTooLarge)}, nil
}
