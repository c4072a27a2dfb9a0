package verify

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha512"
	"crypto/subtle"
	"slices"
	"strings"
	"time"
)

// messageSignature is code:rfc9421: HTTP message signatures.
//
// Source: RFC 9421, RFC 9530 for Content-Digest, RFC 8941 for the fields. The
// algorithm is the recipe's, and alg in the request must agree. Shared secrets are
// base64, as in the RFC, unless the recipe says otherwise. keyid, where it is
// there, chooses among the keys. A digest that is covered is compared with the body;
// one that is not covered says nothing. expires is taken as it is, without tolerance:
// the window around created is wider, and would leave nothing of it.
var messageSignature = coder{
	choose: messageAlgorithm, encoding: "base64",
	fields:  []string{"tolerance_s", "label", "sig_alg", "required_components"},
	compile: compileMessage, covers: messageCovers, open: openMessage, sign: signMessage,
}

const (
	signatureInput   = "Signature-Input"
	contentDigest    = "Content-Digest"
	defaultSigAlg    = "hmac-sha256"
	messageTolerance = 300 * time.Second
)

func messageAlgorithm(r *Recipe) (string, error) {
	switch r.SigAlg {
	case "", defaultSigAlg:
		return defaultSigAlg, nil
	case "ed25519", "ecdsa-p256-sha256":
		return r.SigAlg, nil
	case "rsa-v1_5-sha256", "rsa-pss-sha512":
		return "rsa-pkcs1-sha256", nil // for the kind of key; messageRequest knows the rest
	}
	return "", wrongf("sig_alg", "unknown value %q", r.SigAlg)
}

func (p *program) sigAlg() string { return cmp.Or(p.recipe.SigAlg, defaultSigAlg) }

func compileMessage(b *builder) error {
	if err := b.signatureOf(&SignatureRecipe{Name: "Signature", ListSep: ",", Encoding: "base64"}); err != nil {
		return err
	}
	if s := &b.p.signature; b.p.sigAlg() == "ecdsa-p256-sha256" {
		s.least, s.most = 64, 64
	}
	slot, err := b.slot(signatureInput, true)
	if err != nil {
		return err
	}
	b.p.headers[slot].list = true
	window, err := b.codeWindow(messageTolerance)
	if err != nil {
		return err
	}
	if b.r.Label != "" {
		if m, err := readDictionary(b.r.Label); err != nil || len(m) != 1 || m[0].key != b.r.Label {
			return wrongf("label", "%q is no label", b.r.Label)
		}
	}
	if len(b.r.RequiredComponents) > maxMembers {
		return wrongf("required_components", "are more than %d", maxMembers)
	}
	for i, name := range b.r.RequiredComponents {
		_, derived := derivedComponents[name]
		if !derived && (!validHeaderName(name) || strings.ToLower(name) != name) || slices.Contains(b.r.RequiredComponents[:i], name) {
			return wrongf("required_components", "%q is no component, or stands twice", name)
		}
	}
	b.p.fields = []string{"keyid", "created"}
	b.p.keyID = place{kind: placeSig, name: "keyid"}
	b.p.timestamp = &timestampSpec{from: place{kind: placeSig, name: "created", slot: 1}, window: window, stage: stageCode}
	b.p.needsURL = true
	b.p.bodySigned = slices.Contains(b.r.RequiredComponents, "content-digest")
	return nil
}

// messageCovers knows what every signature must cover; what one covers besides is
// seen when it is there.
func messageCovers(b *builder, v *place) bool {
	required := b.r.RequiredComponents
	switch v.kind {
	case placeHeader:
		return slices.Contains(required, strings.ToLower(v.name))
	case placeQuery:
		if slices.Contains(required, "@query") || slices.Contains(required, "@target-uri") || slices.Contains(required, "@request-target") {
			b.p.queryByURL = true
			return true
		}
	}
	return false
}

// messageRequest is a request with the signature of the recipe's label.
type messageRequest struct {
	base      []byte
	signature []byte
	digest    bool // whether Content-Digest is covered
}

func openMessage(c *check) *Error {
	input, signature, err := c.labelled()
	if err != nil {
		return err
	}
	if err := c.messageParameters(&input.item); err != nil {
		return err
	}
	r := &messageRequest{signature: signature}
	for _, name := range c.p.recipe.RequiredComponents {
		if !slices.ContainsFunc(input.inner, func(i sfItem) bool { return i.kind == sfString && i.text == name }) {
			return c.fail(ReasonNotCovered, name)
		}
	}
	for i := range input.inner {
		name := input.inner[i].text
		r.digest = r.digest || name == "content-digest"
		for j := range c.p.headers {
			if strings.EqualFold(c.p.headers[j].name, name) {
				c.covered |= 1 << j
			}
		}
	}
	base, err := c.signatureBase(input)
	if err != nil {
		return err
	}
	r.base = []byte(base)
	c.coded = r
	return nil
}

// labelled finds the signature of the recipe's label, or the only one, in both fields.
func (c *check) labelled() (input *sfMember, signature []byte, fault *Error) {
	inputs, ok := c.dictionary(signatureInput)
	signatures, ok2 := c.dictionary("Signature")
	if !ok || !ok2 {
		return nil, nil, c.malformed()
	}
	label := c.p.recipe.Label
	if label == "" && len(inputs) == 1 {
		label = inputs[0].key
	}
	for i := range inputs {
		if inputs[i].key == label && inputs[i].list {
			input = &inputs[i]
		}
	}
	for i := range signatures {
		if m := &signatures[i]; m.key == label && !m.list && m.item.kind == sfBytes {
			signature = []byte(m.item.text)
		}
	}
	switch {
	case label != "" && !slices.ContainsFunc(signatures, func(m sfMember) bool { return m.key == label }):
		return nil, nil, c.fail(ReasonSignatureMissing, "Signature")
	case input == nil || len(signature) < c.p.signature.least || len(signature) > c.p.signature.most:
		return nil, nil, c.malformed()
	}
	return input, signature, nil
}

// dictionary reads one of the two fields, bounded.
func (c *check) dictionary(name string) ([]sfMember, bool) {
	for i := range c.p.headers {
		if c.p.headers[i].name == name {
			text := strings.Join(c.lines[i], ", ")
			if len(text) > maxSignature {
				return nil, false
			}
			members, err := readDictionary(text)
			return members, err == nil
		}
	}
	return nil, false
}

// messageParameters judges what stands beside the list of components.
func (c *check) messageParameters(p *sfItem) *Error {
	for _, q := range p.params {
		want := q.value.kind
		switch q.key {
		case "alg", "keyid", "nonce", "tag":
			want = sfString
		case "created", "expires":
			want = sfInteger
		}
		if q.value.kind != want {
			return c.fail(ReasonSignatureMalformed, "sig:"+q.key)
		}
	}
	if alg, there := p.param("alg"); there && alg.text != c.p.sigAlg() {
		return c.fail(ReasonAlgorithmRefused, "sig:alg")
	}
	if keyid, there := p.param("keyid"); there {
		if keyid.text == "" {
			return c.fail(ReasonKeyUnknown, "sig:keyid")
		}
		c.fields[0] = keyid.text
	}
	created, there := p.param("created")
	if c.fields[1] = created.text; there {
		if err := c.judge(created.text); err != nil {
			return err
		}
	} else if c.p.timestamp.window != 0 || c.v.Tolerance != 0 {
		return c.fail(ReasonHeaderMissing, "sig:created")
	}
	if expires, there := p.param("expires"); there {
		at, ok := unixSeconds.parse(expires.text)
		if !ok {
			return c.fail(ReasonTimestampMalformed, "sig:expires")
		}
		if c.now.After(at) {
			return c.fail(ReasonTimestampOutOfWindow, "sig:expires")
		}
	}
	return nil
}

func (r *messageRequest) read(*check) *Error { return nil }

func (r *messageRequest) fits(c *check, k *Key) bool {
	public := k.Secret.data().public
	switch c.p.sigAlg() {
	case defaultSigAlg:
		return hmac.Equal(k.mac(hashSHA256, r.base), r.signature)
	case "ecdsa-p256-sha256":
		return public.verifyRS(r.base, r.signature)
	case "rsa-pss-sha512":
		return public.verifyPSS(r.base, r.signature)
	}
	return public.verify(&c.p.algo, r.base, r.signature)
}

// claims compares the digest, which the signature covers, with the body.
func (r *messageRequest) claims(c *check) *Error {
	if !r.digest {
		return nil
	}
	text, fault := coveredField(c.r.Header, contentDigest)
	if fault != "" {
		return c.fail(fault, contentDigest)
	}
	members, err := readDictionary(text)
	if err != nil {
		return c.fail(ReasonSignatureMalformed, contentDigest)
	}
	known := false
	for i := range members {
		var sum []byte
		switch members[i].key {
		case "sha-256":
			sum = c.bodySHA256()
		case "sha-512":
			s := sha512.Sum512(c.r.Body)
			sum = s[:]
		default:
			continue
		}
		known = true
		if subtle.ConstantTimeCompare([]byte(members[i].item.text), sum) == 0 {
			return c.fail(ReasonSignatureMismatch, contentDigest)
		}
	}
	if !known {
		return c.fail(ReasonAlgorithmRefused, contentDigest)
	}
	return nil
}
