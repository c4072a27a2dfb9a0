package verify

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// SignOptions says what to sign with.
type SignOptions struct {
	Key        Key       // zero: the newest active one of Verifier.Keys
	DeliveryID string    // demanded by schemes whose id stands in a header, else not used
	Time       time.Time // zero: now
}

// ErrNoSigner is returned by Sign for schemes that it cannot sign: the signature
// lies in the body, or the key has no private half.
var ErrNoSigner = errors.New("no signer for this scheme")

// Sign returns the headers to add to r. It refuses what Verify would refuse, with
// Verify's error: a request that has such headers already, a delivery id that does
// not fit, a key outside its span at that time.
func (v *Verifier) Sign(r Request, o SignOptions) (http.Header, error) {
	var c check
	if err := c.start(v, &r); err != nil {
		return nil, fmt.Errorf("verify: sign: %w", err)
	}
	if !o.Time.IsZero() {
		c.now = o.Time
	}
	key, err := c.signingKey(o.Key)
	if err != nil {
		return nil, fmt.Errorf("verify: sign with %s: %w", c.p.title(), err)
	}
	added, err := c.addHeaders(key, o.DeliveryID)
	if err != nil {
		return nil, fmt.Errorf("verify: sign with %s: %w", c.p.title(), err)
	}
	full := r
	full.Header = join(r.Header, added)
	c.r = full
	if c.p.code != nil {
		return c.signHeaders(v, r, key, o)
	}
	value, err := c.makeSignature(key)
	if err != nil {
		return nil, fmt.Errorf("verify: sign with %s: %w", c.p.title(), err)
	}
	added[http.CanonicalHeaderKey(c.p.signature.places[0].name)] = []string{value}
	full.Header = join(r.Header, added)
	judge := *v
	judge.Now = func() time.Time { return c.now }
	if judge.Keys, err = NewKeySet(*key); err != nil {
		return nil, err
	}
	if _, err := judge.Verify(full); err != nil {
		return nil, fmt.Errorf("verify: sign: %w", err)
	}
	return added, nil
}

func (c *check) signingKey(k Key) (*Key, error) {
	if k.Secret.IsZero() {
		active := c.v.Keys.active(c.now, true)
		if active.n == 0 {
			return nil, errors.New("no active key")
		}
		k = *active.keys[0]
	}
	if !c.p.usable(&k) {
		return nil, fmt.Errorf("key %q: %w", k.ID, ErrKeyUnusable)
	}
	if c.p.code == nil && c.p.signature.in != placeHeader || c.p.code != nil && c.p.code.sign == nil ||
		!c.p.algo.family.shared() && k.Secret.data().public.signer == nil {
		return nil, ErrNoSigner
	}
	return &k, nil
}

// addHeaders makes the headers that the signature needs beside it. Those that only
// the sender can know must be in the request.
func (c *check) addHeaders(key *Key, id string) (http.Header, error) {
	added := http.Header{}
	set := func(p *place, value string) {
		added[http.CanonicalHeaderKey(p.name)] = []string{value}
	}
	if t := c.p.timestamp; t != nil && t.from.kind == placeHeader {
		set(&t.from, t.format.format(c.now))
	}
	if c.p.keyID.kind == placeHeader {
		if key.ID == "" {
			return nil, errors.New("the key has no id")
		}
		set(&c.p.keyID, key.ID)
	}
	if spec := c.p.id; spec != nil && spec.template == nil && spec.from[0].kind == placeHeader {
		if id == "" {
			return nil, errors.New("a delivery id is demanded")
		}
		set(&spec.from[0], id)
	}
	for _, q := range c.p.require {
		name := c.p.headers[q.slot].name
		if _, there, _ := headerValue(c.r.Header, name); !there {
			added[http.CanonicalHeaderKey(name)] = []string{q.equals}
		}
	}
	return added, nil
}

// join puts the headers together without joining lines, so that a repetition is
// seen by the check that follows.
func join(a, b http.Header) http.Header {
	h := make(http.Header, len(a)+len(b))
	for k, lines := range a {
		h[k] = lines
	}
	for k, lines := range b {
		h[k] = append(append([]string(nil), h[k]...), lines...)
	}
	return h
}

// makeSignature renders the value of the signature header.
func (c *check) makeSignature(key *Key) (string, error) {
	spec := &c.p.signature
	if err := c.headers(); err != nil {
		return "", err
	}
	before := ""
	for i, tag := range c.p.fields {
		t := c.p.timestamp
		if t == nil || t.from.kind != placeSig || t.from.slot != i {
			return "", fmt.Errorf("{sig:%s}: %w", tag, ErrNoSigner)
		}
		c.fields[i] = t.format.format(c.now)
		before += tag + string(spec.kvSep) + c.fields[i] + string(spec.listSep)
	}
	if err := c.resolve(); err != nil {
		return "", err
	}
	sig, err := c.rawSignature(key)
	if err != nil {
		return "", err
	}
	if spec.kvSep != 0 {
		before += spec.tags[0] + string(spec.kvSep)
	}
	return before + spec.prefix + spec.encode(sig), nil
}

func (c *check) rawSignature(key *Key) ([]byte, error) {
	switch c.p.algo.family {
	case familyHMAC, familyHash:
		c.digest(key, &c.sums[0])
		return c.sums[0][:hashes[c.p.algo.hash].size], nil
	case familyToken, familyBasic:
		return key.Secret.data().raw, nil
	}
	return key.Secret.data().public.sign(&c.p.algo, c.signedText())
}

func (s *signatureSpec) encode(sig []byte) string {
	switch s.encoding {
	case encBase64:
		return base64.StdEncoding.EncodeToString(sig)
	case encBase64URL:
		return base64.RawURLEncoding.EncodeToString(sig)
	case encRaw:
		return string(sig)
	}
	return hex.EncodeToString(sig)
}
