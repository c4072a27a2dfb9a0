package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/hooklatch/hooklatch/verify"
)

// enrolment keeps the secret that the sender of a source hands over. It is nil for
// sources that wait for none.
//
// Other processes on the same configuration know nothing of it until they start
// again.
func (s *server) enrolment(name string) func(context.Context, []byte) (verify.KeySet, error) {
	v, source := s.secrets.Verifiers[name], s.cfg.Sources[name]
	at := slices.IndexFunc(source.Keys, func(k keyConfig) bool { return !k.EnrolUntil.IsZero() })
	if v == nil || at < 0 || v.Handshakes.EnrolUntil.IsZero() {
		return nil
	}
	k, file := &source.Keys[at], s.cfg.path(source.Keys[at].Secret.File)
	return func(_ context.Context, secret []byte) (verify.KeySet, error) {
		s.enrolling.Lock()
		defer s.enrolling.Unlock()
		if _, err := os.Lstat(file); err == nil {
			return verify.KeySet{}, refuseEnrolment(v, file+" is there already")
		}
		key, err := verify.NewKey(k.ID, secret, secretSpec(v.Scheme, k.Encoding))
		if err != nil {
			return verify.KeySet{}, refuseEnrolment(v, err.Error())
		}
		key.NotBefore, key.NotAfter = k.NotBefore, k.NotAfter
		if s.foreign(source.Tenant, key) {
			return verify.KeySet{}, refuseEnrolment(v, "the secret is that of a key of another tenant")
		}
		keys, err := verify.NewKeySet(append(v.Keys.Keys(), key)...)
		if err != nil {
			return verify.KeySet{}, err
		}
		if err := writeKey(file, string(secret), 0o600); err != nil {
			return verify.KeySet{}, err
		}
		s.enrolled = append(s.enrolled, tenantKey{source.Tenant, key})
		s.metrics.configureKey(name, key)
		s.log.Info("enrolled: the sender has handed over its secret", "source", name, "key_id", k.ID, "file", file)
		return keys, nil
	}
}

// refuseEnrolment is what the sender is told, and why, for the log.
func refuseEnrolment(v *verify.Verifier, why string) error {
	return fmt.Errorf("%s: %w", why, &verify.Error{Reason: verify.ReasonHandshakeRefused, Scheme: v.Scheme.Name()})
}

type tenantKey struct {
	tenant string
	verify.Key
}

// foreign says whether a key of another tenant has this secret: the configuration
// would be refused at the next start.
func (s *server) foreign(tenant string, key verify.Key) bool {
	for _, other := range s.enrolled {
		if other.tenant != tenant && other.Secret.Equal(key.Secret) {
			return true
		}
	}
	for _, verifiers := range []map[string]*verify.Verifier{s.secrets.Verifiers, s.secrets.Seconds} {
		for name, v := range verifiers {
			if s.cfg.Sources[name].Tenant == tenant || v == nil {
				continue
			}
			for _, other := range v.Keys.Keys() {
				if other.Secret.Equal(key.Secret) {
					return true
				}
			}
		}
	}
	return false
}
