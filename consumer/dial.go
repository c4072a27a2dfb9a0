package consumer

import (
	"bytes"
	"fmt"
	"net/netip"
	"syscall"
)

// refuseForbidden judges the address that is really connected to, after every
// resolver, so a name cannot lead there either.
func refuseForbidden(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s does not parse", address)
	}
	return allowed(ap.Addr())
}

func allowed(a netip.Addr) error {
	if forbidden(a) {
		return fmt.Errorf("address %s is link-local, multicast or a metadata service", a)
	}
	return nil
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
	switch a {
	case netip.AddrFrom4([4]byte{255, 255, 255, 255}),
		netip.AddrFrom4([4]byte{100, 100, 100, 200}),                              // Alibaba
		netip.AddrFrom4([4]byte{168, 63, 129, 16}),                                // Azure
		netip.AddrFrom4([4]byte{192, 0, 0, 192}),                                  // Oracle
		netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x54}), // AWS, fd00:ec2::254
		netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x20, 3: 0xce, 14: 0x02, 15: 0x54}): // Google, fd20:ce::254
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
