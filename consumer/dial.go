package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Dialer connects to a destination and to nothing else. It judges the address that is
// really connected to, after every resolver, so a name cannot lead elsewhere either.
// Handlers that are no Forwarder need one too: a cluster names addresses of its own.
type Dialer struct {
	socket    string         // in place of any host
	addresses []netip.Prefix // empty: all but those that no app has
	resolver  *net.Resolver  // nil: the system's
}

// NewDialer makes a Dialer that connects to addresses only. Empty: to all but those that
// no destination has.
func NewDialer(addresses []netip.Prefix) (*Dialer, error) {
	return newDialer(ForwarderConfig{Addresses: addresses})
}

func newDialer(cfg ForwarderConfig) (*Dialer, error) {
	d := &Dialer{socket: cfg.Socket}
	if cfg.Socket != "" && len(cfg.Addresses) > 0 {
		return nil, errors.New("consumer: Addresses are those of a network, and Socket is in none")
	}
	for _, p := range cfg.Addresses {
		if !p.IsValid() {
			return nil, errors.New("consumer: Addresses hold a prefix that is none")
		}
		if mapped := p.Addr(); mapped.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(mapped.Unmap(), p.Bits()-96)
		}
		if p = p.Masked(); forbidden(p.Addr()) {
			return nil, fmt.Errorf("consumer: Addresses: %w", &addressError{p.Addr(), neverReached})
		}
		d.addresses = append(d.addresses, p)
	}
	return d, nil
}

// DialContext connects to the socket, or to an address of the host that may be.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.socket != "" {
		return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "unix", d.socket)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dial := net.Dialer{Timeout: connectTimeout, Resolver: d.resolver,
		Control: func(_, connected string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(connected)
			if err != nil {
				return fmt.Errorf("address %s does not parse", connected)
			}
			return d.judge(host, ap.Addr())
		}}
	return dial.DialContext(ctx, network, address)
}

// Check refuses a host, as New functions do, that can be judged before it is connected to.
func (d *Dialer) Check(host string) error {
	if d.socket != "" {
		return nil // it is a name for the app, and nobody looks it up
	}
	a, err := netip.ParseAddr(host)
	if err == nil {
		return d.judge(host, a)
	}
	// Some resolvers take 2130706433, 0x7f.1 and 127.1 for addresses, others for names.
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("host %s is a number, and no address as 127.0.0.1 is one", host)
	}
	return nil
}

// Why an address is not connected to.
const (
	neverReached = "is link-local, multicast or a metadata service"
	unusual      = "is none that an app has; where it is meant, list it among the addresses"
	byOtherName  = "is this machine, and was reached by a name other than localhost; where that is meant, list it among the addresses"
	notListed    = "is not among the addresses that may be connected to"
)

// addressError says which address is not connected to, and why.
type addressError struct {
	address netip.Addr
	why     string
}

func (e *addressError) Error() string { return fmt.Sprintf("address %s %s", e.address, e.why) }

// judge returns why host must not be connected to at a.
func (d *Dialer) judge(host string, a netip.Addr) error {
	plain := a.Unmap().WithZone("")
	listed := func(p netip.Prefix) bool { return p.Contains(plain) }
	switch {
	case forbidden(a):
		return &addressError{a, neverReached}
	case slices.ContainsFunc(d.addresses, listed):
		return nil
	case len(d.addresses) > 0:
		return &addressError{a, notListed}
	case surprising(plain):
		return &addressError{a, unusual}
	case plain.IsLoopback() && !namesLoopback(host):
		return &addressError{a, byOtherName}
	}
	return nil
}

// namesLoopback says whether who wrote host knew that it is this machine.
func namesLoopback(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// forbidden addresses are never a destination. Loopback and private ones are
// what most destinations are.
func forbidden(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if embedded, ok := embeddedIPv4(a); ok {
		a = embedded
	}
	if a.IsLinkLocalUnicast() || a.IsMulticast() {
		return true
	}
	if a.Is6() && bytes.HasPrefix(a.AsSlice(), []byte{0xfd, 0x00, 0x0e, 0xc2}) { // AWS: fd00:ec2::254, and credentials at others
		return true
	}
	switch a {
	case netip.AddrFrom4([4]byte{100, 100, 100, 200}), // Alibaba
		netip.AddrFrom4([4]byte{168, 63, 129, 16}),                                // Azure
		netip.AddrFrom4([4]byte{192, 0, 0, 192}),                                  // Oracle
		netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x20, 3: 0xce, 14: 0x02, 15: 0x54}): // Google, fd20:ce::254
		return true
	}
	return false
}

// surprising addresses lead to no app: a name or a number that leads there is a
// mistake, or somebody's trick.
func surprising(a netip.Addr) bool {
	if embedded, ok := embeddedIPv4(a); ok {
		if embedded.IsLoopback() {
			return true
		}
		a = embedded
	}
	b := a.As16() // of IPv4: behind 12 bytes
	if a.Is4() {
		switch v := b[12:]; {
		case v[0] == 0, v[0] >= 240, // this network; reserved, and broadcast
			v[0] == 192 && v[1] == 0 && v[2] == 0,                                                                                    // protocols
			v[0] == 192 && v[1] == 0 && v[2] == 2, v[0] == 198 && v[1] == 51 && v[2] == 100, v[0] == 203 && v[1] == 0 && v[2] == 113, // documentation
			v[0] == 198 && v[1]&0xfe == 18,          // benchmarks
			v[0] == 192 && v[1] == 88 && v[2] == 99: // 6to4 relays, long gone
			return true
		}
		return false
	}
	switch {
	case a.IsUnspecified(),
		b[0] == 0x01 && b[1] == 0,                                       // 100::/16 discards
		b[0] == 0x20 && b[1] == 0x01 && b[2] == 0x0d && b[3] == 0xb8,    // 2001:db8::/32 documentation
		b[0] == 0x3f && b[1] == 0xff && b[2]&0xf0 == 0,                  // 3fff::/20 documentation
		b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0,          // 2001::/32 Teredo, which leads to IPv4
		b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 2,          // 2001:2::/48 benchmarks
		bytes.Equal(b[:6], []byte{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}),  // 64:ff9b:1::/48 leads to IPv4
		b[0] == 0xfe && b[1]&0xc0 == 0xc0, b[0] == 0x5f && b[1] == 0x00: // fec0::/10 site-local, 5f00::/16 segments
		return true
	}
	return false
}

// embeddedIPv4 finds the IPv4 address that a NAT64, 6to4 or IPv4-compatible
// address leads to.
func embeddedIPv4(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return a, false
	}
	b := a.As16()
	switch {
	case bytes.Equal(b[:12], []byte{0, 0x64, 0xff, 0x9b, 11: 0}), // 64:ff9b::/96
		bytes.Equal(b[:12], make([]byte, 12)) && b[12] != 0: // ::/96, but for :: and ::1
		return netip.AddrFrom4([4]byte(b[12:])), true
	case b[0] == 0x20 && b[1] == 0x02: // 2002::/16
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return a, false
}
