package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"github.com/hooklatch/hooklatch/verify"
)

// newKey is a key as its file holds it.
type newKey struct {
	secret string // what signs, and of a shared secret also what verifies
	public string // what verifies, of a pair
}

// keyFormats are the ways to write a new key.
func keyFormats() []string {
	return []string{"hex", "base64", "whsec", "basic", "braintree", "ed25519", "ecdsa", "rsa"}
}

func keyFormatHelp() string {
	return `   hex        32 random bytes as 64 hex characters, for most schemes used as text
   base64     32 random bytes in base64
   whsec      the same behind whsec_, for Standard Webhooks
   basic      user:password, for Basic authorization
   braintree  public|private
   ed25519 ecdsa rsa
              a pair: the private key as PEM to sign with, the public key to verify with`
}

// schemeKeyFormat says how a new key is written for the scheme.
func schemeKeyFormat(scheme verify.Scheme) (string, error) {
	recipe := scheme.Recipe()
	algo := recipe.Algo
	switch algo {
	case "code:rfc9421":
		algo = recipe.SigAlg
	case "code:plaid-jwt":
		algo = "ecdsa"
	case "code:sns":
		algo = "rsa"
	case "code:braintree":
		return "braintree", nil
	}
	if algo == "basic" {
		return algo, nil
	}
	for _, pair := range []string{"ed25519", "ecdsa", "rsa"} {
		if strings.HasPrefix(algo, pair) {
			return pair, nil
		}
	}
	spec := scheme.SecretSpec()
	switch spec.Encoding {
	case "utf8", "hex":
		return "hex", nil // as text, 64 characters are more than any scheme demands
	case "whsec":
		return "whsec", nil
	case "base64":
		if slices.Contains(spec.StripPrefix, "whsec_") {
			return "whsec", nil
		}
		return "base64", nil
	}
	return "", usagef("--format ed25519, ecdsa or rsa", "keygen: scheme %s does not say which kind of key it takes", scheme.Name())
}

// makeKey makes a key. spec is how the scheme reads it: a public key is written so.
func makeKey(format string, spec verify.SecretSpec) (newKey, error) {
	var key [32]byte
	rand.Read(key[:])
	return keyOf(format, spec, key)
}

// keyOf makes a key of 32 bytes that were thrown already. Only ECDSA and RSA throw
// for themselves.
func keyOf(format string, spec verify.SecretSpec, key [32]byte) (newKey, error) {
	switch format {
	case "hex":
		return newKey{secret: hex.EncodeToString(key[:])}, nil
	case "base64":
		return newKey{secret: base64.StdEncoding.EncodeToString(key[:])}, nil
	case "whsec":
		return newKey{secret: "whsec_" + base64.StdEncoding.EncodeToString(key[:])}, nil
	case "basic":
		return newKey{secret: "hooklatch:" + hex.EncodeToString(key[:])}, nil
	case "braintree":
		return newKey{secret: hex.EncodeToString(key[:8]) + "|" + hex.EncodeToString(key[8:])}, nil
	case "ed25519":
		return newPair(ed25519.NewKeyFromSeed(key[:]), spec)
	case "ecdsa":
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return newKey{}, err
		}
		return newPair(private, spec)
	case "rsa":
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return newKey{}, err
		}
		return newPair(private, spec)
	}
	return newKey{}, fmt.Errorf("unknown format %q", format)
}

func newPair(private crypto.Signer, spec verify.SecretSpec) (newKey, error) {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return newKey{}, err
	}
	spki, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return newKey{}, err
	}
	key := newKey{secret: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
	prefix := ""
	if len(spec.StripPrefix) > 0 {
		prefix = spec.StripPrefix[0]
	}
	raw, _ := private.Public().(ed25519.PublicKey)
	switch spec.Encoding {
	case "raw-hex":
		key.public = prefix + hex.EncodeToString(raw)
	case "raw-base64":
		key.public = prefix + base64.StdEncoding.EncodeToString(raw)
	case "spki-der-base64":
		key.public = prefix + base64.StdEncoding.EncodeToString(spki)
	default:
		key.public = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
	}
	return key, nil
}

// signingSpec says how a key that signs is read: as the scheme says, of a pair its
// private half as PEM.
func signingSpec(scheme verify.Scheme) verify.SecretSpec {
	spec := scheme.SecretSpec()
	switch spec.Encoding {
	case "pem", "spki-der-base64", "raw-hex", "raw-base64":
		return verify.SecretSpec{Encoding: "pem"}
	}
	return spec
}
