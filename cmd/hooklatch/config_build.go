package main

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

// proxyConfig is what the receiving side is told.
func (c *config) proxyConfig(from *secrets) proxy.Config {
	cfg := proxy.Config{InFlight: c.Limits.InFlight, BodyBytes: int64(c.Limits.BodyBytes),
		Upstream: c.upstream(), TrustedProxies: c.trustedProxies()}
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		s := c.Sources[name]
		cfg.Sources = append(cfg.Sources, proxy.Source{
			Name: name, Tenant: s.Tenant, Host: s.Host, Path: s.Path,
			Verifier: from.Verifiers[name], Second: from.Seconds[name], MaxBody: int64(s.MaxBody),
			EventID: s.Event.ID.Field, EventType: s.Event.Type.Field,
			ResourceType: s.Resource.Type.Field, ResourceID: s.Resource.ID.Field,
			Revision: s.Resource.Revision.Field, Deleted: s.Resource.Deleted.Field,
			RequireJSON: s.RequireJSON, Types: proxy.TypeRule{Allow: s.Types.Allow, Refuse: s.Types.Else == "refuse"},
			Forwards: c.routes(s), Ordering: s.ordering(), GapTimeout: time.Duration(s.GapTimeout),
			OnConflict: s.OnConflict, ConflictIgnore: s.ConflictIgnore, BodyGuard: s.BodyGuard,
			IdentityRetention: time.Duration(c.Retention.Identity),
			SuccessStatus:     s.SuccessStatus, SuccessBody: s.successBody(), SuccessType: s.SuccessType,
			RefusalStatus: s.RefusalStatus, ConflictStatus: s.ConflictStatus,
		})
	}
	return cfg
}

func (s *sourceConfig) ordering() inbox.Ordering {
	if s.Ordering == "none" {
		return inbox.OrderNone
	}
	return inbox.Ordering(s.Ordering)
}

func (c *config) routes(s *sourceConfig) []proxy.Route {
	var routes []proxy.Route
	for _, r := range s.Forward {
		routes = append(routes, proxy.Route{
			Destination: r.To, Types: r.Types, Deadline: time.Duration(c.Destinations[r.To].Retry.Deadline),
		})
	}
	return routes
}

// consumerConfig is what the consumer of a destination is told.
func (c *config) consumerConfig(name string) consumer.Config {
	d := c.Destinations[name]
	return consumer.Config{
		Destination: name,
		Tenants:     c.tenantsOf(name),
		Concurrency: d.Concurrency,
		Timeout:     time.Duration(d.Timeout),
		Rate:        d.Rate.perSecond(),
		Shares:      d.Shares,
		Breaker:     consumer.Breaker{Failures: d.Breaker.Failures, OpenFor: time.Duration(d.Breaker.OpenFor)},
		Retry: consumer.Retry{
			Base: time.Duration(d.Retry.Base), Cap: time.Duration(d.Retry.Cap), MaxAttempts: d.Retry.MaxAttempts,
		},
		Grace: time.Duration(c.Stop.Attempts),
	}
}

// tenantsOf are the tenants of the sources that forward to a destination. One that no
// source forwards to is drained of what is left there, of every tenant.
func (c *config) tenantsOf(destination string) []string {
	fed, all := map[string]bool{}, map[string]bool{}
	for _, s := range c.Sources {
		all[s.Tenant] = true
		if slices.ContainsFunc(s.Forward, func(r routeConfig) bool { return r.To == destination }) {
			fed[s.Tenant] = true
		}
	}
	if len(fed) == 0 {
		fed = all
	}
	return sortedKeys(fed)
}

// forwarderConfig is what the HTTP side of a destination is told.
func (c *config) forwarderConfig(name string, from credentials) consumer.ForwarderConfig {
	cfg := c.Destinations[name].forwarder(c)
	cfg.Sign, cfg.TLS = from.Sign, from.TLS
	return cfg
}

// destinations are what people see of them in the database.
func (c *config) destinations() []inbox.Destination {
	var all []inbox.Destination
	for _, name := range slices.Sorted(maps.Keys(c.Destinations)) {
		all = append(all, inbox.Destination{Name: name, URL: maskURL(c.Destinations[name].URL), Owner: c.Destinations[name].Owner})
	}
	return all
}

// revision is the text and the hash under which a run is remembered. The hash is
// that of the file, so that sha256sum finds out which file ran.
func (c *config) revision() (hash [32]byte, masked string, err error) {
	text, err := c.masked()
	if err != nil {
		return hash, "", err
	}
	if c.text == nil { // not read from a file
		return sha256.Sum256(text), string(text), nil
	}
	return sha256.Sum256(c.text), string(text), nil
}
