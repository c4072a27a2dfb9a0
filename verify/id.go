package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"
)

const maxDeliveryID = 256

// idSpec is the compiled form of IDRecipe.
type idSpec struct {
	from     []place // the first present counts
	template []part  // or a text made of several places
	pattern  *pattern
	late     bool // needs the body
	signed   bool
}

var (
	errNoID      = errors.New("is not there")
	errIDInvalid = errors.New("is not 1 to 256 characters of ! to ~ that fit the pattern")
)

// deliveryID is step 3, for ids that stand outside the body.
func (c *check) deliveryID() *Error {
	spec := c.p.id
	if spec.template != nil {
		text := ""
		for i := range spec.template {
			p := &spec.template[i]
			if p.kind == partLiteral {
				text += p.text
				continue
			}
			value, err := c.demand(&p.place)
			if err != nil {
				return err
			}
			text += value
		}
		return c.setID(text, "id")
	}
	for i := range spec.from {
		p := &spec.from[i]
		value, err := c.demand(p)
		if err == nil {
			return c.setID(value, p.String())
		}
		if err.Reason != ReasonHeaderMissing {
			return err
		}
	}
	return c.fail(ReasonHeaderMissing, spec.from[0].String())
}

func (c *check) setID(id, field string) *Error {
	if !c.p.id.valid(id) {
		return c.fail(ReasonDeliveryIDInvalid, field)
	}
	c.envelope.DeliveryID = id
	return nil
}

// lateDeliveryID is step 8, for ids in a body whose signature holds.
func (c *check) lateDeliveryID() *Error {
	spec := c.p.id
	text, ok, field := "", false, "id"
	var err error
	if spec.template != nil {
		for i := range spec.template {
			p := &spec.template[i]
			if p.kind == partLiteral {
				text += p.text
				continue
			}
			var value string
			if value, ok, err = c.readLate(&p.place); err != nil || !ok {
				field = p.place.String()
				break
			}
			text += value
		}
	} else {
		for i := range spec.from {
			field = spec.from[i].String()
			if text, ok, err = c.readLate(&spec.from[i]); err != nil || ok {
				break
			}
		}
	}
	if err == nil && !ok {
		err = errNoID
	}
	if err == nil && !spec.valid(text) {
		err = errIDInvalid
	}
	if err != nil {
		c.envelope.DeliveryID = bodyID(c.r.Body)
		c.envelope.IDSigned = c.p.bodySigned
		c.meta("delivery id", field, err)
		return nil
	}
	c.envelope.DeliveryID = text
	c.envelope.IDSigned = spec.signed
	return nil
}

// bodyID stands in for a delivery id that cannot be read from a signed body: what
// was rightly signed is not turned away.
func bodyID(body []byte) string {
	sum := sha256.Sum256(body)
	return "body:" + hex.EncodeToString(sum[:])
}

// readLate reads a place once the signature is known to be right.
func (c *check) readLate(p *place) (string, bool, error) {
	switch p.kind {
	case placeHeader:
		v := c.header(p.slot)
		return v, v != "", nil
	case placeSig:
		v := c.fields[p.slot]
		return v, v != "", nil
	case placeJSON:
		if c.late == nil {
			c.late = make([]jsonTarget, len(c.p.late))
			for i, path := range c.p.late {
				c.late[i].path = path
			}
			jsonScan(c.r.Body, c.late, depthVerified)
		}
		v := c.late[p.slot].value()
		if v.Kind == KindBool {
			return "", false, errNotScalar
		}
		return v.Text, v.Kind != KindAbsent, v.Err
	}
	f := fieldPlace{place: *p}
	return f.read(&c.r)
}

// eventType is metadata: what is wrong with it refuses nothing.
func (c *check) eventType() {
	for i := range c.p.eventType {
		p := &c.p.eventType[i]
		value, ok, err := c.readLate(p)
		if err == nil && ok && !printable(value) {
			err = errors.New("is longer than 256 bytes, holds control characters or is no Unicode text")
		}
		if err != nil {
			c.meta("event type", p.String(), err)
			return
		}
		if ok {
			c.envelope.EventType = value
			return
		}
	}
}

func (c *check) meta(what, field string, err error) {
	if c.envelope.MetaError != "" {
		c.envelope.MetaError += "; "
	}
	c.envelope.MetaError += what + " " + field + ": " + err.Error()
}

func printable(s string) bool {
	return len(s) <= maxDeliveryID && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// valid holds rule 8.
func (s *idSpec) valid(id string) bool {
	if id == "" || len(id) > maxDeliveryID || strings.HasPrefix(id, "snap:") {
		return false
	}
	for i := 0; i < len(id); i++ {
		if id[i] < '!' || id[i] > '~' {
			return false
		}
	}
	return s.pattern == nil || s.pattern.match(id)
}
