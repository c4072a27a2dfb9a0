package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
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
		{"clock", "signed 1,000 seconds ago: 401", (*delivery).breakClock},
		{"key", "a key id that nobody knows: 401", (*delivery).breakKey},
		{"sig", "one digit of the signature differs: 401", (*delivery).breakSignature},
		{"id", "a delivery id that breaks the grammar: 400", (*delivery).breakID},
		{"dup", "the same sent twice: 2xx, 2xx", (*delivery).sendTwice},
		{"conflict", "the same id with another body: 2xx, 409", (*delivery).sendOther},
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
		return one(d.sign(verify.SignOptions{}))
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

func (d *delivery) breakBody() ([]*exchange, error) {
	x, err := d.sign(verify.SignOptions{})
	if err != nil {
		return nil, err
	}
	if len(x.body) == 0 {
		return nil, usagef("--body FILE", "send: the body is empty: there is no byte to change")
	}
	x.body = bytes.Clone(x.body)
	// A letter or digit, so that only the signature can tell.
	at := bytes.LastIndexFunc(x.body, func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	})
	x.body[max(at, 0)] ^= 1
	if d.verifies(x) {
		return nil, d.noPart("signature over the body")
	}
	return []*exchange{x.wants(http.StatusUnauthorized)}, nil
}

// verifies says whether the receiver would take x, as far as we know it.
func (d *delivery) verifies(x *exchange) bool {
	_, err := d.v.Verify(verify.Request{Method: http.MethodPost, URL: x.url, Header: x.header, Body: x.body})
	return err == nil
}

func (d *delivery) breakClock() ([]*exchange, error) {
	x, err := d.sign(verify.SignOptions{Time: time.Now().Add(-1000 * time.Second)})
	if err != nil {
		return nil, err
	}
	if d.verifies(x) {
		return nil, d.noPart("window of time that 1,000 seconds ago lies outside of")
	}
	return []*exchange{x.wants(http.StatusUnauthorized)}, nil
}

func (d *delivery) breakKey() ([]*exchange, error) {
	if !d.v.Scheme.UsesKeyID() {
		return nil, d.noPart("key id")
	}
	keys := d.v.Keys.Keys()
	key := keys[0]
	key.ID, key.NotBefore, key.NotAfter = "unknown-key", time.Time{}, time.Time{}
	x, err := d.sign(verify.SignOptions{Key: key})
	if err != nil {
		return nil, err
	}
	return []*exchange{x.wants(http.StatusUnauthorized)}, nil
}

func (d *delivery) breakSignature() ([]*exchange, error) {
	x, err := d.sign(verify.SignOptions{})
	if err != nil {
		return nil, err
	}
	recipe := d.v.Scheme.Recipe().Signature
	for _, name := range append([]string{recipe.Name}, recipe.Names...) {
		name = http.CanonicalHeaderKey(name)
		if values := x.header[name]; name != "" && len(values) == 1 {
			x.header[name] = []string{otherDigit(values[0])}
			return []*exchange{x.wants(http.StatusUnauthorized)}, nil
		}
	}
	return nil, d.noPart("signature in a header")
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
	x, err := d.sign(verify.SignOptions{})
	if err != nil {
		return nil, err
	}
	if id := d.v.Scheme.Recipe().ID; id != nil {
		for _, from := range id.From {
			name, ok := strings.CutPrefix(from, "header:")
			if !ok {
				continue
			}
			x.id, x.inHead = "dlv.broken", ""
			x.header[http.CanonicalHeaderKey(name)] = []string{x.id}
			err := d.v.CheckHeader(verify.Request{Method: http.MethodPost, URL: x.url, Header: x.header})
			var refusal *verify.Error
			if errors.As(err, &refusal) && refusal.Reason == verify.ReasonDeliveryIDInvalid {
				return []*exchange{x.wants(http.StatusBadRequest)}, nil
			}
		}
	}
	return nil, d.noPart("delivery id in a header that a dot does not fit")
}

func (d *delivery) sendTwice() ([]*exchange, error) {
	x, err := d.sign(verify.SignOptions{})
	if err != nil {
		return nil, err
	}
	return []*exchange{x, x}, nil
}

func (d *delivery) sendOther() ([]*exchange, error) {
	first, err := d.sign(verify.SignOptions{})
	if err != nil {
		return nil, err
	}
	other := *d
	// A blank at the end: the same JSON, so the same id where it stands inside.
	other.body = append(bytes.Clone(d.body), ' ')
	second, err := other.sign(verify.SignOptions{})
	if err != nil {
		return nil, err
	}
	return []*exchange{first, second.wants(http.StatusConflict)}, nil
}

func (d *delivery) breakSize() ([]*exchange, error) {
	most := d.v.MaxBody
	if most == 0 {
		most = verify.DefaultMaxBody
	}
	big := *d
	v := *d.v
	v.MaxBody = most + 1
	big.v = &v
	pad := most + 1 - len(d.body)
	if pad < 0 {
		return nil, usagef("leave --body out", "send: the body is larger than %d bytes already", most)
	}
	big.body = append(bytes.Clone(d.body), bytes.Repeat([]byte{' '}, pad)...)
	x, err := big.sign(verify.SignOptions{})
	if err != nil {
		return nil, err
	}
	return []*exchange{x.wants(http.StatusRequestEntityTooLarge)}, nil
}
