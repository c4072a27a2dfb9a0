package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// checkRetention says how long a repeat is told from a new delivery.
func checkRetention(c *config) finding {
	window, source := c.replayWindow()
	f := finding{check: "retention", level: fine, what: fmt.Sprintf("bodies %s, attempts %s, identities %s", c.Retention.Body, c.Retention.Attempts, c.Retention.Identity)}
	if window > 0 {
		f.what += fmt.Sprintf("; a captured request verifies for %s at most (source %s)", duration(window), source)
	}
	return f
}

// checkKeys reads every key: its span, its length, and what is odd about its place.
func checkKeys(ctx context.Context, c *config) []finding {
	l := newLoader(c)
	first, second := l.verifiers(ctx)
	l.shared(first, second)
	destinations := l.destinations(ctx, first, second)
	var found []finding
	for _, p := range sorted(l.problems) {
		found = append(found, finding{check: "keys", what: fmt.Sprintf("%s:%d: %s", c.file, p.Line, p.Message), fix: l.try})
	}
	for _, w := range sorted(l.warnings) {
		found = append(found, finding{check: "keys", level: doubtful, what: fmt.Sprintf("%s:%d: %s", c.file, w.Line, w.Message)})
	}
	now := time.Now()
	for _, name := range sortedKeys(c.Sources) {
		for _, v := range []*verify.Verifier{first[name], second[name]} {
			if v == nil {
				continue
			}
			for _, key := range v.Keys.Keys() {
				i := slices.IndexFunc(c.Sources[name].Keys, func(k keyConfig) bool { return k.ID == key.ID })
				found = append(found, checkKey(c, name, key, c.Sources[name].Keys[i].Secret, now))
			}
		}
	}
	for _, name := range sortedKeys(c.Destinations) {
		for _, key := range destinations[name].Keys {
			i := slices.IndexFunc(c.Destinations[name].Sign, func(k signKeyConfig) bool { return k.ID == key.ID })
			found = append(found, checkKey(c, "destination "+name, key, c.Destinations[name].Sign[i].Secret, now))
		}
	}
	return append(found, checkSharedSecrets(c, first, second)...)
}

// checkKey says how long a key is and how long it is valid; of is whose it is.
func checkKey(c *config, of string, key verify.Key, from secretRef, now time.Time) finding {
	f := finding{check: "key", level: fine, what: fmt.Sprintf("%s of %s: ", key.ID, of)}
	if n := key.Secret.Len(); n > 0 {
		f.what += counted(n, "byte") + ", "
	}
	switch {
	case now.Before(key.NotBefore):
		f.what += "valid in " + age(key.NotBefore.Sub(now))
	case key.NotAfter.IsZero():
		f.what += "valid for ever"
	case now.Before(key.NotAfter):
		f.what += "valid for another " + age(key.NotAfter.Sub(now))
	default:
		f.what += "expired " + age(now.Sub(key.NotAfter)) + " ago"
	}
	switch {
	case from.File != "":
		f.place(c.path(from.File))
	case from.Env != "":
		f.what += "; from the environment, which child processes and core dumps see: a file is kept closer"
	}
	return f
}

// place adds what is odd about the file of a secret.
func (f *finding) place(file string) {
	stat, err := os.Stat(file)
	if err != nil || !stat.Mode().IsRegular() || stat.Size() > maxSecretFile {
		return
	}
	if text, err := os.ReadFile(file); err == nil && bytes.HasSuffix(text, []byte("\n")) {
		f.what += "; the line end of its file is no part of it"
	}
	if stat.Mode().Perm()&fs.FileMode(0o004) != 0 {
		f.level, f.fix = doubtful, "chmod o-r "+shellQuote(file)
		f.what += "; everybody on this machine may read its file"
	}
}

// checkSharedSecrets finds one secret in two places of a tenant: what was captured from
// one sender could be sent to the path of the other.
func checkSharedSecrets(c *config, first, second map[string]*verify.Verifier) (found []finding) {
	type place struct {
		source string
		key    verify.Key
	}
	var places []place
	for _, name := range sortedKeys(c.Sources) {
		for _, v := range []*verify.Verifier{first[name], second[name]} {
			if v == nil {
				continue
			}
			for _, key := range v.Keys.Keys() {
				for _, other := range places {
					if c.Sources[other.source].Tenant == c.Sources[name].Tenant && other.key.Secret.Equal(key.Secret) {
						found = append(found, finding{check: "keys", level: doubtful, fix: "hooklatch keygen   makes one for each",
							what: fmt.Sprintf("%s of %s and %s of %s are one secret: a request that was captured from one could be sent to the other", other.key.ID, other.source, key.ID, name)})
					}
				}
				places = append(places, place{name, key})
			}
		}
	}
	return found
}

// checkCertificates says how long they last: those that are served, and those that are
// shown to destinations.
func checkCertificates(c *config) (found []finding) {
	pairs := slices.Clone(c.TLS.Certificates)
	for _, name := range sortedKeys(c.Destinations) {
		if d := c.Destinations[name]; d.TLS.Cert != "" {
			pairs = append(pairs, certificateConfig{d.TLS.Cert, d.TLS.Key})
		}
	}
	for _, pair := range pairs {
		cert, err := loadCertificate(c.path(pair.Cert), c.path(pair.Key))
		if err != nil {
			found = append(found, finding{check: "certificate", what: err.Error()})
			continue
		}
		left := time.Until(cert.Leaf.NotAfter)
		f := finding{check: "certificate", level: fine, what: fmt.Sprintf("%s: %s left", pair.Cert, age(max(left, 0)))}
		switch {
		case left <= 0:
			f.level, f.what, f.fix = wrong, pair.Cert+": it has ended", "renew it and restart"
		case left < keyEndsSoon:
			f.level, f.fix = doubtful, "renew it and restart"
		}
		found = append(found, f)
	}
	return found
}

// destinationPatience bounds the look at a destination.
const destinationPatience = 5 * time.Second

// checkDestinations looks whether somebody answers where forwards go, all at once.
func checkDestinations(ctx context.Context, c *config) []finding {
	names := sortedKeys(c.Destinations)
	found := make([]finding, len(names))
	var looking sync.WaitGroup
	for i, name := range names {
		looking.Go(func() { found[i] = checkDestination(ctx, c, name) })
	}
	looking.Wait()
	return found
}

func checkDestination(ctx context.Context, c *config, name string) finding {
	f := finding{check: "destination", level: fine}
	l, d := newLoader(c), c.Destinations[name]
	certificates := l.clientTLS("destinations."+name, d)
	if len(l.problems) > 0 {
		return finding{check: f.check, what: name + ": " + l.problems[0].Message}
	}
	to, err := c.openSink(name, credentials{TLS: certificates}, destinationPatience, nil)
	if err != nil {
		return finding{check: f.check, what: name + ": " + err.Error()}
	}
	defer to.Close()
	start := time.Now()
	date, err := to.Look(ctx)
	took := time.Since(start)
	if err != nil {
		return finding{check: f.check, what: name + ": " + firstLine(err), fix: "start it, or mend destinations." + name + ".url"}
	}
	f.what = fmt.Sprintf("%s: answers in %s", name, took.Round(time.Millisecond))
	if date.IsZero() {
		if _, isLog, _ := parseLogURL(c.Destinations[name].URL); !isLog {
			f.what += ", without a Date"
		}
		return f
	}
	// A Date has whole seconds, and was written somewhere within the round trip.
	if off := date.Sub(start); off < -clockWarning-time.Second || off > clockWarning+took {
		f.level, f.fix = doubtful, "set its clock by NTP: signatures of what is sent there carry the time"
		f.what += fmt.Sprintf(", and its clock is %s off", age(off.Abs()))
	}
	return f
}
