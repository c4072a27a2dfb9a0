package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"time"
)

// config is the configuration file. It is strict: what is not named here is an
// error that points at its line, and so is what a later version will know. There
// is no $ expansion: it eats passwords. Secrets stand in it as references only.
// Relative paths start at the file's folder.
//
// The json tags name the keys of the file. A key that stands in a "later" tag is
// part of the design and not of this version: it is refused by name, since a
// silently ignored rule is worse than none.
type config struct {
	_ struct{} `later:"console,traces,proxy_protocol"`

	Version  int            `json:"version" jsonschema:"version of this format: 1"`
	Listen   listenConfig   `json:"listen" jsonschema:"where to listen"`
	TLS      tlsConfig      `json:"tls,omitzero" jsonschema:"how https is served"`
	Database databaseConfig `json:"database,omitzero" jsonschema:"the Postgres that holds the inbox"`
	Defaults defaultsConfig `json:"defaults,omitzero" jsonschema:"values of every source that has none of its own"`

	Sources      map[string]*sourceConfig      `json:"sources" jsonschema:"trusted senders, by name"`
	Destinations map[string]*destinationConfig `json:"destinations,omitempty" jsonschema:"where deliveries are handed on, by name"`

	Upstream       string   `json:"upstream,omitempty" jsonschema:"http or https URL of the app that gets every request that is for no source; left out, such a request is answered 404"`
	TrustedProxies []string `json:"trusted_proxies,omitzero" jsonschema:"addresses or CIDRs of proxies in front of hooklatch, whose X-Forwarded-For is believed"`

	Retention retentionConfig `json:"retention,omitzero" jsonschema:"how long what was received is kept. What an open forward needs stays, however old"`
	Refusals  refusalsConfig  `json:"refusals,omitzero" jsonschema:"how long is kept what was refused"`

	Limits limitsConfig `json:"limits,omitzero" jsonschema:"bounds of the whole process"`
	Stop   stopConfig   `json:"stop,omitzero" jsonschema:"times of a graceful stop"`
	Log    logConfig    `json:"log,omitzero" jsonschema:"the log on stderr"`

	file string // as it was named
	dir  string // where relative paths start
	text []byte // what was read
	at   positions

	warnings []problem
	notes    []problem // what the schemes leave open
}

type listenConfig struct {
	HTTPS string `json:"https,omitempty" jsonschema:"address of the TLS listener for sources, such as :443"`
	HTTP  string `json:"http,omitempty" jsonschema:"address of the plain listener for sources; only with tls.mode off"`
	Admin string `json:"admin,omitempty" jsonschema:"address of the private listener; defaults to 127.0.0.1:9470"`
}

type tlsConfig struct {
	_ struct{} `later:"domains,email,ca,storage"`

	Mode         string              `json:"mode,omitempty" jsonschema:"files or off; defaults to off where only listen.http is set"`
	Certificates []certificateConfig `json:"certificates,omitempty" jsonschema:"with mode files: the certificates to serve, picked by server name"`
}

type certificateConfig struct {
	Cert string `json:"cert" jsonschema:"PEM file of the certificate chain"`
	Key  string `json:"key" jsonschema:"PEM file of its private key"`
}

type databaseConfig struct {
	URL     secretRef `json:"url,omitzero" jsonschema:"connection URL; defaults to {env: DATABASE_URL}"`
	Migrate string    `json:"migrate,omitempty" jsonschema:"check: refuse to start on another schema; auto: migrate at start. Defaults to check"`
	Pooler  string    `json:"pooler,omitempty" jsonschema:"none, or pgbouncer for transaction pooling. Defaults to none"`
}

type defaultsConfig struct {
	MaxBody   size     `json:"max_body,omitzero" jsonschema:"largest body; defaults to 256KiB"`
	Tolerance duration `json:"tolerance,omitzero" jsonschema:"of recipes that name no tolerance_s; built-in schemes do, or have no window. Defaults to 300s"`
}

// sourceConfig is one trusted sender.
type sourceConfig struct {
	_ struct{} `later:"expect_every,addresses,rate,backlog,backfill"`

	Tenant string       `json:"tenant" jsonschema:"whose data it is"`
	Host   string       `json:"host,omitempty" jsonschema:"host name that the route demands; defaults to any"`
	Path   string       `json:"path" jsonschema:"exact path of the route"`
	Scheme schemeConfig `json:"scheme" jsonschema:"a built-in scheme, {preset: NAME, …} with fields to replace, or a whole recipe; two of them in a list while the sender goes over from one to the other"`
	Keys   []keyConfig  `json:"keys" jsonschema:"signing keys, whatever their span"`

	Rename    map[string]string `json:"rename,omitempty" jsonschema:"header names of the scheme to replace"`
	Params    map[string]string `json:"params,omitempty" jsonschema:"values of {param:x} in the scheme"`
	PublicURL string            `json:"public_url,omitempty" jsonschema:"URL as the sender knows it, for schemes that sign it"`
	MaxBody   size              `json:"max_body,omitzero" jsonschema:"largest body; defaults to defaults.max_body"`
	Tolerance duration          `json:"tolerance,omitzero" jsonschema:"how far a signed timestamp may be from now, both ways; defaults to that of the scheme"`

	Event    eventConfig    `json:"event,omitzero" jsonschema:"where the event's id and type stand: a JSON pointer such as /data/id, json:a.b, header:NAME, form:NAME, query:NAME or body_sha256_hex"`
	Resource resourceConfig `json:"resource,omitzero" jsonschema:"where the resource and its revision stand, as with event"`

	RequireJSON bool       `json:"require_json,omitempty" jsonschema:"refuse a body that is not JSON, with 400: one value in UTF-8, not compressed"`
	Types       typeConfig `json:"types,omitzero" jsonschema:"which event types are taken as they come; defaults to all"`

	Ordering       string   `json:"ordering,omitempty" jsonschema:"how the deliveries of one resource follow each other at a destination, by revision. none: each on its own; latest: one at a time, and what is older than what was applied is not sent; coalesce: as latest, and of those that wait only the newest is sent; strict: as latest, and none is left out. All but none need resource.id and resource.revision. Defaults to none"`
	GapTimeout     duration `json:"gap_timeout,omitzero" jsonschema:"with ordering strict: how long after its receipt a delivery waits for revisions that are missing before it; left out, until a person releases it"`
	OnConflict     string   `json:"on_conflict,omitempty" jsonschema:"what another body under a delivery id that is taken comes to. reject: conflict_status; accept_first: a success, as of a duplicate, for senders that one refusal turns off. The first body stays and the other is kept as evidence, either way. Defaults to that of the scheme, else reject"`
	ConflictIgnore []string `json:"conflict_ignore,omitzero" jsonschema:"JSON pointers, such as /attempt, to values in which the bodies of one delivery may differ: null stands in their place when they are compared. A body that is not JSON is compared whole. Defaults to those of the scheme; []: none"`
	BodyGuard      string   `json:"body_guard,omitempty" jsonschema:"on: a new delivery id is a duplicate where the source has brought the same body before, within twice the tolerance, or within retention.identity where no signed timestamp is checked. off: it is a delivery. Defaults to on where the scheme does not sign the id and its bodies have an id of their own"`
	SuccessStatus  int      `json:"success_status,omitempty" jsonschema:"status of the answer to an accepted delivery, 200 to 299; defaults to that of the scheme, else 202"`
	SuccessBody    *string  `json:"success_body,omitempty" jsonschema:"body of that answer; empty: none. Defaults to that of the scheme, else a line of JSON"`
	SuccessType    string   `json:"success_type,omitempty" jsonschema:"media type of success_body; defaults to that of the scheme, else text/plain"`
	RefusalStatus  int      `json:"refusal_status,omitempty" jsonschema:"400, 401 or 403: status of the answer where key or signature are wrong; defaults to that of the scheme, else 401"`
	ConflictStatus int      `json:"conflict_status,omitempty" jsonschema:"status of the answer to another body under a delivery id that is taken, 400 to 499 but 410; defaults to that of the scheme, else 409"`

	Handshake handshakeConfig `json:"handshake,omitzero" jsonschema:"how challenges and pings of the scheme are answered; nothing of them is stored"`

	Forward []routeConfig `json:"forward,omitempty" jsonschema:"destinations; every entry that fits makes one forward"`
}

type keyConfig struct {
	ID        string    `json:"id" jsonschema:"name of the key; the key id on the wire where the scheme has one"`
	Secret    secretRef `json:"secret" jsonschema:"where the secret stands"`
	Encoding  string    `json:"encoding,omitempty" jsonschema:"utf8, hex, base64 or whsec, or an encoding of public keys; defaults to that of the scheme"`
	Scheme    string    `json:"scheme,omitempty" jsonschema:"the one of the source's two schemes that the key is for"`
	NotBefore time.Time `json:"not_before,omitzero" jsonschema:"first instant at which the key is accepted"`
	NotAfter  time.Time `json:"not_after,omitzero" jsonschema:"first instant at which it is no longer accepted"`
	// EnrolUntil is for senders that make the secret and hand it over by a request.
	EnrolUntil time.Time `json:"enrol_until,omitzero" jsonschema:"until then, at most an hour after the start, the first request that hands over a secret names it, and it is written to the file of secret, which must not be there yet"`
}

type eventConfig struct {
	_ struct{} `later:"time"`

	ID   fieldConfig `json:"id,omitzero" jsonschema:"id of the event, which stays however often it is sent; the delivery id where the scheme has none"`
	Type fieldConfig `json:"type,omitzero" jsonschema:"type of the event, such as invoice.paid; forward[].types picks by it"`
}

type resourceConfig struct {
	Type     fieldConfig `json:"type,omitzero" jsonschema:"kind of the resource, such as invoice"`
	ID       fieldConfig `json:"id,omitzero" jsonschema:"id of the resource"`
	Revision fieldConfig `json:"revision,omitzero" jsonschema:"revision of the resource, a number that grows"`
	Deleted  fieldConfig `json:"deleted,omitzero" jsonschema:"whether the resource is gone: true or false"`
}

// routeConfig is an entry of forward: a destination's name, or {to, types}.
type routeConfig struct {
	To    string   `json:"to"`
	Types []string `json:"types,omitempty"`
}

// typeConfig is what becomes of event types that nobody has foreseen.
type typeConfig struct {
	Allow []string `json:"allow,omitempty" jsonschema:"event types that are taken as they come, such as invoice.paid or invoice.*; a delivery without a type is none of them"`
	Else  string   `json:"else,omitempty" jsonschema:"what becomes of the others: hold keeps them for a person, refuse answers 400. Defaults to hold"`
}

type limitsConfig struct {
	_ struct{} `later:"connections,connections_per_address,failed_auth,failed_auth_burst"`

	InFlight  int  `json:"in_flight,omitempty" jsonschema:"requests at once; defaults to 256"`
	BodyBytes size `json:"body_bytes,omitzero" jsonschema:"bytes of bodies at once; defaults to 64MiB"`
}

type stopConfig struct {
	LameDuck duration `json:"lame_duck,omitzero" jsonschema:"still accepting after the signal; defaults to 5s"`
	Shutdown duration `json:"shutdown,omitzero" jsonschema:"for requests in flight; defaults to 20s"`
	Attempts duration `json:"attempts,omitzero" jsonschema:"for attempts in flight; defaults to 25s"`
	Total    duration `json:"total,omitzero" jsonschema:"after this the process ends with code 1; defaults to 45s"`
}

// MarshalJSON implements json.Marshaler. A time of 0 is one that was chosen.
func (s stopConfig) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		LameDuck duration `json:"lame_duck"`
		Shutdown duration `json:"shutdown"`
		Attempts duration `json:"attempts"`
		Total    duration `json:"total"`
	}(s))
}

type logConfig struct {
	Level  string `json:"level,omitempty" jsonschema:"debug, info, warn or error; defaults to info"`
	Format string `json:"format,omitempty" jsonschema:"json or text; defaults to json"`
}

// defaultConfigFile is read where no file is named.
const defaultConfigFile = "hooklatch.yaml"

// maxConfigFile bounds a file that is none of ours, such as a device.
const maxConfigFile = 4 << 20

// readConfig reads and checks a configuration, all but what only the secrets
// show. Its error has exit code 3 and holds every problem that was found.
func readConfig(file string) (*config, error) {
	text, err := readProtected(file, maxConfigFile)
	if err != nil {
		return nil, fail(exitConfig, fmt.Errorf("read configuration: %w", err), "hooklatch COMMAND -c FILE")
	}
	return parseConfig(file, text, time.Now())
}

// parseConfig reads text. now decides which keys are valid.
func parseConfig(file string, text []byte, now time.Time) (*config, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // as some editors begin a file
	c := &config{file: file, dir: filepath.Dir(file), text: text}
	d := newDecoder()
	d.document(text, c)
	c.at = d.at
	c.fill()
	ch := &checker{c: c, now: now}
	ch.config()
	for _, p := range ch.problems {
		if !d.explains(p) {
			p.hide = p.hide || d.bare
			d.problems = append(d.problems, p)
		}
	}
	if len(d.problems) > 0 {
		return nil, problemsFound(file, d.problems)
	}
	c.warnings, c.notes = sorted(ch.warnings), sorted(ch.notes)
	return c, nil
}

// fill sets the values that were left out. A value that was given stays, also 0.
func (c *config) fill() {
	setDefault(c, "listen.admin", &c.Listen.Admin, "127.0.0.1:9470")
	if c.Listen.HTTPS == "" {
		setDefault(c, "tls.mode", &c.TLS.Mode, "off")
	}
	if c.Database.URL.isZero() {
		c.Database.URL = secretRef{Env: "DATABASE_URL"}
	}
	setDefault(c, "database.migrate", &c.Database.Migrate, "check")
	setDefault(c, "database.pooler", &c.Database.Pooler, "none")
	setDefault(c, "defaults.max_body", &c.Defaults.MaxBody, 256<<10)
	for name, s := range c.Sources {
		at := "sources." + name
		setDefault(c, at+".max_body", &s.MaxBody, c.Defaults.MaxBody)
		setDefault(c, at+".ordering", &s.Ordering, "none")
	}
	for name, d := range c.Destinations {
		at := "destinations." + name
		setDefault(c, at+".timeout", &d.Timeout, duration(10*time.Second))
		setDefault(c, at+".concurrency", &d.Concurrency, 16)
		setDefault(c, at+".retry.base", &d.Retry.Base, duration(time.Second))
		setDefault(c, at+".retry.cap", &d.Retry.Cap, duration(15*time.Minute))
		setDefault(c, at+".retry.max_attempts", &d.Retry.MaxAttempts, 12)
		setDefault(c, at+".retry.deadline", &d.Retry.Deadline, duration(24*time.Hour))
		setDefault(c, at+".breaker.failures", &d.Breaker.Failures, 5)
		setDefault(c, at+".breaker.open_for", &d.Breaker.OpenFor, duration(30*time.Second))
	}
	c.fillRetention()
	setDefault(c, "limits.in_flight", &c.Limits.InFlight, 256)
	setDefault(c, "limits.body_bytes", &c.Limits.BodyBytes, 64<<20)
	setDefault(c, "stop.lame_duck", &c.Stop.LameDuck, duration(5*time.Second))
	setDefault(c, "stop.shutdown", &c.Stop.Shutdown, duration(20*time.Second))
	setDefault(c, "stop.attempts", &c.Stop.Attempts, duration(25*time.Second))
	setDefault(c, "stop.total", &c.Stop.Total, duration(45*time.Second))
	setDefault(c, "log.level", &c.Log.Level, "info")
	setDefault(c, "log.format", &c.Log.Format, "json")
}

func setDefault[T comparable](c *config, path string, v *T, value T) {
	var zero T
	if *v == zero && c.at[path] == nil {
		*v = value
	}
}

// path resolves a file that the configuration names.
func (c *config) path(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(c.dir, file)
}

// masked writes the configuration, defaults filled in, as JSON without a secret.
// References to secrets are none themselves, but what a program is called with
// may be one, and so may the query of a URL.
func (c *config) masked() ([]byte, error) {
	shown := *c
	shown.Destinations = map[string]*destinationConfig{}
	for name, d := range c.Destinations {
		masked := *d
		masked.URL = maskURL(d.URL)
		shown.Destinations[name] = &masked
	}
	return json.Marshal(shown)
}

// maskURL replaces what of a URL may be a secret: password and query.
func maskURL(s string) string {
	if _, ok, err := parseLogURL(s); ok && err == nil {
		return s // holds neither; with several hosts it is no URL to others
	}
	u, err := url.Parse(s)
	if err != nil {
		return redacted
	}
	if u.User != nil {
		u.User = url.User(redacted)
	}
	if u.RawQuery != "" {
		u.RawQuery = redacted
	}
	return u.String()
}

const redacted = "[redacted]"
