package verify

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// signMessage covers the recipe's components, and those that protect a webhook where
// it names none.
func signMessage(c *check, k *Key, _ SignOptions) (Request, error) {
	names := c.p.recipe.RequiredComponents
	if len(names) == 0 {
		names = []string{"@method", "@authority", "@path", "content-digest"}
	}
	add := http.Header{}
	if _, there, err := headerValue(c.r.Header, contentDigest); !there && err == nil && slices.Contains(names, "content-digest") {
		add.Set(contentDigest, "sha-256=:"+base64.StdEncoding.EncodeToString(c.bodySHA256())+":")
	}
	full := c.r
	full.Header = join(c.r.Header, add)
	c.r = full
	m := sfMember{list: true}
	for _, name := range names {
		m.inner = append(m.inner, sfItem{kind: sfString, text: name})
	}
	m.item.params = []sfParam{{"created", sfItem{kind: sfInteger, text: strconv.FormatInt(c.now.Unix(), 10)}}}
	if k.ID != "" {
		m.item.params = append(m.item.params, sfParam{"keyid", sfItem{kind: sfString, text: k.ID}})
	}
	base, fault := c.signatureBase(&m)
	if fault != nil {
		return Request{}, fault
	}
	sig, err := c.messageSignature(k, []byte(base))
	if err != nil {
		return Request{}, err
	}
	label := cmp.Or(c.p.recipe.Label, "sig1")
	var input strings.Builder
	m.writeInnerList(&input)
	full.Header = join(full.Header, http.Header{
		"Signature":    {label + "=:" + base64.StdEncoding.EncodeToString(sig) + ":"},
		signatureInput: {label + "=" + input.String()},
	})
	return full, nil
}

func (c *check) messageSignature(k *Key, base []byte) ([]byte, error) {
	public := k.Secret.data().public
	switch c.p.sigAlg() {
	case defaultSigAlg:
		return k.mac(hashSHA256, base), nil
	case "ecdsa-p256-sha256":
		return public.signRS(base)
	case "rsa-pss-sha512":
		return public.signPSS(base)
	}
	return public.sign(&c.p.algo, base)
}
