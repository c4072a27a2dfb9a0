package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/proxy"
)

// upstream is what the receiving side is told of the app behind it; nil: there is
// none.
func (c *config) upstream() *proxy.Upstream {
	if c.Upstream == "" {
		return nil
	}
	u := &proxy.Upstream{URL: c.Upstream}
	for _, name := range sortedKeys(c.Destinations) {
		u.Destinations = append(u.Destinations, c.Destinations[name].URL)
	}
	return u
}

// trustedProxies skips what the check has refused.
func (c *config) trustedProxies() []netip.Prefix {
	var trusted []netip.Prefix
	for _, text := range c.TrustedProxies {
		if p, err := parseAddresses(text); err == nil {
			trusted = append(trusted, p)
		}
	}
	return trusted
}

func (ch *checker) upstream() {
	c := ch.c
	u, err := url.Parse(c.Upstream)
	switch {
	case ch.c.at["upstream"] == nil:
	case c.Upstream == "":
		ch.problem("upstream", "upstream is empty: leave it out where every other request is to be answered 404")
	case err == nil && u.User != nil:
		// The excerpt would print the password.
		ch.problems = append(ch.problems, problem{Path: "upstream", Message: "a password does not stand in the file", token: c.at["upstream"], hide: true})
	default:
		only := proxy.Upstream{URL: c.Upstream}
		if err := only.Check(); err != nil {
			ch.problem("upstream", "%s", err)
			return
		}
		ch.closed(only)
		for path, address := range map[string]string{"listen.https": c.Listen.HTTPS, "listen.http": c.Listen.HTTP} {
			if listensAt(address, u) {
				ch.problem("upstream", "upstream is the address of %s: requests would go round in circles", path)
			}
		}
	}
}

// closed refuses a destination that would close the whole upstream.
func (ch *checker) closed(u proxy.Upstream) {
	for _, name := range sortedKeys(ch.c.Destinations) {
		address := ch.c.Destinations[name].URL
		u.Destinations = []string{address}
		if u.Serves(address) && u.Check() != nil {
			ch.problem("destinations."+name+".url", "a destination at the root of upstream closes all of it: give the webhooks of the app a path of their own")
		}
	}
}

// listensAt says whether a listener has the address of u.
func listensAt(listener string, u *url.URL) bool {
	host, port, err := net.SplitHostPort(listener)
	if err != nil || port == "0" || port != portOf(u) {
		return false
	}
	own, there := loopback(listener), loopback(net.JoinHostPort(u.Hostname(), port))
	ip := net.ParseIP(host)
	return host == u.Hostname() || there && (own || host == "" || ip != nil && ip.IsUnspecified())
}

func (ch *checker) trustedProxies() {
	for i, text := range ch.c.TrustedProxies {
		at := fmt.Sprintf("trusted_proxies[%d]", i)
		switch p, err := parseAddresses(text); {
		case err != nil:
			ch.problem(at, "%q is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8", text)
		case p.Bits() == 0:
			ch.problem(at, "%s is everybody: each client could say that it is another", text)
		}
	}
}

// checkUpstream connects as it does to destinations, but to any address: as the
// pass-through does.
func checkUpstream(ctx context.Context, c *config) []finding {
	if c.Upstream == "" {
		return nil
	}
	const check, fix = "upstream", "start it, or mend upstream"
	f, err := consumer.NewForwarder(consumer.ForwarderConfig{URL: c.Upstream, Timeout: destinationPatience,
		Addresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
	if err != nil {
		return []finding{{check: check, what: err.Error(), fix: fix}}
	}
	defer f.Close()
	start := time.Now()
	if _, err := f.Look(ctx); err != nil {
		return []finding{{check: check, what: firstLine(err), fix: fix}}
	}
	return []finding{{check: check, level: fine, what: fmt.Sprintf("answers in %s", time.Since(start).Round(time.Millisecond))}}
}
