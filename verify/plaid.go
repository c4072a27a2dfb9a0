package verify

import (
	"encoding/hex"
	"time"
)

// plaidJWT is code:plaid-jwt: ES256, the key named by kid, the claims iat and
// request_body_sha256 in hex.
//
// Source: plaid.com/docs/api/webhooks/webhook-verification. Plaid has the key fetched
// from its API; here it is pinned, and kid only chooses among those that are.
var plaidJWT = jwtScheme{
	header: "Plaid-Verification", keys: "ecdsa-p256-sha256", algorithms: []jwtAlgorithm{jwtES256},
	byKid: true, stamp: "iat", window: 300 * time.Second, body: true,
	judge: func(c *check, cs *jwtClaims) *Error {
		if _, _, err := c.moment(cs, "iat", true); err != nil {
			return err
		}
		if err := c.judge(cs.get("iat").found); err != nil {
			return err
		}
		return c.mustBe(cs, "request_body_sha256", hex.EncodeToString(c.bodySHA256()), ReasonSignatureMismatch)
	},
	make: func(c *check, _ SignOptions) (any, error) {
		return struct {
			IssuedAt int64  `json:"iat"`
			BodyHash string `json:"request_body_sha256"`
		}{c.now.Unix(), hex.EncodeToString(c.bodySHA256())}, nil
	},
}
