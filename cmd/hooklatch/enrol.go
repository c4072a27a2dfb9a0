package main

import (
	"context"
	"errors"
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
	k := &source.Keys[at]
	return func(_ context.Context, secret []byte) (verify.KeySet, error) {
		key, err := verify.NewKey(k.ID, secret, secretSpec(v.Scheme, k.Encoding))
		if err != nil {
			return verify.KeySet{}, err
		}
		key.NotBefore, key.NotAfter = k.NotBefore, k.NotAfter
		if s.foreign(source.Tenant, key) {
			return verify.KeySet{}, errors.New("the secret is that of a key of another tenant")
		}
		keys, err := verify.NewKeySet(append(v.Keys.Keys(), key)...)
		if err != nil {
			return verify.KeySet{}, err
		}
		file := s.cfg.path(k.Secret.File)
		if err := writeKey(file, string(secret), 0o600); err != nil {
			return verify.KeySet{}, err
		}
		s.metrics.configureKey(name, key)
		s.log.Info("enrolled: the sender has handed over its secret", "source", name, "key_id", k.ID, "file", file)
		return keys, nil
	}
}

// foreign says whether a key of another tenant has this secret: the configuration
// would be refused at the next start.
func (s *server) foreign(tenant string, key verify.Key) bool {
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
