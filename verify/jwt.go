package verify

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// A compact JWS (RFC 7515, RFC 7519) is three parts joined by dots: header, claims,
// signature, each base64url without padding. Four senders sign with one; what they
// have in common is here and in jwt_scheme.go, their claims are in a file each. The
// algorithm is the scheme's: what the header says must agree, it chooses only where
// the scheme has several. Keys, and addresses of keys, that a header brings along are
// not looked at.

// jwtDepth is how deep header and claims may nest.
const jwtDepth = 8

// jwtAlgorithm is a way to sign that a scheme allows.
type jwtAlgorithm struct {
	name string
	hash int // index into hashes; of ES256 none
	size int // bytes of a signature
}

var (
	jwtHS256 = jwtAlgorithm{"HS256", hashSHA256, 32}
	jwtHS384 = jwtAlgorithm{"HS384", hashSHA384, 48}
	jwtHS512 = jwtAlgorithm{"HS512", hashSHA512, 64}
	jwtES256 = jwtAlgorithm{"ES256", -1, 64}
)

// jwt is a token whose spelling and algorithm are as demanded. Nothing in it is
// known to be true before its signature is.
type jwt struct {
	signed    string // header and claims as received
	algorithm jwtAlgorithm
	kid       string // empty if it names no key
	claims    []byte
	signature []byte
}

// readJWT refuses what is no token, or one of an algorithm that is not allowed.
func readJWT(text string, allowed ...jwtAlgorithm) (t jwt, fault Reason) {
	if len(text) > maxSignature {
		return t, ReasonSignatureMalformed
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return t, ReasonSignatureMalformed
	}
	header := decodeBase64(nil, parts[0], true)
	var f [4]jsonTarget
	if !readJWTObject(header, f[:], "alg", "kid", "crit", "b64") ||
		f[0].kind != jsonString || f[1].kind != jsonString && f[1].kind != jsonAbsent {
		return t, ReasonSignatureMalformed
	}
	// Both change what the signature means, and a reader that does not know an
	// extension must not go on.
	if f[2].kind != jsonAbsent || f[3].kind != jsonAbsent {
		return t, ReasonAlgorithmRefused
	}
	for _, a := range allowed {
		if a.name == f[0].found {
			t.algorithm = a
		}
	}
	if t.algorithm.name == "" {
		return t, ReasonAlgorithmRefused
	}
	t.signed, t.kid = text[:len(parts[0])+1+len(parts[1])], f[1].found
	t.claims = decodeBase64(nil, parts[1], true)
	t.signature = decodeBase64(nil, parts[2], true)
	if t.claims == nil || len(t.signature) != t.algorithm.size {
		return t, ReasonSignatureMalformed
	}
	return t, ""
}

// readJWTObject finds members of a JSON object. In header and claims no name may
// stand twice: another reader could take the other one.
func readJWTObject(text []byte, found []jsonTarget, names ...string) bool {
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	for i, name := range names {
		found[i].path = []string{name}
	}
	s := jsonScanner{text: text, depth: jwtDepth, targets: found, live: 1<<len(found) - 1, unique: true}
	if err := s.value(s.live, 0); err != nil {
		return false
	}
	s.blanks()
	for i := range found {
		if found[i].err != nil {
			return false
		}
	}
	return s.i == len(s.text)
}

// signedBy says whether the signature is one of this key, which is of the right kind:
// a public key is no secret, and whoever knows it could sign.
func (t *jwt) signedBy(k *Key) bool {
	if t.algorithm.hash < 0 {
		return k.Secret.data().public.verifyRS([]byte(t.signed), t.signature)
	}
	return hmac.Equal(k.mac(t.algorithm.hash, []byte(t.signed)), t.signature)
}

// makeJWT signs claims.
func makeJWT(a jwtAlgorithm, kid string, claims any, k *Key) (string, error) {
	header, err := json.Marshal(struct {
		Alg string `json:"alg"`
		Kid string `json:"kid,omitempty"`
		Typ string `json:"typ"`
	}{a.name, kid, "JWT"})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := []byte(enc.EncodeToString(header) + "." + enc.EncodeToString(body))
	if a.hash >= 0 {
		return string(text) + "." + enc.EncodeToString(k.mac(a.hash, text)), nil
	}
	sig, err := k.Secret.data().public.signRS(text)
	return string(text) + "." + enc.EncodeToString(sig), err
}
