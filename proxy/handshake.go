package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

var (
	errKeyedAnswers = errors.New("too many answers under the key")
	errConfirm      = errors.New("confirmation cannot be taken")
)

// answersPost says whether a recipe has a handshake that looks like a delivery.
func answersPost(r verify.Recipe) bool {
	return slices.ContainsFunc(r.Handshake, func(h verify.HandshakeRecipe) bool {
		return h.Method == "" || h.Method == http.MethodPost
	})
}

// bodyless answers a handshake by another method than POST. A body is not read.
func (x *exchange) bodyless(req verify.Request) error {
	answer, ok, err := x.verifier.Handshake(req)
	if err == nil && !ok {
		err = errMethod
	}
	if err != nil {
		return err
	}
	return x.shake(&verify.Envelope{}, &answer)
}

// suspect looks for a handshake in a request whose header is refused by err. What
// is read for that is little, and whatever else is found in it, err stands.
func (x *exchange) suspect(req verify.Request, err error) error {
	x.limit = min(x.limit, verify.MaxHandshakeBody)
	found := x.receive(req)
	if errors.Is(found, errTooLarge) {
		return err
	}
	return found
}

// shake answers a handshake: nothing is stored, nothing handed on.
func (x *exchange) shake(env *verify.Envelope, a *verify.Answer) error {
	s, res := x.source, &x.result
	res.Handshake, res.Scheme = a.Kind, x.verifier.Scheme.Name()
	res.KeyID, res.Retiring, res.Distance = env.KeyID, env.Retiring, env.Distance
	// What is written or queued for the sender is not undone when it hangs up.
	ctx := context.WithoutCancel(x.r.Context())
	if a.Keyed && !s.keyed.allow(s.now()) {
		return errKeyedAnswers
	}
	if secret := a.Offer(); secret != nil {
		if err := s.take(ctx, secret); err != nil {
			res.Err = err
			return err
		}
	}
	if a.Confirm != "" && s.confirm != nil {
		if err := s.confirm(ctx, a.Confirm); err != nil {
			res.Err = err
			return fmt.Errorf("%w: %w", errConfirm, err)
		}
	}
	res.Outcome, res.Status = OutcomeHandshake, a.Status
	h := x.w.Header()
	for name, values := range a.Header {
		h[name] = values
	}
	x.out = append(x.out[:0], a.Body...)
	x.answer(res.RequestID.String(), a.Status, a.Header["Content-Type"], false)
	return nil
}

// take makes the secret that a sender hands over the source's key. Of two at once
// one is first, and then the time for it is over.
func (s *source) take(ctx context.Context, secret []byte) error {
	s.enrolling.Lock()
	defer s.enrolling.Unlock()
	v := *s.verifier()
	if v.Handshakes.EnrolUntil.IsZero() {
		return &verify.Error{Reason: verify.ReasonHandshakeRefused, Scheme: v.Scheme.Name()}
	}
	keys, err := s.enrol(ctx, secret)
	if err != nil {
		return fmt.Errorf("enrol: %w", err)
	}
	v.Keys, v.Handshakes.EnrolUntil = keys, time.Time{}
	if err := v.Check(); err != nil {
		return fmt.Errorf("enrol: %w", err)
	}
	s.current.Store(&v)
	return nil
}

// keyedAnswers bounds how often a source answers under its signing key.
type keyedAnswers struct {
	mu   sync.Mutex
	last [5]time.Time // of the answers in the past minute; a ring
	next int
}

func (k *keyedAnswers) allow(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.last[k.next]; !at.IsZero() && now.Sub(at) < time.Minute {
		return false
	}
	k.last[k.next] = now
	k.next = (k.next + 1) % len(k.last)
	return true
}
