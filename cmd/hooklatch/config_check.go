package main

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/goccy/go-yaml/token"

	"github.com/hooklatch/hooklatch/verify"
)

// checker finds what is wrong beyond the grammar.
type checker struct {
	c        *config
	now      time.Time
	problems []problem
	warnings []problem
	notes    []problem // what the schemes leave open
}

// Hard bounds of what can be configured.
const (
	maxMaxBody     = 25 << 20
	maxActiveKeys  = 4
	wideTolerance  = 900 * time.Second
	keyEndsSoon    = 14 * 24 * time.Hour
	maxConcurrency = 1024
	maxInFlight    = 16_384
	maxBodyBytes   = 8 << 30
)

var nameGrammar = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (ch *checker) problem(path, format string, args ...any) {
	ch.problems = append(ch.problems, problem{Path: path, Message: fmt.Sprintf(format, args...), token: ch.c.at.near(path)})
}

func (ch *checker) warn(path, format string, args ...any) {
	ch.warnings = append(ch.warnings, problem{Path: path, Message: fmt.Sprintf(format, args...), token: ch.c.at.near(path)})
}

func (ch *checker) config() {
	c := ch.c
	if c.Version != 1 {
		ch.problem("version", "version must be 1: this program reads no other format")
	}
	ch.listen()
	ch.oneOf("database.migrate", c.Database.Migrate, "check", "auto")
	ch.oneOf("database.pooler", c.Database.Pooler, "none", "pgbouncer")
	ch.bodies()
	ch.stop()
	ch.oneOf("log.level", c.Log.Level, logLevels...)
	ch.oneOf("log.format", c.Log.Format, "json", "text")
	ch.tolerance("defaults.tolerance", c.Defaults.Tolerance)
	if len(c.Sources) == 0 {
		ch.problem("sources", "no source is named: nothing would be accepted")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		ch.source(name, c.Sources[name])
	}
	ch.retention()
	ch.upstream()
	ch.trustedProxies()
	ch.routes()
	ch.tenants()
	for _, name := range slices.Sorted(maps.Keys(c.Destinations)) {
		ch.destination(name, c.Destinations[name])
	}
}

func (ch *checker) listen() {
	c := ch.c
	if c.Listen.HTTPS == "" && c.Listen.HTTP == "" {
		ch.problem("listen", "nowhere to listen: set listen.https, or listen.http with tls.mode off")
	}
	switch c.TLS.Mode {
	case "off":
		if c.Listen.HTTPS != "" {
			ch.problem("listen.https", "https needs certificates: set tls {mode: files, certificates: [{cert: F, key: F}]}")
		}
		if len(c.TLS.Certificates) > 0 {
			ch.problem("tls.certificates", "certificates are not used with mode off")
		}
		if c.Listen.HTTP != "" && !loopback(c.Listen.HTTP) {
			ch.warn("listen.http", "plain HTTP on an address that others can reach: whoever is on the way can read bodies")
		}
	case "files":
		if len(c.TLS.Certificates) == 0 {
			ch.problem("tls", "mode files needs certificates: [{cert: F, key: F}]")
		}
		if c.Listen.HTTPS == "" {
			ch.problem("listen", "tls is on, but listen.https is not set")
		}
		if c.Listen.HTTP != "" {
			ch.problem("listen.http", "http beside https answers ACME challenges, which are not in this version")
		}
	case "acme":
		ch.problem("tls.mode", "mode acme is not in this version: files and off are")
	case "":
		ch.problem("listen.https", "tls.mode is missing: files or off")
	default:
		ch.oneOf("tls.mode", c.TLS.Mode, "files", "off")
	}
	for i, pair := range c.TLS.Certificates {
		if pair.Cert == "" || pair.Key == "" {
			ch.problem(fmt.Sprintf("tls.certificates[%d]", i), "a certificate needs both cert and key")
		}
	}
	for path, address := range map[string]string{"listen.https": c.Listen.HTTPS, "listen.http": c.Listen.HTTP, "listen.admin": c.Listen.Admin} {
		if path == "listen.admin" && strings.HasPrefix(address, "unix:/") {
			continue
		}
		if address == "" {
			continue
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			ch.problem(path, "%q is no address such as 127.0.0.1:9470 or :443", address)
		} else if _, err := net.LookupPort("tcp", port); err != nil {
			ch.problem(path, "%q is no port: 0 to 65535 are", port)
		}
	}
	if !loopback(c.Listen.Admin) && !strings.HasPrefix(c.Listen.Admin, "unix:/") {
		ch.warn("listen.admin", "the private listener can be reached from elsewhere, and asks nobody who they are")
	}
}

// loopback says whether only this machine can reach the address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (ch *checker) bodies() {
	c := ch.c
	if c.Limits.InFlight < 1 || c.Limits.InFlight > maxInFlight {
		ch.problem("limits.in_flight", "in_flight must be 1 to %d", maxInFlight)
	}
	if c.Limits.BodyBytes < 1 || c.Limits.BodyBytes > maxBodyBytes {
		ch.problem("limits.body_bytes", "body_bytes must be 1 to %s", size(maxBodyBytes))
	}
	ch.body("defaults.max_body", c.Defaults.MaxBody)
}

func (ch *checker) body(path string, z size) {
	switch {
	case ch.c.at[path] == nil:
	case z < 1 || z > maxMaxBody:
		ch.problem(path, "max_body must be 1 to %s", size(maxMaxBody))
	case z > ch.c.Limits.BodyBytes:
		ch.problem(path, "max_body %s exceeds limits.body_bytes %s: no such body could ever be taken", z, ch.c.Limits.BodyBytes)
	}
}

func (ch *checker) stop() {
	s := ch.c.Stop
	for path, d := range map[string]duration{"stop.shutdown": s.Shutdown, "stop.attempts": s.Attempts, "stop.total": s.Total} {
		ch.positive(path, time.Duration(d))
	}
	if s.LameDuck+s.Shutdown > s.Total || s.Attempts > s.Total {
		ch.problem("stop", "stop.total %s is shorter than lame_duck and shutdown, or than attempts", s.Total)
	}
}

func (ch *checker) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		ch.problem(path, "%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

// positive refuses a value that was given as 0; what was left out is no matter.
func (ch *checker) positive(path string, d time.Duration) {
	if ch.c.at[path] != nil && d <= 0 {
		ch.problem(path, "%s must be more than 0", path[strings.LastIndex(path, ".")+1:])
	}
}

func (ch *checker) name(kind, path, name string) {
	if !nameGrammar.MatchString(name) {
		ch.problem(path, "%q is no name of a %s: 1 to 64 of A-Z a-z 0-9 . _ -, first a letter or digit", name, kind)
	}
}

// routes refuses two sources that one request could mean.
func (ch *checker) routes() {
	taken := map[string]string{}
	names := slices.Sorted(maps.Keys(ch.c.Sources))
	// The later in the file is the one to point at.
	sort.SliceStable(names, func(i, j int) bool {
		return ch.c.at.line("sources."+names[i]) < ch.c.at.line("sources."+names[j])
	})
	for _, name := range names {
		s := ch.c.Sources[name]
		route := strings.ToLower(s.Host) + s.Path
		if first, ok := taken[route]; ok && s.Path != "" {
			ch.problem("sources."+name+".path", "source %s has this host and path too", first)
			continue
		}
		taken[route] = name
	}
}

func (ch *checker) tenants() {
	tenants := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(ch.c.Sources)) {
		tenants[ch.c.Sources[name].Tenant] = name
	}
	sortedTenants := slices.Sorted(maps.Keys(tenants))
	for i, a := range sortedTenants {
		for _, b := range sortedTenants[i+1:] {
			if len(a) > 2 && editDistance(a, b) == 1 {
				ch.warn("sources."+tenants[b]+".tenant", "tenants %s and %s differ by one character: are they two?", a, b)
			}
		}
	}
}

// near returns the place of path, or of what holds it where it was not given.
func (p positions) near(path string) *token.Token {
	for {
		if t, ok := p[path]; ok {
			return t
		}
		if path == "" {
			return nil
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// line is the line of path, 0 where it was not given.
func (p positions) line(path string) int {
	if t := p.near(path); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// title names a scheme in a sentence.
func title(scheme verify.Scheme) string {
	if scheme.Name() == "" {
		return "the scheme"
	}
	return "scheme " + scheme.Name()
}

func unknownPreset(name string) error {
	if near := nearest(name, verify.Presets()); near != "" {
		return fmt.Errorf("no scheme is called %q, did you mean %s?", name, near)
	}
	return fmt.Errorf("no scheme is called %q: %s are built in", name, listed(verify.Presets()))
}
