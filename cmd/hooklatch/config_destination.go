package main

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/hooklatch/hooklatch/consumer"
)

// destinationConfig is where deliveries are handed on.
type destinationConfig struct {
	URL         string      `json:"url" jsonschema:"where deliveries are handed on: an http or https URL that they are posted to, nats://HOST/SUBJECT or kafka://HOST/TOPIC; nats+tls and kafka+tls with TLS, and a comma between several hosts"`
	Timeout     duration    `json:"timeout,omitzero" jsonschema:"of one attempt; defaults to 10s"`
	Concurrency int         `json:"concurrency,omitempty" jsonschema:"attempts at once; defaults to 16"`
	Retry       retryConfig `json:"retry,omitzero" jsonschema:"when a failed attempt is repeated"`

	Rate    pace           `json:"rate,omitzero" jsonschema:"attempts in a time, such as 50/s, 600/m or 1000/h; of one process; defaults to no bound"`
	Shares  map[string]int `json:"shares,omitempty" jsonschema:"weight of each tenant, 1 to 100, where several feed the destination and more is due than it takes; defaults to 1 each"`
	Breaker breakerConfig  `json:"breaker,omitzero" jsonschema:"when a destination that fails is left alone"`

	Responses map[string]string `json:"responses,omitempty" jsonschema:"what a status (404) or a class (4xx) means, where that is not the usual: accepted, retry_wait or blocked"`
	Sign      signConfig        `json:"sign,omitzero" jsonschema:"key with which each request is signed by Standard Webhooks; two of them in a list while the app goes over from one to the other"`
	Addresses []string          `json:"addresses,omitzero" jsonschema:"addresses or CIDRs that may be connected to; defaults to every address but those that no app has"`
	Socket    string            `json:"socket,omitempty" jsonschema:"unix socket that is connected to in place of the host of url"`
	TLS       clientTLSConfig   `json:"tls,omitzero" jsonschema:"how the destination is checked, and who we are to it"`
	Login     loginConfig       `json:"login,omitzero" jsonschema:"of nats and kafka: as whom we come"`

	Owner string `json:"owner,omitempty" jsonschema:"who looks after its dead letters"`
}

type retryConfig struct {
	Base        duration `json:"base,omitzero" jsonschema:"bound of the first wait, doubled each time; defaults to 1s"`
	Cap         duration `json:"cap,omitzero" jsonschema:"longest wait; defaults to 15m"`
	MaxAttempts int      `json:"max_attempts,omitempty" jsonschema:"attempts that count; defaults to 12"`
	Deadline    duration `json:"deadline,omitzero" jsonschema:"time after receipt in which attempts begin, or after its turn came where a delivery had to wait for others of its resource; defaults to 24h"`
}

type breakerConfig struct {
	Failures int      `json:"failures,omitempty" jsonschema:"failures in a row that open it: 5xx, 429, no answer in time or none at all; defaults to 5"`
	OpenFor  duration `json:"open_for,omitzero" jsonschema:"time until one attempt is let through again; defaults to 30s"`
}

// signConfig is one key, or a list of them.
type signConfig []signKeyConfig

type signKeyConfig struct {
	ID        string    `json:"id" jsonschema:"name of the key"`
	Secret    secretRef `json:"secret" jsonschema:"where the secret stands"`
	Encoding  string    `json:"encoding,omitempty" jsonschema:"utf8, hex, base64 or whsec; defaults to whsec"`
	NotBefore time.Time `json:"not_before,omitzero" jsonschema:"first instant at which it signs"`
	NotAfter  time.Time `json:"not_after,omitzero" jsonschema:"first instant at which it no longer signs"`
}

func (s *signConfig) decodeNode(d *decoder, n ast.Node, path string) {
	if _, ok := n.(ast.MapNode); ok {
		*s = make(signConfig, 1)
		d.object(n, reflect.ValueOf(&(*s)[0]).Elem(), path)
		return
	}
	d.list(n, reflect.ValueOf((*[]signKeyConfig)(s)).Elem(), path)
}

type clientTLSConfig struct {
	CA   string `json:"ca,omitempty" jsonschema:"PEM file of the authorities that are believed; defaults to those of the system"`
	Cert string `json:"cert,omitempty" jsonschema:"PEM file of the certificate that is shown to the destination"`
	Key  string `json:"key,omitempty" jsonschema:"PEM file of its private key"`
}

func (ch *checker) destination(name string, d *destinationConfig) {
	at := "destinations." + name
	ch.name("destination", at, name)
	u, err := url.Parse(d.URL)
	log, isLog, logErr := parseLogURL(d.URL)
	switch {
	case isLog:
		ch.log(at, d, log, logErr)
	case d.URL == "":
		ch.problem(at, "url is missing")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		ch.problem(at+".url", "url must be an http or https URL with a host, or one of nats or kafka")
	case u.User != nil:
		// The excerpt would print the password.
		ch.problems = append(ch.problems, problem{Path: at + ".url", Message: "a password does not stand in the file", token: ch.c.at[at+".url"], hide: true})
	case u.Fragment != "":
		ch.problem(at+".url", "url must have no fragment")
	default:
		ch.forwarder(at, d, u)
	}
	ch.positive(at+".timeout", time.Duration(d.Timeout))
	ch.positive(at+".retry.base", time.Duration(d.Retry.Base))
	ch.positive(at+".retry.deadline", time.Duration(d.Retry.Deadline))
	if time.Duration(d.Timeout) > 5*time.Minute {
		ch.problem(at+".timeout", "timeout must be at most 5m")
	}
	if d.Concurrency < 1 || d.Concurrency > maxConcurrency {
		ch.problem(at+".concurrency", "concurrency must be 1 to %d", maxConcurrency)
	}
	if d.Retry.Cap < d.Retry.Base {
		ch.problem(at+".retry", "retry.cap %s is shorter than retry.base %s", d.Retry.Cap, d.Retry.Base)
	}
	if d.Retry.MaxAttempts < 1 {
		ch.problem(at+".retry.max_attempts", "max_attempts must be at least 1")
	}
	if d.Breaker.Failures < 1 {
		ch.problem(at+".breaker.failures", "failures must be at least 1")
	}
	ch.positive(at+".breaker.open_for", time.Duration(d.Breaker.OpenFor))
	ch.shares(at+".shares", name, d.Shares)
	for _, s := range ch.c.Sources {
		for _, r := range s.Forward {
			if r.To == name {
				return
			}
		}
	}
	ch.warn(at, "no source forwards to %s", name)
}

func (ch *checker) shares(at, destination string, shares map[string]int) {
	tenants := ch.c.tenantsOf(destination)
	for _, tenant := range slices.Sorted(maps.Keys(shares)) {
		if weight := shares[tenant]; weight < 1 || weight > consumer.MaxWeight {
			ch.problem(at+"."+tenant, "the weight of a tenant must be 1 to %d", consumer.MaxWeight)
		}
		if !slices.Contains(tenants, tenant) {
			ch.problem(at+"."+tenant, "no source of tenant %s forwards to %s", tenant, destination)
		}
	}
	if len(shares) > 0 && len(tenants) == 1 {
		ch.warn(at, "shares change nothing: %s is the only tenant that feeds %s", tenants[0], destination)
	}
}
