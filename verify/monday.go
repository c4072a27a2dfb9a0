package verify

import "time"

// mondayLife is how long a token of monday is good for.
const mondayLife = 300 * time.Second

// mondayJWT is code:monday-jwt: HS256, the claims aud, which is the public URL,
// and exp. The body is not signed: whoever has one token can send anything
// to that URL until it expires.
//
// Source: developer.monday.com/apps/docs/authorization-header.
var mondayJWT = jwtScheme{
	header: "Authorization", keys: "hmac-sha256", algorithms: []jwtAlgorithm{jwtHS256},
	stamp: "iat", url: true,
	judge: func(c *check, cs *jwtClaims) *Error {
		if err := c.stamped(cs, "iat"); err != nil {
			return err
		}
		if err := c.lifetime(cs, false, true); err != nil {
			return err
		}
		url, err := c.urlToken(partURL)
		if err != nil {
			return err
		}
		return c.mustBe(cs, "aud", url, ReasonClaimMismatch)
	},
	make: func(c *check, _ SignOptions) (any, error) {
		url, err := c.urlToken(partURL)
		if err != nil {
			return nil, err
		}
		return struct {
			Audience string `json:"aud"`
			Expires  int64  `json:"exp"`
			IssuedAt int64  `json:"iat"`
		}{url, c.now.Add(mondayLife).Unix(), c.now.Unix()}, nil
	},
}
