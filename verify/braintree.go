package verify

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strings"
)

// Braintree signs the form field bt_payload by HMAC-SHA1, keyed with the SHA-1 of the
// private key. The field bt_signature holds pairs public|hex, joined by &, one for
// each key pair of the account. A secret is public|private.
//
// Source: github.com/braintree/braintree_node, webhook_notification_gateway.js.
var braintree = coder{
	algo:    "hmac-sha1",
	usable:  usableBraintree,
	compile: compileBraintree,
	covers:  func(_ *builder, v *place) bool { return v.kind == placeForm && v.name == braintreePayload },
	signs:   []string{"form:" + braintreePayload}, part: "form:" + braintreePayload,
	open: func(c *check) *Error { c.coded = &braintreeRequest{}; return nil },
	sign: signBraintree,
	answerMAC: func(k *Key, challenge string) ([]byte, string) {
		if !braintreeChallenge.MatchString(challenge) {
			return nil, ""
		}
		public, private, _ := braintreeKey(k.Secret.data().raw)
		return braintreeSum(private, challenge), public
	},
}

const (
	braintreeSignature = "bt_signature"
	braintreePayload   = "bt_payload"
	braintreeAlphabet  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\n"
)

// braintreeChallenge is no payload: those are XML in base64, which begins with capitals.
var braintreeChallenge = regexp.MustCompile(`^[a-f0-9]{20,32}$`)

func compileBraintree(b *builder) error {
	return b.signatureOf(&SignatureRecipe{In: "form", Name: braintreeSignature})
}

func usableBraintree(raw []byte) bool {
	public, private, _ := braintreeKey(raw)
	return public != "" && private != ""
}

func braintreeKey(raw []byte) (public, private string, ok bool) {
	return strings.Cut(string(raw), "|")
}

type braintreeRequest struct {
	pairs   []pair // public key, MAC in hex
	payload string
}

func (r *braintreeRequest) read(c *check) *Error {
	text, err := c.demand(&c.p.signature.places[0])
	if err != nil {
		if err.Reason == ReasonHeaderMissing {
			err.Reason = ReasonSignatureMissing
		}
		return err
	}
	if len(text) > maxSignature {
		return c.malformed()
	}
	for item := range strings.SplitSeq(text, "&") {
		public, sum, ok := strings.Cut(item, "|")
		if !ok || !c.p.signature.spelled(sum) {
			continue
		}
		if len(r.pairs) == maxCandidates {
			return c.malformed()
		}
		r.pairs = append(r.pairs, pair{public, sum})
	}
	if len(r.pairs) == 0 {
		return c.malformed()
	}
	if r.payload, err = c.demand(&place{kind: placeForm, name: braintreePayload}); err != nil {
		return err
	}
	if strings.ContainsFunc(r.payload, func(c rune) bool { return !strings.ContainsRune(braintreeAlphabet, c) }) {
		return c.fail(ReasonBodyUnparsable, "form:"+braintreePayload)
	}
	return nil
}

func (r *braintreeRequest) fits(c *check, k *Key) bool {
	public, private, _ := braintreeKey(k.Secret.data().raw)
	sum := braintreeSum(private, r.payload)
	// The field's final newline is lost on some ways.
	line := braintreeSum(private, r.payload+"\n")
	fits := false
	for _, p := range r.pairs {
		given, _ := hex.DecodeString(p.value)
		equal := hmac.Equal(sum, given)
		equal = hmac.Equal(line, given) || equal
		fits = equal && p.name == public || fits
	}
	return fits
}

func braintreeSum(private, text string) []byte {
	key := sha1.Sum([]byte(private))
	h := hmac.New(sha1.New, key[:])
	h.Write([]byte(text))
	return h.Sum(nil)
}

// claims refuses a payload that is a challenge: anybody can have those signed.
func (r *braintreeRequest) claims(c *check) *Error {
	if braintreeChallenge.MatchString(r.payload) {
		return c.fail(ReasonSignatureMismatch, "form:"+braintreePayload)
	}
	return nil
}

// signBraintree adds bt_signature to a form that has bt_payload.
func signBraintree(c *check, key *Key, _ SignOptions) (Request, error) {
	payload, err := c.demand(&place{kind: placeForm, name: braintreePayload})
	if err != nil {
		return Request{}, err
	}
	signature := &c.p.signature.places[0]
	if _, err := c.demand(signature); err == nil {
		return Request{}, c.fail(ReasonHeaderDuplicated, signature.String())
	}
	public, private, _ := braintreeKey(key.Secret.data().raw)
	sum := hex.EncodeToString(braintreeSum(private, payload))
	if err := c.r.insert(signature, public+"|"+sum); err != nil {
		return Request{}, err
	}
	return c.r, nil
}
