package verify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
)

// match looks the key up and checks the signature. Step 7 of the order. Every
// refusal does the work of the longest one, so that time tells nothing.
func (c *check) match() *Error {
	if c.v.Keys.d == nil {
		return c.fail(ReasonKeyUnknown, "")
	}
	if c.p.keyID.kind == placeNone || c.p.keyID.kind == placeSig && c.fields[c.p.keyID.slot] == "" {
		return c.matchAny()
	}
	id, err := c.demand(&c.p.keyID)
	if err != nil {
		return err
	}
	named := c.v.Keys.named(id, c.now)
	if named.n == 0 {
		decoy := Key{Secret: c.v.Keys.d.decoy}
		if keys := c.v.Keys.d.keys; !c.p.algo.family.shared() && len(keys) > 0 {
			decoy = keys[0] // a check with any public key takes as long; what it says is not heard
		}
		c.try(&keyList{keys: [maxActive]*Key{&decoy}, n: 1})
		e := c.fail(ReasonKeyUnknown, c.p.keyID.String())
		// Shorter than any secret of a native scheme: one in the wrong header is not logged.
		if len(id) < 32 && keyIDRule(id) == "" {
			e.KeyID = id
		}
		return e
	}
	hit := c.try(&named)
	k := named.keys[0]
	if hit >= 0 {
		k = named.keys[hit]
	}
	if !k.Active(c.now) {
		return c.outside(k, hit >= 0)
	}
	if hit < 0 {
		return c.mismatch(k)
	}
	c.accept(k)
	return nil
}

// matchAny tries every active key, then, only to name the fault, the others.
func (c *check) matchAny() *Error {
	active := c.v.Keys.active(c.now, true)
	if hit := c.try(&active); hit >= 0 {
		c.accept(active.keys[hit])
		return nil
	}
	others := c.v.Keys.active(c.now, false)
	if hit := c.try(&others); hit >= 0 {
		return c.outside(others.keys[hit], true)
	}
	return c.mismatch(nil)
}

func (c *check) mismatch(k *Key) *Error {
	e := c.fail(ReasonSignatureMismatch, "")
	if k != nil {
		e.KeyID = k.ID
		if !c.p.usable(k) {
			e.Reason = ReasonKeyUnusable
		}
	}
	return e
}

func (c *check) outside(k *Key, valid bool) *Error {
	reason := ReasonKeyExpired
	if c.now.Before(k.NotBefore) {
		reason = ReasonKeyNotYetValid
	}
	e := c.fail(reason, "")
	e.KeyID, e.MACValid = k.ID, valid
	return e
}

func (c *check) accept(k *Key) {
	c.key, c.envelope.KeyID = k, k.ID
	c.envelope.Retiring = c.v.Keys.retiring(k, c.now)
}

// usable says whether the secret is of the kind and length that the scheme demands.
func (p *program) usable(k *Key) bool {
	d := k.Secret.data()
	if d == nil {
		return false
	}
	if !p.algo.family.shared() {
		return d.public.fits(&p.algo)
	}
	if p.algo.family == familyBasic && bytes.IndexByte(d.raw, ':') < 0 { // no user sends it so
		return false
	}
	if p.code != nil && p.code.usable != nil && !p.code.usable(d.raw) {
		return false
	}
	return len(d.raw) >= max(1, p.recipe.SecretSpec.MinLen)
}

// try compares all keys with all candidates and returns the first key that fits,
// or -1. Shared secrets are compared in constant time and without early exit.
func (c *check) try(l *keyList) int {
	if c.coded != nil {
		return c.tryCoded(l)
	}
	switch c.p.algo.family {
	case familyHMAC, familyHash:
		for i := 0; i < l.n; i++ {
			c.digest(l.keys[i], &c.sums[i])
		}
	case familyToken, familyBasic:
		for i := 0; i < l.n; i++ {
			c.sums[i] = [maxDigest]byte{}
			sum := sha256.Sum256(l.keys[i].Secret.data().raw)
			copy(c.sums[i][:], sum[:])
		}
	default:
		return c.tryPublic(l)
	}
	size := hashes[c.p.algo.hash].size
	var fits [maxActive]bool
	for j := 0; j < c.count; j++ {
		var buf [maxDigest]byte
		given := c.given(buf[:0], c.candidates[j])
		for i := 0; i < l.n; i++ {
			// Not joined with && in front of Equal: no comparison is left out.
			equal := hmac.Equal(c.sums[i][:size], given)
			fits[i] = equal && c.p.usable(l.keys[i]) || fits[i]
		}
	}
	for i := 0; i < l.n; i++ {
		if fits[i] {
			return i
		}
	}
	return -1
}

// given is what a candidate is compared by: its bytes, or the hash of a token,
// which hides the token's length.
func (c *check) given(dst []byte, candidate string) []byte {
	spec := &c.p.signature
	switch c.p.algo.family {
	case familyToken, familyBasic:
		sum := sha256.Sum256(spec.decode(nil, candidate))
		return append(dst, sum[:]...)
	}
	return spec.decode(dst, candidate)
}

// digest makes the MAC or hash of the signed text under one key.
func (c *check) digest(k *Key, sum *[maxDigest]byte) {
	d, h := k.Secret.data(), c.p.algo.hash
	if c.p.algo.family == familyHash {
		st := &state{hash: hashes[h].new()}
		c.render(st, d.raw)
		copy(sum[:], st.hash.Sum(st.sum[:0]))
		return
	}
	st := d.state(h)
	c.render(st, nil)
	copy(sum[:], st.hash.Sum(st.sum[:0]))
	d.release(h, st)
}

// tryPublic may stop at the first match: nothing secret is compared.
func (c *check) tryPublic(l *keyList) int {
	text := c.signedText()
	for j := 0; j < c.count; j++ {
		sig := c.p.signature.decode(nil, c.candidates[j])
		for i := 0; i < l.n; i++ {
			if d := l.keys[i].Secret.data(); d != nil && d.public.verify(&c.p.algo, text, sig) {
				return i
			}
		}
	}
	return -1
}
