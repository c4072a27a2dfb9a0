package verify

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"
)

// jwtClaims are the claims that some scheme looks at, in the order of jwtClaimNames.
type jwtClaims [len(jwtClaimNames)]jsonTarget

var jwtClaimNames = [...]string{
	"iat", "nbf", "exp", "iss", "jti", "aud", "url_hash", "payload_hash", "request_body_sha256",
}

func readJWTClaims(text []byte) (jwtClaims, bool) {
	var c jwtClaims
	ok := readJWTObject(text, c[:], jwtClaimNames[:]...)
	return c, ok
}

func (cs *jwtClaims) get(name string) *jsonTarget {
	return &cs[index(jwtClaimNames[:], name)]
}

// text is a claim that must be a string, and not the empty one.
func (cs *jwtClaims) text(name string) (string, bool) {
	f := cs.get(name)
	return f.found, f.kind == jsonString && f.found != ""
}

// mustBe compares a claim with what it should say.
func (c *check) mustBe(cs *jwtClaims, name, want string, otherwise Reason) *Error {
	got, ok := cs.text(name)
	if !ok {
		return c.fail(ReasonClaimMismatch, "claim:"+name)
	}
	if subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 0 {
		return c.fail(otherwise, "claim:"+name)
	}
	return nil
}

// moment reads a NumericDate. Fractions, which the grammar allows and none of these
// senders writes, are refused.
func (c *check) moment(cs *jwtClaims, name string, demanded bool) (at time.Time, there bool, fault *Error) {
	f := cs.get(name)
	if f.kind == jsonAbsent && !demanded {
		return at, false, nil
	}
	if f.kind == jsonAbsent {
		return at, false, c.fail(ReasonClaimMismatch, "claim:"+name)
	}
	if f.kind == jsonNumber {
		at, there = unixSeconds.parse(f.found)
	}
	if !there {
		return at, false, c.fail(ReasonTimestampMalformed, "claim:"+name)
	}
	return at, true, nil
}

// lifetime judges nbf, which is included, and exp, which is not. A tolerance is what the
// clocks may differ by.
func (c *check) lifetime(cs *jwtClaims, nbf, exp bool) *Error {
	tolerance := time.Duration(0)
	if c.p.timestamp != nil {
		tolerance = c.p.timestamp.window
	}
	if c.v.Tolerance != 0 {
		tolerance = c.v.Tolerance
	}
	from, bounded, err := c.moment(cs, "nbf", nbf)
	if err != nil {
		return err
	}
	if bounded && c.now.Add(tolerance).Before(from) {
		return c.fail(ReasonTimestampOutOfWindow, "claim:nbf")
	}
	to, bounded, err := c.moment(cs, "exp", exp)
	if err != nil {
		return err
	}
	if bounded && !c.now.Add(-tolerance).Before(to) {
		return c.fail(ReasonTimestampOutOfWindow, "claim:exp")
	}
	return nil
}

// stamped notes the claim that says when the token was made, where it is there.
func (c *check) stamped(cs *jwtClaims, name string) *Error {
	at, there, err := c.moment(cs, name, false)
	if err == nil && there {
		c.envelope.Timestamp, c.envelope.Time, c.envelope.Distance = cs.get(name).found, at, at.Sub(c.now)
	}
	return err
}

func (c *check) bodySHA256() []byte {
	sum := sha256.Sum256(c.r.Body)
	return sum[:]
}
