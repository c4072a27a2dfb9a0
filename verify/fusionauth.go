package verify

import "encoding/base64"

// fusionAuthJWT is code:fusionauth-jwt: HS256, one claim that matters,
// request_body_sha256 in base64. Nothing says when it was made.
//
// Source: github.com/hookdeck/webhook-skills, skills/fusionauth-webhooks. FusionAuth
// signs with other keys too where its operator chooses one; the shared secret is what
// is taken here.
var fusionAuthJWT = jwtScheme{
	header: "X-FusionAuth-Signature-JWT", keys: "hmac-sha256", algorithms: []jwtAlgorithm{jwtHS256}, body: true,
	judge: func(c *check, cs *jwtClaims) *Error {
		if err := c.lifetime(cs, false, false); err != nil {
			return err
		}
		want := base64.StdEncoding.EncodeToString(c.bodySHA256())
		return c.mustBe(cs, "request_body_sha256", want, ReasonSignatureMismatch)
	},
	make: func(c *check, _ SignOptions) (any, error) {
		return struct {
			BodyHash string `json:"request_body_sha256"`
		}{base64.StdEncoding.EncodeToString(c.bodySHA256())}, nil
	},
}
