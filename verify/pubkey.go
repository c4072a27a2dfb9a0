package verify

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
)

// publicKey is an *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey, and its
// private half where a key for signing was given.
type publicKey struct {
	key    crypto.PublicKey
	signer crypto.Signer
}

const leastRSABits = 2048

func decodePublicKey(text []byte, spec SecretSpec) (k publicKey, rule string) {
	if spec.Encoding == "pem" {
		return decodePEM(text)
	}
	if rule := textRule(text, maxPEM); rule != "" {
		return k, rule
	}
	s := stripPrefix(string(text), spec.StripPrefix)
	var raw []byte
	if spec.Encoding == "raw-hex" {
		if b, err := hex.DecodeString(s); err == nil { // else b is what came before the fault
			raw = b
		}
	} else if len(s) <= 1400 { // the strict decoder's bound
		raw = decodeBase64(nil, s, false)
	}
	if raw == nil {
		return k, "the public key is not " + strings.TrimPrefix(spec.Encoding, "raw-")
	}
	if spec.Encoding == "spki-der-base64" {
		pub, err := x509.ParsePKIXPublicKey(raw)
		if err != nil {
			return k, "the public key is not SPKI"
		}
		return usablePublicKey(pub, nil)
	}
	if len(raw) != ed25519.PublicKeySize {
		return k, fmt.Sprintf("the public key has %d bytes, not %d", len(raw), ed25519.PublicKeySize)
	}
	return publicKey{key: ed25519.PublicKey(raw)}, ""
}

func decodePEM(text []byte) (k publicKey, rule string) {
	if len(text) == 0 || len(text) > maxPEM {
		return k, "the PEM text is empty or too long"
	}
	block, rest := pem.Decode(text)
	if block == nil || strings.TrimSpace(string(rest)) != "" {
		return k, "not one PEM block"
	}
	var pub crypto.PublicKey
	var private any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		pub, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		pub, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			pub = cert.PublicKey
		}
	case "PRIVATE KEY":
		private, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		private, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		private, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return k, "the PEM block is no key and no certificate"
	}
	if err != nil {
		return k, "the PEM block does not parse"
	}
	signer, _ := private.(crypto.Signer)
	if signer != nil {
		pub = signer.Public()
	}
	return usablePublicKey(pub, signer)
}

func usablePublicKey(pub crypto.PublicKey, signer crypto.Signer) (k publicKey, rule string) {
	switch p := pub.(type) {
	case ed25519.PublicKey:
	case *rsa.PublicKey:
		if p.N.BitLen() < leastRSABits {
			return k, fmt.Sprintf("the RSA key has %d bits, at least %d are demanded", p.N.BitLen(), leastRSABits)
		}
	case *ecdsa.PublicKey:
		if p.Curve != elliptic.P256() {
			return k, "the ECDSA key is not on P-256"
		}
	default:
		return k, "the key is neither RSA, ECDSA nor Ed25519"
	}
	return publicKey{key: pub, signer: signer}, ""
}

// fits says whether the key is of the algorithm's kind.
func (k publicKey) fits(a *algorithm) bool {
	switch k.key.(type) {
	case ed25519.PublicKey:
		return a.family == familyEd25519
	case *ecdsa.PublicKey:
		return a.family == familyECDSA
	case *rsa.PublicKey:
		return a.family == familyRSA
	}
	return false
}

func (k publicKey) verify(a *algorithm, text, sig []byte) bool {
	switch p := k.key.(type) {
	case ed25519.PublicKey:
		return a.family == familyEd25519 && ed25519.Verify(p, text, sig)
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(text)
		return a.family == familyECDSA && ecdsa.VerifyASN1(p, sum[:], sig)
	case *rsa.PublicKey:
		if a.family != familyRSA {
			return false
		}
		digest, h := a.digest(text)
		return rsa.VerifyPKCS1v15(p, h, digest, sig) == nil
	}
	return false
}

// verifyRS takes an ECDSA signature as JWS and RFC 9421 spell it: r and s, 32 bytes
// each.
func (k publicKey) verifyRS(text, sig []byte) bool {
	p, ok := k.key.(*ecdsa.PublicKey)
	if !ok || len(sig) != 64 {
		return false
	}
	sum := sha256.Sum256(text)
	return ecdsa.Verify(p, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
}

// signRS makes the signature that verifyRS takes.
func (k publicKey) signRS(text []byte) ([]byte, error) {
	p, ok := k.signer.(*ecdsa.PrivateKey)
	if !ok {
		return nil, ErrNoSigner
	}
	sum := sha256.Sum256(text)
	r, s, err := ecdsa.Sign(rand.Reader, p, sum[:])
	if err != nil {
		return nil, err
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return sig, nil
}

// verifyPSS takes RSASSA-PSS as RFC 9421 uses it.
func (k publicKey) verifyPSS(text, sig []byte) bool {
	p, ok := k.key.(*rsa.PublicKey)
	sum := sha512.Sum512(text)
	return ok && rsa.VerifyPSS(p, crypto.SHA512, sum[:], sig, &rsa.PSSOptions{SaltLength: sha512.Size}) == nil
}

// signPSS makes the signature that verifyPSS takes.
func (k publicKey) signPSS(text []byte) ([]byte, error) {
	sum := sha512.Sum512(text)
	return k.signer.Sign(rand.Reader, sum[:], &rsa.PSSOptions{SaltLength: sha512.Size, Hash: crypto.SHA512})
}

// sign makes the signature that verify takes.
func (k publicKey) sign(a *algorithm, text []byte) ([]byte, error) {
	if a.family == familyEd25519 {
		return k.signer.Sign(nil, text, crypto.Hash(0))
	}
	digest, h := a.digest(text)
	return k.signer.Sign(rand.Reader, digest, h)
}

func (a *algorithm) digest(text []byte) ([]byte, crypto.Hash) {
	if a.sha1 {
		sum := sha1.Sum(text)
		return sum[:], crypto.SHA1
	}
	sum := sha256.Sum256(text)
	return sum[:], crypto.SHA256
}
