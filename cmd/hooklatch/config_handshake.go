package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// handshakeConfig says how a source answers what its sender asks before it sends.
type handshakeConfig struct {
	Off     bool      `json:"off,omitempty" jsonschema:"true: none is answered; such a request has to verify as a delivery does"`
	Token   secretRef `json:"token,omitzero" jsonschema:"where the word stands that the sender repeats in its challenge, such as Meta's verify token; without it these are refused"`
	Origins []string  `json:"origins,omitempty" jsonschema:"senders that are told they may send here, as in WebHook-Request-Origin; without it none is"`
	Confirm string    `json:"confirm,omitempty" jsonschema:"auto: the URL that a sender wants called is called, once; manual: it is logged, for a person to call. Defaults to auto"`
}

var confirmChoices = []string{"auto", "manual"}

// maxEnrol is how long after the start a secret can be handed over.
const maxEnrol = time.Hour

// shaking is the scheme whose handshakes the settings are for.
func shaking(schemes []verify.Scheme) verify.Scheme {
	if len(schemes) == 2 && len(schemes[0].Recipe().Handshake) == 0 {
		return schemes[1]
	}
	return schemes[0]
}

// handshake checks what the scheme's handshakes need, and that there are such.
func (ch *checker) handshake(at string, s *sourceConfig, scheme verify.Scheme) {
	h, here := &s.Handshake, at+".handshake"
	ch.enrolments(at, s, scheme)
	given := func(key string) bool { return ch.c.at[here+"."+key] != nil }
	if ch.c.at[here] != nil && len(scheme.Recipe().Handshake) == 0 {
		ch.problem(here, "%s has no handshake", title(scheme))
		return
	}
	if h.Off && (given("token") || given("origins") || given("confirm")) {
		ch.problem(here, "handshakes are off: the other settings are of no use")
		return
	}
	if given("confirm") {
		ch.oneOf(here+".confirm", h.Confirm, confirmChoices...)
	}
	echoes, confirms := scheme.HasHandshake("header_echo"), scheme.HasHandshake("outbound")
	for _, use := range []struct {
		key  string
		used bool
	}{{"token", scheme.HandshakeNeedsToken()}, {"origins", echoes}, {"confirm", confirms}} {
		if given(use.key) && !use.used {
			ch.problem(here+"."+use.key, "%s has no handshake that uses %s", title(scheme), use.key)
		}
	}
	for i, o := range h.Origins {
		if o == "" || strings.ContainsAny(o, "<>&\"' \t\r\n*") {
			ch.problem(fmt.Sprintf("%s.origins[%d]", here, i), "%q is no origin such as eventemitter.example.com", o)
		}
	}
	switch {
	case h.Off:
	case scheme.HandshakeNeedsToken() && h.Token.isZero():
		ch.warn(at, "%s asks for a token when a hook is made: without handshake.token this is refused", title(scheme))
	case echoes && len(h.Origins) == 0:
		ch.warn(at, "%s asks whether it may send: without handshake.origins the answer is no", title(scheme))
	}
}

// enrolments checks the keys whose secret the sender will hand over.
func (ch *checker) enrolments(at string, s *sourceConfig, scheme verify.Scheme) {
	first := ""
	for i, k := range s.Keys {
		here := fmt.Sprintf("%s.keys[%d].enrol_until", at, i)
		switch {
		case ch.c.at[here] == nil:
			continue
		case !scheme.HasHandshake("enrol"):
			ch.problem(here, "%s hands over no secret: keygen makes one, or the sender shows it", title(scheme))
		case s.Scheme.second != nil:
			ch.problem(here, "a secret is handed over to a source of one scheme alone")
		case s.Handshake.Off:
			ch.problem(here, "handshakes are off: no secret can be handed over")
		case k.Secret.File == "":
			ch.problem(here, "the secret is written to a file: secret must be {file: F}")
		case k.EnrolUntil.Sub(ch.now) > maxEnrol:
			ch.problem(here, "enrol_until must lie at most %s ahead: whoever calls first in that time names the key", duration(maxEnrol))
		case first != "":
			ch.problem(here, "key %s waits for a secret too: one at a time", first)
		}
		first = k.ID
	}
}

// enrolling says whether the key's secret is still to be handed over.
func (l *loader) enrolling(k *keyConfig) bool {
	if k.EnrolUntil.IsZero() || k.Secret.File == "" || !time.Now().Before(k.EnrolUntil) {
		return false
	}
	_, err := os.Lstat(l.c.path(k.Secret.File))
	return errors.Is(err, fs.ErrNotExist)
}

// handshakes makes what a verifier is told of handshakes, all but the time of an
// enrolment.
func (l *loader) handshakes(ctx context.Context, at string, s *sourceConfig, keys []verify.Key) verify.Handshakes {
	h := verify.Handshakes{Off: s.Handshake.Off, Origins: s.Handshake.Origins}
	if s.Handshake.Token.isZero() {
		return h
	}
	here := at + ".handshake.token"
	text, err := s.Handshake.Token.read(ctx, l.c.dir)
	if err != nil {
		l.unset(s.Handshake.Token, "…")
		l.problem(here, "handshake.token: %v", err)
		return h
	}
	token, err := verify.NewKey("", text, verify.SecretSpec{})
	if err != nil {
		_, rule, _ := strings.Cut(err.Error(), verify.ErrKeyUnusable.Error()+": ")
		l.problem(here, "handshake.token: %s (%s)", rule, s.Handshake.Token)
		return h
	}
	for _, k := range keys {
		if k.Secret.Equal(token.Secret) {
			l.warnings = append(l.warnings, problem{Path: here, token: l.c.at.near(here),
				Message: fmt.Sprintf("handshake.token is the secret of key %s: it comes in URLs, which are logged on their way", k.ID)})
		}
	}
	h.Token = token.Secret
	return h
}
