package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// birdLife is how long a token of Bird is good for.
const birdLife = 60 * time.Second

// birdJWT is code:messagebird-jwt: HS256, HS384 or HS512, with the claims iss, nbf,
// exp, jti, url_hash and, where there is a body, payload_hash, both hex of SHA-256.
//
// Source: github.com/messagebird/go-rest-api, folder signature_jwt, whose one second
// for clocks that differ is kept.
var birdJWT = jwtScheme{
	header: "MessageBird-Signature-JWT", keys: "hmac-sha256",
	algorithms: []jwtAlgorithm{jwtHS256, jwtHS384, jwtHS512},
	id:         "jti", stamp: "nbf", window: time.Second, body: true, url: true,
	judge: judgeBird,
	make: func(c *check, o SignOptions) (any, error) {
		if o.DeliveryID == "" {
			return nil, errors.New("a delivery id is demanded")
		}
		url, err := c.urlHash()
		if err != nil {
			return nil, err
		}
		body := ""
		if len(c.r.Body) > 0 {
			body = hex.EncodeToString(c.bodySHA256())
		}
		return struct {
			Issuer    string `json:"iss"`
			NotBefore int64  `json:"nbf"`
			Expires   int64  `json:"exp"`
			ID        string `json:"jti"`
			URLHash   string `json:"url_hash"`
			BodyHash  string `json:"payload_hash,omitempty"`
		}{"MessageBird", c.now.Unix(), c.now.Add(birdLife).Unix(), o.DeliveryID, url, body}, nil
	},
}

func judgeBird(c *check, cs *jwtClaims) *Error {
	if err := c.stamped(cs, "nbf"); err != nil {
		return err
	}
	if err := c.lifetime(cs, true, true); err != nil {
		return err
	}
	if err := c.mustBe(cs, "iss", "MessageBird", ReasonClaimMismatch); err != nil {
		return err
	}
	url, err := c.urlHash()
	if err != nil {
		return err
	}
	if err := c.mustBe(cs, "url_hash", url, ReasonSignatureMismatch); err != nil {
		return err
	}
	if len(c.r.Body) > 0 {
		return c.mustBe(cs, "payload_hash", hex.EncodeToString(c.bodySHA256()), ReasonSignatureMismatch)
	}
	// A hash of nothing is left out, so one that is there was of a body that is gone.
	if cs.get("payload_hash").kind != jsonAbsent {
		return c.fail(ReasonClaimMismatch, "claim:payload_hash")
	}
	return nil
}

func (c *check) urlHash() (string, *Error) {
	url, err := c.urlToken(partURL)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:]), nil
}
