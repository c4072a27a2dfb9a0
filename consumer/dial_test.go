package consumer

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestT14_ForbiddenAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "192.168.1.1": false, "fd00::1": false, "8.8.8.8": false,
		"::ffff:10.0.0.1": false, "2001:db8::1": false, "64:ff9b::8.8.8.8": false, "169.253.0.1": false,
		"169.254.169.254": true, "169.254.0.1": true, "::ffff:169.254.169.254": true, "64:ff9b::169.254.169.254": true,
		"2002:a9fe:a9fe::1": true, "::169.254.169.254": true, "fe80::1": true, "fe80::1%eth0": true,
		"224.0.0.1": true, "239.255.255.250": true, "ff02::1": true, "ff0e::1": true, "255.255.255.255": true,
		"fd00:ec2::254": true, "fd20:ce::254": true, "100.100.100.200": true, "168.63.129.16": true, "192.0.0.192": true,
	} {
		if got := forbidden(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: forbidden %v, want %v", address, got, want)
		}
	}
}

func TestT14_NoConnectionToAForbiddenAddress(t *testing.T) {
	const want = "is link-local, multicast or a metadata service"
	for _, host := range []string{
		"169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1%lo]", "224.0.0.1",
	} {
		// As if a name had led there.
		f := newForwarder(t, "http://127.0.0.1/", time.Second)
		f.url.Host = host
		if err := f.Handle(t.Context(), send(sample())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, url := range []string{
		"http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]:80/", "http://[fe80::1%25lo]/", "https://224.0.0.1/",
	} {
		if _, err := NewForwarder(ForwarderConfig{URL: url}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
