package verify

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

const (
	maxHandshakeValue = 256
	maxKeyedValue     = 128
	leastOffer        = 16
	maxEnrol          = time.Hour
)

// checkHandshakes is the part of Check about handshakes.
func (v *Verifier) checkHandshakes() error {
	h := &v.Handshakes
	for _, o := range h.Origins {
		if !echoable(o) {
			return errors.New("an origin holds other characters than an answer may")
		}
	}
	if h.EnrolUntil.IsZero() {
		return nil
	}
	now := time.Now
	if v.Now != nil {
		now = v.Now
	}
	switch {
	case h.Off || !v.Scheme.HasHandshake(kindEnrol):
		return errors.New("no secret is handed over by requests")
	case h.EnrolUntil.Sub(now()) > maxEnrol:
		return errors.New("a secret may be handed over for one hour at most")
	}
	return nil
}

// echoable bounds reflected input: nothing that HTML or a script could begin with.
func echoable(s string) bool {
	if s == "" || len(s) > maxHandshakeValue {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' || strings.IndexByte(`<>&"'`, s[i]) >= 0 {
			return false
		}
	}
	return true
}

// keyedValue bounds what is answered with a MAC under the signing key. No JSON
// object or array is in this alphabet, nor a form of two fields; [check.challenge]
// sees to the rest. A scheme without that must not have the key: Mailgun's signs a
// timestamp and a token, all of it in the alphabet.
func keyedValue(s string) bool {
	if s == "" || len(s) > maxKeyedValue {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '=' || c == '-') {
			return false
		}
	}
	return true
}

// challenge says whether the signed text is one that a keyed answer would sign for
// anybody. Such a signature proves nothing, so no delivery is taken on it.
func (c *check) challenge() bool {
	n := 0
	for i := range c.p.parts {
		switch p := &c.p.parts[i]; p.kind {
		case partLiteral:
			n += len(p.text)
		case partBody:
			n += len(c.r.Body)
		default:
			n += len(c.tokens[i])
		}
	}
	return n <= maxKeyedValue && keyedValue(string(c.signedText()))
}

// allowOrigin tells a sender of CloudEvents that it may send here.
func (c *check) allowOrigin(a *Answer, origin string) bool {
	known := false
	for _, o := range c.v.Handshakes.Origins {
		known = known || strings.EqualFold(o, origin)
	}
	if !known || !echoable(origin) {
		return false
	}
	a.Header["Allow"] = []string{http.MethodPost}
	a.Header["WebHook-Allowed-Origin"] = []string{origin}
	rate, there, err := headerValue(c.r.Header, "WebHook-Request-Rate")
	if err != nil || there && !wholeNumber(rate) {
		return false
	}
	if there {
		a.Header["WebHook-Allowed-Rate"] = []string{rate}
	}
	return true
}

func wholeNumber(s string) bool {
	return len(s) <= 9 && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// enrol takes the secret that is to be the key from now on.
func (c *check) enrol(h *handshake, a *Answer, secret string) bool {
	if !c.now.Before(c.v.Handshakes.EnrolUntil) || len(secret) < leastOffer || !echoable(secret) || strings.Contains(secret, " ") {
		return false
	}
	key, err := NewKey("", []byte(secret), c.v.Scheme.SecretSpec())
	if err != nil || !c.p.usable(&key) {
		return false
	}
	a.offer = func() []byte { return []byte(secret) }
	if f := h.fields[h.from].p; f.kind == placeHeader {
		a.Header[http.CanonicalHeaderKey(f.name)] = []string{secret}
	}
	return true
}

// confirmHosts are the hosts that may be called. They are not data: a recipe
// narrows them by its pattern, and cannot name others.
var confirmHosts = []*regexp.Regexp{
	regexp.MustCompile(`^sns\.[a-zA-Z0-9-]{3,}\.amazonaws\.com(\.cn)?(:443)?$`),
	regexp.MustCompile(`^([a-zA-Z0-9-]+\.)+eventgrid\.azure\.net(:443|:553)?$`),
}

func confirmable(s string) bool {
	if len(s) > 2048 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '\\' {
			return false
		}
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return false
	}
	for _, host := range confirmHosts {
		if host.MatchString(u.Host) {
			return true
		}
	}
	return false
}
