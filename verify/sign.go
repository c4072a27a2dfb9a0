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
	DeliveryID string    // demanded by schemes whose id stands in a header or beside the signature, else not used
	Time       time.Time // zero: now
}

// ErrNoSigner is returned for what cannot be signed: the key has no private half,
// the signature holds what only the sender can make, or, by Sign alone, it stands in
// the body or the URL.
var ErrNoSigner = errors.New("no signer for this scheme")

// Sign returns the headers to add to r. It refuses what Verify would refuse, with
// Verify's error: a request that has such headers already, a delivery id that does
// not fit, a key outside its span at that time.
func (v *Verifier) Sign(r Request, o SignOptions) (http.Header, error) {
	if p := v.Scheme.p; p != nil && p.ready && p.signature.in != placeHeader {
		return nil, fmt.Errorf("verify: sign with %s: %w: the signature is no header, so SignRequest must make the request",
			p.title(), ErrNoSigner)
	}
	full, err := v.SignRequest(r, o)
	if err != nil {
		return nil, err
	}
	if full.URL != r.URL || string(full.Body) != string(r.Body) {
		return nil, fmt.Errorf("verify: sign with %s: %w: body or URL would change", v.Scheme.p.title(), ErrNoSigner)
	}
	added := http.Header{}
	for name, lines := range full.Header {
		if n := len(r.Header[name]); n < len(lines) {
			added[name] = lines[n:]
		}
	}
	return added, nil
}

// SignRequest returns r with its signature: in headers as by Sign, or in the body or
// the query where the scheme wants it, with the timestamp and the delivery id beside
// it if r has none there. It refuses what Sign refuses; r is not changed.
func (v *Verifier) SignRequest(r Request, o SignOptions) (Request, error) {
	var c check
	if err := c.start(v, &r); err != nil {
		return Request{}, fmt.Errorf("verify: sign: %w", err)
	}
	if !o.Time.IsZero() {
		c.now = o.Time
	}
	key, err := c.signingKey(o.Key)
	if err == nil {
		err = c.addHeaders(key, o.DeliveryID)
	}
	var full Request
	switch {
	case err != nil:
	case c.p.code != nil:
		full, err = c.p.code.sign(&c, key, o)
	default:
		full, err = c.signedRequest(key, o.DeliveryID)
	}
	if err != nil {
		return Request{}, fmt.Errorf("verify: sign with %s: %w", c.p.title(), err)
	}
	judge := *v
	judge.Now = func() time.Time { return c.now }
	if judge.Keys, err = NewKeySet(*key); err != nil {
		return Request{}, err
	}
	if _, err := judge.Verify(full); err != nil {
		return Request{}, fmt.Errorf("verify: sign: %w", err)
	}
	return full, nil
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
	if c.p.code != nil && c.p.code.sign == nil {
		return nil, fmt.Errorf("%w: nobody but the sender has its key", ErrNoSigner)
	}
	if !c.p.algo.family.shared() && k.Secret.data().public.signer == nil {
		return nil, fmt.Errorf("%w: key %q has no private half", ErrNoSigner, k.ID)
	}
	return &k, nil
}

// addHeaders adds the headers that the signature needs beside it. Those that only
// the sender can know must be in the request.
func (c *check) addHeaders(key *Key, id string) error {
	added := http.Header{}
	set := func(p *place, value string) {
		added[http.CanonicalHeaderKey(p.name)] = []string{value}
	}
	if t := c.p.timestamp; t != nil && t.from.kind == placeHeader {
		set(&t.from, t.format.format(c.now))
	}
	if c.p.keyID.kind == placeHeader {
		if key.ID == "" {
			return errors.New("the key has no id")
		}
		set(&c.p.keyID, key.ID)
	}
	if spec := c.p.id; spec != nil && spec.template != nil {
		if err := c.splitID(id, set); err != nil {
			return err
		}
	} else if spec != nil && spec.from[0].kind == placeHeader {
		if id == "" {
			return errIDDemanded
		}
		set(&spec.from[0], id)
	}
	for _, q := range c.p.require {
		name := c.p.headers[q.slot].name
		if _, there, _ := headerValue(c.r.Header, name); !there {
			added[http.CanonicalHeaderKey(name)] = []string{q.equals}
		}
	}
	c.r.Header = join(c.r.Header, added)
	return nil
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

// signedRequest puts the signature in its place.
func (c *check) signedRequest(key *Key, id string) (Request, error) {
	if err := c.headers(); err != nil {
		return Request{}, err
	}
	p := &c.p.signature.places[0]
	if p.kind != placeHeader {
		if err := c.insertBeside(key, id); err != nil {
			return Request{}, err
		}
	}
	value, err := c.makeSignature(key)
	if err != nil {
		return Request{}, err
	}
	full := c.r
	if p.kind != placeHeader {
		err := full.insert(p, value)
		return full, err
	}
	full.Header = join(full.Header, http.Header{http.CanonicalHeaderKey(p.name): {value}})
	return full, nil
}

// makeSignature renders the value that stands in the signature's place.
func (c *check) makeSignature(key *Key) (string, error) {
	spec := &c.p.signature
	before := ""
	for i, tag := range c.p.fields {
		t := c.p.timestamp
		if t == nil || t.from.kind != placeSig || t.from.slot != i {
			return "", fmt.Errorf("%w: only the sender can make {sig:%s}", ErrNoSigner, tag)
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
