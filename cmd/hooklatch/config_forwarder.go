package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

var (
	responseChoices = []string{"accepted", "retry_wait", "blocked"}
	signEncodings   = []string{"utf8", "hex", "base64", "whsec"}
	statusOrClass   = regexp.MustCompile(`^[2-5](xx|[0-9]{2})$`)
)

// maxSocketPath is what the systems that we run on take.
const maxSocketPath = 103

// forwarder checks what only destinations over HTTP have, and their URL.
func (ch *checker) forwarder(at string, d *destinationConfig, u *url.URL) {
	before := len(ch.problems)
	for _, status := range slices.Sorted(maps.Keys(d.Responses)) {
		path := at + ".responses." + status
		if !statusOrClass.MatchString(status) {
			ch.problem(path, "%q is neither a status such as 404 nor a class such as 4xx", status)
		}
		ch.oneOf(path, d.Responses[status], responseChoices...)
	}
	ch.signing(at, d)
	ch.addresses(at, d)
	switch {
	case d.Socket != "" && len(d.Addresses) > 0:
		ch.problem(at+".addresses", "addresses are those of a network, and socket is in none")
	case d.Socket != "" && len(ch.c.path(d.Socket)) > maxSocketPath:
		ch.problem(at+".socket", "the path of a socket has at most %d bytes", maxSocketPath)
	}
	if d.TLS != (clientTLSConfig{}) && u.Scheme != "https" {
		ch.problem(at+".tls", "tls is for https, and url is not")
	}
	if !d.Login.isZero() {
		ch.problem(at+".login", "login is for nats and kafka, and url is %s", u.Scheme)
	}
	if len(ch.problems) > before {
		return
	}
	f, err := consumer.NewForwarder(d.forwarder(ch.c))
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "consumer: ")
		if strings.HasPrefix(message, "Addresses") {
			ch.problem(at+".addresses", "%s", strings.TrimPrefix(message, "Addresses: "))
		} else {
			ch.problem(at+".url", "%s", message)
		}
		return
	}
	f.Close()
	if upstream := ch.c.upstream(); len(d.Sign) == 0 && upstream != nil && upstream.Serves(d.URL) {
		ch.warn(at, "the destination lies at upstream and has no sign: the app cannot tell what hooklatch has checked from what it passes through")
	}
}

// addresses checks what of a connection every destination has.
func (ch *checker) addresses(at string, d *destinationConfig) {
	for i, text := range d.Addresses {
		if _, err := parseAddresses(text); err != nil {
			ch.problem(fmt.Sprintf("%s.addresses[%d]", at, i), "%q is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8", text)
		}
	}
	if d.Addresses != nil && len(d.Addresses) == 0 {
		ch.problem(at+".addresses", "no address is listed: nothing could be connected to")
	}
	if (d.TLS.Cert == "") != (d.TLS.Key == "") {
		ch.problem(at+".tls", "a certificate needs both cert and key")
	}
}

func portOf(u *url.URL) string {
	if u.Port() == "" && u.Scheme == "https" {
		return "443"
	}
	return cmp.Or(u.Port(), "80")
}

// parseAddresses reads an address or a range of them.
func parseAddresses(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// signPath is where the i-th key stands, which need not be in a list.
func (c *config) signPath(at string, i int) string {
	if entry := fmt.Sprintf("%s.sign[%d]", at, i); c.at[entry] != nil {
		return entry
	}
	return at + ".sign"
}

func (ch *checker) signing(at string, d *destinationConfig) {
	if d.Sign != nil && len(d.Sign) == 0 {
		ch.problem(at+".sign", "no key is listed: leave sign out where nothing is to be signed")
	}
	ids := map[string]bool{}
	var spans []keyConfig
	for i, k := range d.Sign {
		entry := ch.c.signPath(at, i)
		switch {
		case k.ID == "":
			ch.problem(entry, "id is missing")
		case ids[k.ID]:
			ch.problem(entry+".id", "key %s stands twice", k.ID)
		}
		ids[k.ID] = true
		if k.Secret.isZero() {
			ch.problem(entry, "secret is missing: {file: F}, {env: NAME} or {exec: [PROGRAM]}")
		}
		if k.Encoding != "" {
			ch.oneOf(entry+".encoding", k.Encoding, signEncodings...)
		}
		if !k.NotBefore.IsZero() && !k.NotAfter.IsZero() && !k.NotBefore.Before(k.NotAfter) {
			ch.problem(entry+".not_after", "key %s is never valid: not_after does not lie behind not_before", k.ID)
		}
		spans = append(spans, keyConfig{NotBefore: k.NotBefore, NotAfter: k.NotAfter})
	}
	if len(spans) > 0 {
		ch.ends(at+".sign", spans, "nothing is sent until one is")
	}
}

// forwarder is what the HTTP side of a destination is told, without secrets.
func (d *destinationConfig) forwarder(c *config) consumer.ForwarderConfig {
	cfg := consumer.ForwarderConfig{URL: d.URL, Timeout: time.Duration(d.Timeout), Connections: d.Concurrency}
	if d.Socket != "" {
		cfg.Socket = c.path(d.Socket)
	}
	cfg.Addresses = d.prefixes()
	if len(d.Responses) > 0 {
		cfg.Responses = map[string]inbox.Outcome{}
	}
	for status, means := range d.Responses {
		cfg.Responses[status] = map[string]inbox.Outcome{
			"accepted": inbox.OutcomeAccepted, "retry_wait": inbox.OutcomeRetry, "blocked": inbox.OutcomeBlocked,
		}[means]
	}
	return cfg
}

// prefixes are the addresses that may be connected to; nil: as usual.
func (d *destinationConfig) prefixes() (all []netip.Prefix) {
	for _, text := range d.Addresses {
		if p, err := parseAddresses(text); err == nil { // checked
			all = append(all, p)
		}
	}
	return all
}

// credentials are what a destination knows us by, and we it.
type credentials struct {
	Keys []verify.Key // in the order of sign; for what is said of them
	Sign []consumer.SigningKey
	TLS  *tls.Config // nil: as usual
}

// destinations loads the credentials of each destination, and finds secrets by which
// one could speak for another.
func (l *loader) destinations(ctx context.Context, verifiers ...map[string]*verify.Verifier) map[string]credentials {
	all := map[string]credentials{}
	for _, name := range slices.Sorted(maps.Keys(l.c.Destinations)) {
		c := l.destination(ctx, name)
		for i, key := range c.Keys {
			l.foreignKey(name, i, key, all, verifiers)
		}
		all[name] = c
	}
	return all
}

// destination loads the credentials of one.
func (l *loader) destination(ctx context.Context, name string) credentials {
	at, d := "destinations."+name, l.c.Destinations[name]
	c := credentials{TLS: l.clientTLS(at, d)}
	if !d.Login.Secret.isZero() {
		if _, err := d.Login.Secret.read(ctx, l.c.dir); err != nil {
			l.unset(d.Login.Secret, "…")
			l.problem(at+".login.secret", "login: %v", err)
		}
	}
	for i, k := range d.Sign {
		path := l.c.signPath(at, i) + ".secret"
		text, err := k.Secret.read(ctx, l.c.dir)
		if err != nil {
			if k.Secret.File != "" && errors.Is(err, fs.ErrNotExist) {
				l.try = fmt.Sprintf("hooklatch keygen --format %s -o %s   and give it to the app", l.keyFormat(k), shellQuote(l.c.path(k.Secret.File)))
			}
			l.unset(k.Secret, "…")
			l.problem(path, "key %s: %v", k.ID, err)
			continue
		}
		encoding := cmp.Or(k.Encoding, "whsec")
		key, err := verify.NewKey(k.ID, text, verify.SecretSpec{Encoding: encoding, MinLen: strongSecret})
		if err != nil {
			l.problem(path, "%s (%s)", withoutPackage(err), k.Secret)
			continue
		}
		key.NotBefore, key.NotAfter = k.NotBefore, k.NotAfter
		c.Keys = append(c.Keys, key)
		c.Sign = append(c.Sign, consumer.SigningKey{ID: k.ID, Secret: rawSecret(text, encoding), NotBefore: k.NotBefore, NotAfter: k.NotAfter})
	}
	return c
}

// keyFormat is how keygen calls the encoding of a key.
func (l *loader) keyFormat(k signKeyConfig) string {
	if k.Encoding == "utf8" {
		return "hex" // used as text
	}
	return cmp.Or(k.Encoding, "whsec")
}

// rawSecret decodes what verify.NewKey has found good.
func rawSecret(text []byte, encoding string) consumer.Secret {
	var raw []byte
	switch encoding {
	case "hex":
		raw, _ = hex.DecodeString(string(text))
	case "base64", "whsec":
		raw, _ = base64.StdEncoding.DecodeString(strings.TrimPrefix(string(text), "whsec_"))
	default:
		raw = text
	}
	return raw
}

// foreignKey finds out whether a signing secret is also somebody else's. A sender that
// has it could speak to the app without us; another destination could too.
func (l *loader) foreignKey(name string, i int, key verify.Key, others map[string]credentials, verifiers []map[string]*verify.Verifier) {
	path := l.c.signPath("destinations."+name, i) + ".secret"
	for _, bySource := range verifiers {
		for _, source := range slices.Sorted(maps.Keys(bySource)) {
			if bySource[source] == nil {
				continue
			}
			for _, k := range bySource[source].Keys.Keys() {
				if k.Secret.Equal(key.Secret) {
					l.problem(path, "key %s is also key %s of source %s: the sender could speak to the app in our name", key.ID, k.ID, source)
				}
			}
		}
	}
	for _, other := range slices.Sorted(maps.Keys(others)) {
		for _, k := range others[other].Keys {
			if k.Secret.Equal(key.Secret) {
				l.warnings = append(l.warnings, problem{Path: path, token: l.c.at.near(path),
					Message: fmt.Sprintf("key %s is also key %s of destination %s: what one was sent, it could send to the other", key.ID, k.ID, other)})
			}
		}
	}
}

// clientTLS is how a destination is checked and what it is shown; nil: as usual.
func (l *loader) clientTLS(at string, d *destinationConfig) *tls.Config {
	if d.TLS == (clientTLSConfig{}) {
		return nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.TLS.CA != "" {
		text, err := os.ReadFile(l.c.path(d.TLS.CA))
		cfg.RootCAs = x509.NewCertPool()
		if err != nil {
			l.problem(at+".tls.ca", "%v", err)
		} else if !cfg.RootCAs.AppendCertsFromPEM(text) {
			l.problem(at+".tls.ca", "%s holds no certificate in PEM", d.TLS.CA)
		}
	}
	if d.TLS.Cert == "" {
		return cfg
	}
	cert, err := loadCertificate(l.c.path(d.TLS.Cert), l.c.path(d.TLS.Key))
	if err != nil {
		l.problem(at+".tls.cert", "%v", err)
		return cfg
	}
	cfg.Certificates = []tls.Certificate{cert}
	warn := func(format string, args ...any) {
		l.warnings = append(l.warnings, problem{Path: at + ".tls.cert", token: l.c.at.near(at + ".tls.cert"), Message: fmt.Sprintf(format, args...)})
	}
	if left := time.Until(cert.Leaf.NotAfter); left < keyEndsSoon {
		warn("the certificate %s ends %s", d.TLS.Cert, cert.Leaf.NotAfter.Format(time.RFC3339))
	}
	if usage := cert.Leaf.ExtKeyUsage; len(usage) > 0 && !slices.Contains(usage, x509.ExtKeyUsageClientAuth) && !slices.Contains(usage, x509.ExtKeyUsageAny) {
		warn("the certificate %s is not for clients: the destination will most likely refuse it", d.TLS.Cert)
	}
	return cfg
}
