package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// strongSecret is the least number of bytes that pass without a warning.
const strongSecret = 24

// loader fetches secrets and finds what only they can show.
type loader struct {
	c        *config
	problems []problem
	warnings []problem
	try      string   // what helps, where that is known
	exports  []string // and the variables to set
}

// found is the error of a configuration whose secrets cannot be used.
func (l *loader) found() error {
	if l.try == "" && len(l.exports) > 0 {
		l.try = "export " + strings.Join(l.exports, " ")
	}
	return fail(exitConfig, &configProblems{l.c.file, sorted(l.problems)}, l.try)
}

// unset says how to set the variable of a reference that could not be read.
func (l *loader) unset(r secretRef, value string) {
	export := r.Env + "=" + value
	if r.Env != "" && !slices.Contains(l.exports, export) {
		l.exports = append(l.exports, export)
	}
}

func (l *loader) problem(path, format string, args ...any) {
	l.problems = append(l.problems, problem{Path: path, Message: fmt.Sprintf(format, args...), token: l.c.at.near(path)})
}

// verifiers makes those of each source: the first, and the second where it has two
// schemes.
func (l *loader) verifiers(ctx context.Context) (first, second map[string]*verify.Verifier) {
	first, second = map[string]*verify.Verifier{}, map[string]*verify.Verifier{}
	for _, name := range slices.Sorted(maps.Keys(l.c.Sources)) {
		all := l.source(ctx, name)
		if first[name] = all[0]; len(all) == 2 {
			second[name] = all[1]
		}
	}
	return first, second
}

// source makes a verifier for each scheme of a source, nil for one that cannot be.
func (l *loader) source(ctx context.Context, name string) []*verify.Verifier {
	s, at := l.c.Sources[name], "sources."+name
	schemes, err := s.compile()
	if err != nil {
		l.problem(at+".scheme", "%v", err)
		return []*verify.Verifier{nil}
	}
	var all []*verify.Verifier
	for _, scheme := range schemes {
		all = append(all, l.verifier(ctx, at, s, scheme))
	}
	return all
}

func (l *loader) verifier(ctx context.Context, at string, s *sourceConfig, scheme verify.Scheme) *verify.Verifier {
	before := len(l.problems)
	var keys []verify.Key
	var enrolUntil time.Time
	serving, places := s.keysOf(scheme)
	for i, k := range serving {
		if l.enrolling(&k) {
			enrolUntil = k.EnrolUntil
			continue
		}
		if key, ok := l.key(ctx, fmt.Sprintf("%s.keys[%d]", at, places[i]), k, scheme); ok {
			keys = append(keys, key)
		}
	}
	handshakes := l.handshakes(ctx, at, s, keys)
	handshakes.EnrolUntil = enrolUntil
	if len(l.problems) > before {
		return nil
	}
	set, err := verify.NewKeySet(keys...)
	if err != nil {
		l.problem(at+".keys", "%s", withoutPackage(err))
		return nil
	}
	v := &verify.Verifier{
		Scheme: scheme, Keys: set, Tolerance: l.c.tolerance(s, scheme), MaxBody: int(s.MaxBody),
		URL: s.PublicURL, Params: s.Params, Handshakes: handshakes,
	}
	if err := v.Check(); err != nil {
		l.problem(at+".keys", "%s", withoutPackage(err))
		return nil
	}
	return v
}

// tolerance is the source's, or the default where the recipe names none either. Zero:
// the scheme has its own, or deliberately none.
func (c *config) tolerance(s *sourceConfig, scheme verify.Scheme) time.Duration {
	if t := scheme.Recipe().Timestamp; s.Tolerance == 0 && t != nil && t.ToleranceS == 0 {
		return time.Duration(c.Defaults.Tolerance)
	}
	return time.Duration(s.Tolerance)
}

// window is how far the timestamp of a request may be from now. 0: none is checked.
func (c *config) window(s *sourceConfig, scheme verify.Scheme) time.Duration {
	if !scheme.HasTimestamp() {
		return 0
	}
	return cmp.Or(c.tolerance(s, scheme), scheme.Tolerance())
}

func (l *loader) key(ctx context.Context, at string, k keyConfig, scheme verify.Scheme) (verify.Key, bool) {
	text, err := k.Secret.read(ctx, l.c.dir)
	if err != nil {
		if k.Secret.File != "" && errors.Is(err, fs.ErrNotExist) {
			if !k.EnrolUntil.IsZero() {
				l.try = "enrol_until: " + time.Now().Add(maxEnrol/2).UTC().Format(time.RFC3339) + "   and then have the sender make the hook"
			} else {
				l.try = "hooklatch keygen -o " + shellQuote(l.c.path(k.Secret.File)) + "   unless the sender has made the key"
			}
		}
		l.unset(k.Secret, "…")
		l.problem(at+".secret", "key %s: %v", k.ID, err)
		return verify.Key{}, false
	}
	key, err := verify.NewKey(k.ID, text, secretSpec(scheme, k.Encoding))
	if err == nil {
		err = fits(key, scheme)
	}
	if err != nil {
		l.problem(at+".secret", "%s (%s)", withoutPackage(err), k.Secret)
		return verify.Key{}, false
	}
	if strong := secretSpec(scheme, k.Encoding); strong.MinLen < strongSecret {
		strong.MinLen = strongSecret
		if _, err := verify.NewKey(k.ID, text, strong); err != nil {
			l.warnings = append(l.warnings, problem{Path: at + ".secret", token: l.c.at.near(at + ".secret"),
				Message: fmt.Sprintf("the secret of key %s has fewer than %d bytes: 32 random ones are good, as keygen makes them", k.ID, strongSecret)})
		}
	}
	key.NotBefore, key.NotAfter = k.NotBefore, k.NotAfter
	return key, true
}

// fits says whether the key is of the kind that the scheme takes.
func fits(key verify.Key, scheme verify.Scheme) error {
	set, err := verify.NewKeySet(key)
	if err != nil {
		return err
	}
	v := verify.Verifier{Scheme: scheme, Keys: set}
	if err := v.Check(); errors.Is(err, verify.ErrKeyUnusable) {
		return err // what else is missing is not the key's fault
	}
	return nil
}

// secretSpec is the scheme's way to read secrets, with another encoding where
// the key has one of its own. That one then takes the whole text.
func secretSpec(scheme verify.Scheme, encoding string) verify.SecretSpec {
	spec := scheme.SecretSpec()
	if encoding != "" && encoding != spec.Encoding {
		spec.Encoding, spec.StripPrefix = encoding, nil
	}
	return spec
}

func withoutPackage(err error) string {
	return strings.TrimPrefix(err.Error(), "verify: ")
}

// databaseURL fetches the URL of the database.
func (l *loader) databaseURL(ctx context.Context) string {
	text, err := l.c.Database.URL.read(ctx, l.c.dir)
	if err != nil {
		l.unset(l.c.Database.URL, "postgres://user:password@host/database")
		l.problem("database.url", "database.url: %v", err)
		return ""
	}
	url := strings.TrimSpace(string(text))
	if _, err := pgxpool.ParseConfig(url); err != nil {
		// pgx masks the password in its message, but not in a text that is no URL.
		l.problem("database.url", "database.url: %s holds no connection URL such as postgres://user:password@host/database", l.c.Database.URL)
	}
	return url
}

// certificates loads the certificates to serve.
func (l *loader) certificates() []tls.Certificate {
	var all []tls.Certificate
	for i, pair := range l.c.TLS.Certificates {
		at := fmt.Sprintf("tls.certificates[%d]", i)
		cert, err := loadCertificate(l.c.path(pair.Cert), l.c.path(pair.Key))
		if err != nil {
			l.problem(at, "%v", err)
			continue
		}
		if left := time.Until(cert.Leaf.NotAfter); left < keyEndsSoon {
			l.warnings = append(l.warnings, problem{Path: at, token: l.c.at.near(at),
				Message: fmt.Sprintf("the certificate %s ends %s", pair.Cert, cert.Leaf.NotAfter.Format(time.RFC3339))})
		}
		all = append(all, cert)
	}
	return all
}

func loadCertificate(cert, key string) (tls.Certificate, error) {
	certPEM, err := os.ReadFile(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := readSecretFile(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return pair, nil
}

// shared finds secrets by which one sender could speak for another.
func (l *loader) shared(first, second map[string]*verify.Verifier) {
	var sources []proxy.Source
	for _, name := range slices.Sorted(maps.Keys(first)) {
		sources = append(sources, proxy.Source{Name: name, Tenant: l.c.Sources[name].Tenant, Verifier: first[name], Second: second[name]})
	}
	for _, k := range proxy.SharedKeys(sources) {
		i := slices.IndexFunc(l.c.Sources[k.Source].Keys, func(c keyConfig) bool { return c.ID == k.KeyID })
		l.problem(fmt.Sprintf("sources.%s.keys[%d].secret", k.Source, i), "%v", k)
	}
}

// secrets is what the references of a configuration lead to.
type secrets struct {
	Verifiers    map[string]*verify.Verifier // by source
	Seconds      map[string]*verify.Verifier // the same of sources with two schemes
	DatabaseURL  string
	Certificates []tls.Certificate
	Destinations map[string]credentials
}

// loadSecrets fetches every secret. Its error has exit code 3 and holds every
// problem that was found. Warnings are added to those of the configuration.
func (c *config) loadSecrets(ctx context.Context) (*secrets, error) {
	l := newLoader(c)
	first, second := l.verifiers(ctx)
	all := &secrets{
		Verifiers:    first,
		Seconds:      second,
		DatabaseURL:  l.databaseURL(ctx),
		Certificates: l.certificates(),
		Destinations: l.destinations(ctx, first, second),
	}
	l.shared(first, second)
	if len(l.problems) > 0 {
		return nil, l.found()
	}
	c.warnings = sorted(append(c.warnings, l.warnings...))
	return all, nil
}

// sourceVerifiers makes the verifiers of one source, one for each of its schemes.
func (c *config) sourceVerifiers(ctx context.Context, name string) ([]*verify.Verifier, error) {
	if c.Sources[name] == nil {
		known := slices.Sorted(maps.Keys(c.Sources))
		return nil, usagef("--source "+known[0], "%s has no source %q: %s", c.file, name, configured(known))
	}
	l := newLoader(c)
	all := l.source(ctx, name)
	if len(l.problems) > 0 {
		return nil, l.found()
	}
	return all, nil
}

func newLoader(c *config) *loader {
	return &loader{c: c}
}
