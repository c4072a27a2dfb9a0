package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/consumer/kafka"
	"github.com/hooklatch/hooklatch/consumer/nats"
)

// sink is where the forwards of a destination go.
type sink interface {
	consumer.Handler
	// Look finds out whether somebody is there. date is his clock, zero where he shows
	// none.
	Look(ctx context.Context) (date time.Time, err error)
	Close()
}

// loginConfig is as whom we come to NATS or Kafka.
type loginConfig struct {
	User      string    `json:"user,omitempty" jsonschema:"name that logs in; left out with NATS: secret is a credentials file"`
	Secret    secretRef `json:"secret" jsonschema:"where the password or the credentials file stands; fetched at each login"`
	Mechanism string    `json:"mechanism,omitempty" jsonschema:"of Kafka: scram-sha-512, scram-sha-256 or plain; defaults to scram-sha-512"`
}

func (l loginConfig) isZero() bool { return l.User == "" && l.Secret.isZero() && l.Mechanism == "" }

var loginMechanisms = []string{"scram-sha-512", "scram-sha-256", "plain"}

// logURL is the URL of a destination that keeps what it gets: servers of a cluster, and
// a subject or a topic.
type logURL struct {
	kind    string // nats or kafka
	tls     bool
	servers []string // host:port
	name    string
}

// logPorts are the schemes of such URLs, with their usual ports.
var logPorts = map[string]string{"nats": "4222", "kafka": "9092"}

// parseLogURL reads the URL of such a destination. ok: it is one, good or not.
func parseLogURL(text string) (u logURL, ok bool, err error) {
	scheme, rest, _ := strings.Cut(text, "://")
	u.kind, u.tls = strings.CutSuffix(strings.ToLower(scheme), "+tls")
	port, ok := logPorts[u.kind]
	if !ok {
		return u, false, nil
	}
	servers, name, _ := strings.Cut(rest, "/")
	if u.name = name; servers == "" || name == "" || strings.ContainsAny(rest, "?#@ ") {
		return u, true, fmt.Errorf("url must be %s://HOST:PORT/%s, with a comma between several servers",
			u.kind, map[string]string{"nats": "SUBJECT", "kafka": "TOPIC"}[u.kind])
	}
	for server := range strings.SplitSeq(servers, ",") {
		host, given, err := net.SplitHostPort(server)
		if err != nil { // without a port, or no server at all
			host, given = strings.Trim(server, "[]"), port
		}
		if host == "" || given == "" {
			return u, true, fmt.Errorf("%q is no HOST:PORT", server)
		}
		u.servers = append(u.servers, net.JoinHostPort(host, given))
	}
	return u, true, nil
}

// log checks a destination that keeps what it gets.
func (ch *checker) log(at string, d *destinationConfig, u logURL, err error) {
	before := len(ch.problems)
	switch {
	case strings.Contains(d.URL, "@"):
		ch.problems = append(ch.problems, problem{Path: at + ".url", Message: "a password does not stand in the file: see login", token: ch.c.at[at+".url"], hide: true})
	case err != nil:
		ch.problem(at+".url", "%v", err)
	}
	for _, only := range []struct {
		key string
		set bool
	}{{"responses", len(d.Responses) > 0}, {"sign", d.Sign != nil}, {"socket", d.Socket != ""}} {
		if only.set {
			ch.problem(at+"."+only.key, "%s is for http and https, and url is %s", only.key, u.kind)
		}
	}
	ch.addresses(at, d)
	if d.TLS != (clientTLSConfig{}) && !u.tls {
		ch.problem(at+".tls", "tls is for %s+tls, and url is %s", u.kind, u.kind)
	}
	ch.login(at, d, u)
	if len(ch.problems) > before {
		return
	}
	made, err := d.openLog(ch.c, u, nil, time.Duration(d.Timeout), nil)
	if err != nil {
		path := at + ".url"
		if _, message, found := strings.Cut(err.Error(), "Addresses: "); found {
			path, err = at+".addresses", errors.New(message)
		}
		ch.problem(path, "%s", strings.TrimPrefix(err.Error(), u.kind+": "))
		return
	}
	made.Close()
}

func (ch *checker) login(at string, d *destinationConfig, u logURL) {
	l := d.Login
	switch {
	case l.isZero():
		return
	case l.Secret.isZero():
		ch.problem(at+".login", "secret is missing: {file: F}, {env: NAME} or {exec: [PROGRAM]}")
	case u.kind == "kafka" && l.User == "":
		ch.problem(at+".login", "user is missing")
	case u.kind == "nats" && l.Mechanism != "":
		ch.problem(at+".login.mechanism", "mechanism is for kafka, and url is nats")
	}
	if l.Mechanism != "" {
		ch.oneOf(at+".login.mechanism", l.Mechanism, loginMechanisms...)
	}
	if !u.tls && (u.kind == "nats" && l.User != "" || l.Mechanism == "plain") && slices.ContainsFunc(u.servers, func(server string) bool { host, _, _ := net.SplitHostPort(server); return !isLocal(host) }) {
		ch.warn(at+".login", "the password goes over the network in the clear: %s+tls:// hides it", u.kind)
	}
}

// openSink makes what a destination's forwards are handed to.
func (c *config) openSink(name string, from credentials, timeout time.Duration, onError func(error)) (sink, error) {
	d := c.Destinations[name]
	if u, ok, err := parseLogURL(d.URL); err != nil {
		return nil, err
	} else if ok {
		return d.openLog(c, u, from.TLS, timeout, onError)
	}
	cfg := c.forwarderConfig(name, from)
	cfg.Timeout = timeout
	return consumer.NewForwarder(cfg)
}

// openLog makes the Handler of a destination that keeps what it gets.
func (d *destinationConfig) openLog(c *config, u logURL, certificates *tls.Config, timeout time.Duration, onError func(error)) (sink, error) {
	if u.tls && certificates == nil {
		certificates = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	var secret func(context.Context) ([]byte, error)
	if !d.Login.Secret.isZero() {
		secret = func(ctx context.Context) ([]byte, error) { return d.Login.Secret.read(ctx, c.dir) }
	}
	if u.kind == "kafka" {
		return kafka.New(kafka.Config{
			Brokers: u.servers, Topic: u.name, Timeout: timeout, TLS: certificates, Addresses: d.prefixes(),
			User: d.Login.User, Secret: secret, Mechanism: d.Login.Mechanism,
		})
	}
	return nats.New(nats.Config{
		Servers: u.servers, Subject: u.name, Timeout: timeout, TLS: certificates, Addresses: d.prefixes(),
		User: d.Login.User, Secret: secret, OnError: onError,
	})
}
