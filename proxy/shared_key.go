package proxy

import (
	"fmt"
	"slices"

	"github.com/hooklatch/hooklatch/verify"
)

// SharedKey is a secret by which one sender could speak for another.
type SharedKey struct {
	Source, KeyID string // who may not have it
	// With, of Tenant, has it as WithKeyID: another source, or the other scheme of
	// this one.
	With, Tenant, WithKeyID string
	// Answers: With gives anybody an HMAC of a text of his choice, as handshakes of
	// kind keyed_answer do. Else the tenants differ.
	Answers bool
}

func (k SharedKey) Error() string {
	if k.Answers {
		return fmt.Sprintf("key %s is that of source %s, which answers challenges of anybody under it: such an answer can sign a delivery here", k.KeyID, k.With)
	}
	return fmt.Sprintf("key %s has the secret of %s, a key of tenant %s: either could sign for the other", k.KeyID, k.WithKeyID, k.Tenant)
}

// SharedKeys finds secrets of two tenants, and those under which one source answers
// the challenges of anybody while another takes deliveries. [New] refuses sources
// that have any. Public keys are nobody's secret.
func SharedKeys(sources []Source) []SharedKey {
	var found []SharedKey
	for i, s := range sources {
		for _, v := range s.verifiers() {
			for j, other := range sources {
				for _, w := range other.verifiers() {
					if v == w {
						continue
					}
					answers := answersAnybody(w) && !v.Scheme.HasHandshake("keyed_answer")
					if answers || j < i && s.Tenant != other.Tenant {
						found = append(found, shared(s, v, other, w, answers)...)
					}
				}
			}
		}
	}
	return found
}

func (s *Source) verifiers() []*verify.Verifier {
	return slices.DeleteFunc([]*verify.Verifier{s.Verifier, s.Second}, func(v *verify.Verifier) bool { return v == nil })
}

// answersAnybody says whether whoever asks gets an answer under the key of v. A scheme
// with such answers takes no delivery whose signature they could be.
func answersAnybody(v *verify.Verifier) bool {
	return !v.Handshakes.Off && slices.ContainsFunc(v.Scheme.Recipe().Handshake, func(h verify.HandshakeRecipe) bool {
		return h.Kind == "keyed_answer" && h.Verify == ""
	})
}

func shared(s Source, v *verify.Verifier, other Source, w *verify.Verifier, answers bool) (found []SharedKey) {
	for _, k := range v.Keys.Keys() {
		for _, o := range w.Keys.Keys() {
			if k.Secret.Equal(o.Secret) {
				found = append(found, SharedKey{Source: s.Name, KeyID: k.ID, With: other.Name, Tenant: other.Tenant, WithKeyID: o.ID, Answers: answers})
			}
		}
	}
	return found
}
