package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxies are the addresses whose word about a client counts.
type proxies []netip.Prefix

func newProxies(listed []netip.Prefix) proxies {
	var ps proxies
	for _, p := range listed {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		ps = append(ps, p)
	}
	return ps
}

func (ps proxies) trust(a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}

// client is the address that a request comes from: that of the connection, or where
// it is a trusted proxy's, the rightmost in X-Forwarded-For that is not one. What
// stands further left was written by somebody whom nobody vouches for. vouched says
// that the connection is a trusted proxy's.
func (ps proxies) client(r *http.Request) (address string, vouched bool) {
	address = hostOf(r.RemoteAddr)
	if len(ps) == 0 {
		return address, false
	}
	peer, err := parseAddress(address)
	if err != nil || !ps.trust(peer) {
		return address, false
	}
	address = peer.String()
	named := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, s := range slices.Backward(named) {
		a, err := parseAddress(strings.TrimSpace(s))
		if err != nil {
			break // whoever stands left of it is no better known
		}
		if address = a.String(); !ps.trust(a) {
			break
		}
	}
	return address, true
}

// parseAddress reads an address as proxies write it: with a port, in brackets, or
// neither.
func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(hostOf(s))
	return a.Unmap().WithZone(""), err
}
