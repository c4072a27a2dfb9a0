package verify

import (
	"net/http"
	"time"
)

// jwtScheme is what a sender puts into its token, and where the token stands.
type jwtScheme struct {
	header     string
	keys       string // the one of algorithms whose keys it takes
	algorithms []jwtAlgorithm
	byKid      bool   // the header names the key
	id         string // the claim that is the delivery id
	stamp      string // the claim that says when it was made
	window     time.Duration
	body, url  bool // what the claims hold a hash or the text of
	judge      func(*check, *jwtClaims) *Error
	make       func(*check, SignOptions) (claims any, err error)
}

func (s *jwtScheme) coder() *coder {
	var signs []string
	for _, what := range []struct {
		name string
		is   bool
	}{{"timestamp", s.stamp != ""}, {"id", s.id != ""}, {"URL", s.url}, {"body", s.body}} {
		if what.is {
			signs = append(signs, what.name)
		}
	}
	return &coder{
		algo: s.keys, fields: []string{"tolerance_s"}, signs: signs, expires: s.window == 0,
		compile: s.compile, covers: s.covers, open: s.open, sign: s.sign,
	}
}

func (s *jwtScheme) compile(b *builder) error {
	if err := b.signatureOf(&SignatureRecipe{Name: s.header, Encoding: "base64url-nopad"}); err != nil {
		return err
	}
	b.p.bodySigned, b.p.needsURL = s.body, s.url
	field := func(name string) place {
		b.p.fields = append(b.p.fields, name)
		return place{kind: placeSig, name: name, slot: len(b.p.fields) - 1}
	}
	if s.byKid {
		b.p.keyID = field("kid")
	}
	if s.id != "" {
		b.p.id = &idSpec{from: []place{field(s.id)}, late: true, signed: true}
	}
	if s.stamp != "" {
		window, err := b.codeWindow(s.window)
		if err != nil {
			return err
		}
		b.p.timestamp = &timestampSpec{from: field(s.stamp), window: window, stage: stageCode}
	}
	return nil
}

// covers: a URL that is signed comes with the query of the request.
func (s *jwtScheme) covers(b *builder, v *place) bool {
	if v.kind != placeQuery || !s.url {
		return false
	}
	b.p.queryByURL = true
	return true
}

// jwtRequest is a request with a token.
type jwtRequest struct {
	scheme *jwtScheme
	token  jwt
}

func (s *jwtScheme) open(c *check) *Error {
	token, fault := readJWT(c.header(c.p.signature.places[0].slot), s.algorithms...)
	if fault != "" {
		return c.fail(fault, s.header)
	}
	if s.byKid {
		if c.fields[c.p.keyID.slot] = token.kid; token.kid == "" {
			return c.fail(ReasonKeyUnknown, "sig:kid")
		}
	}
	c.coded = &jwtRequest{s, token}
	return nil
}

func (r *jwtRequest) read(*check) *Error { return nil }

func (r *jwtRequest) fits(_ *check, k *Key) bool { return r.token.signedBy(k) }

func (r *jwtRequest) claims(c *check) *Error {
	claims, ok := readJWTClaims(r.token.claims)
	if !ok {
		return c.fail(ReasonClaimMismatch, r.scheme.header)
	}
	if id := r.scheme.id; id != "" {
		text, ok := claims.text(id)
		if !ok {
			return c.fail(ReasonClaimMismatch, "claim:"+id)
		}
		c.fields[index(c.p.fields, id)] = text
	}
	if stamp := r.scheme.stamp; stamp != "" {
		c.fields[index(c.p.fields, stamp)] = claims.get(stamp).found
	}
	return r.scheme.judge(c, &claims)
}

func (s *jwtScheme) sign(c *check, k *Key, o SignOptions) (Request, error) {
	claims, err := s.make(c, o)
	if err != nil {
		return Request{}, err
	}
	kid := ""
	if s.byKid {
		kid = k.ID
	}
	token, err := makeJWT(s.algorithms[0], kid, claims, k)
	if err != nil {
		return Request{}, err
	}
	full := c.r
	full.Header = join(c.r.Header, http.Header{http.CanonicalHeaderKey(s.header): {token}})
	return full, nil
}
