package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestT14_ForbiddenAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "192.168.1.1": false, "fd00::1": false, "8.8.8.8": false,
		"::ffff:10.0.0.1": false, "2001:db8::1": false, "64:ff9b::8.8.8.8": false, "169.253.0.1": false, "255.255.255.255": false,
		"169.254.169.254": true, "169.254.0.1": true, "::ffff:169.254.169.254": true, "64:ff9b::169.254.169.254": true,
		"2002:a9fe:a9fe::1": true, "::169.254.169.254": true, "fe80::1": true, "fe80::1%eth0": true,
		"224.0.0.1": true, "239.255.255.250": true, "ff02::1": true, "ff0e::1": true,
		"fd00:ec2::254": true, "fd00:ec2::23": true, "fd20:ce::254": true, "100.100.100.200": true, "168.63.129.16": true, "192.0.0.192": true,
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

func TestT14_AddressesThatNoAppHasMustBeListed(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "100.64.0.1": false, "8.8.8.8": false, "fd00::1": false, "2001:4860::8": false,
		"192.0.1.1": false, "198.20.0.1": false, "223.255.255.255": false, "64:ff9b::8.8.8.8": false, "2600::1": false,
		"0.0.0.0": true, "0.1.2.3": true, "::": true, "255.255.255.255": true, "240.0.0.1": true, "192.0.0.1": true,
		"192.0.2.1": true, "198.51.100.7": true, "203.0.113.9": true, "198.18.0.1": true, "198.19.255.1": true, "192.88.99.1": true,
		"2001:db8::1": true, "3fff:1::": true, "100::1": true, "2001::1": true, "2001:2::1": true, "64:ff9b:1::1": true, "fec0::1": true, "5f00::1": true,
		"64:ff9b::203.0.113.9": true, "64:ff9b::127.0.0.1": true, "2002:cb00:7109::1": true,
	} {
		a := netip.MustParseAddr(address)
		if got := surprising(a); got != want {
			t.Errorf("%s: surprising %v, want %v", address, got, want)
		}
		d, err := newDialer(ForwarderConfig{Addresses: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}})
		if err != nil || d.judge("app.example", a) != nil {
			t.Errorf("%s is listed: %v, %v", address, err, d.judge("app.example", a))
		}
		if other := netip.MustParseAddr("8.8.4.4"); d.judge("app.example", other) == nil {
			t.Errorf("only %s is listed, and %s may be connected to", address, other)
		}
	}
}

func TestT14_ListedAddresses(t *testing.T) {
	for _, tc := range []struct {
		listed, address string
		want            bool
	}{
		{"10.0.0.0/8", "10.255.0.1", true},
		{"10.0.0.0/8", "::ffff:10.0.0.1", true},
		{"::ffff:10.0.0.0/104", "10.0.0.1", true},
		{"10.9.9.9/8", "10.0.0.1", true}, // written with a host
		{"10.0.0.0/8", "11.0.0.1", false},
		{"10.0.0.0/8", "127.0.0.1", false},
		{"10.0.0.0/8", "64:ff9b::10.0.0.1", false}, // leads there by another way than was listed
		{"0.0.0.0/0", "169.254.169.254", false},
		{"::/0", "fe80::1", false},
		{"fe80::/9", "fe80::1%eth0", false},
		{"fd00::/8", "fd00::1", true},
		{"fd00::/8", "fd00:ec2::254", false},
	} {
		d, err := newDialer(ForwarderConfig{Addresses: []netip.Prefix{netip.MustParsePrefix(tc.listed)}})
		if tc.listed == "fe80::/9" {
			if err == nil {
				t.Errorf("%s was taken, and none of it is ever connected to", tc.listed)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := d.judge("app.example", netip.MustParseAddr(tc.address)); (got == nil) != tc.want {
			t.Errorf("%s with %s listed: %v", tc.address, tc.listed, got)
		}
	}
	for _, listed := range []string{"169.254.0.0/16", "169.254.169.254/32", "224.0.0.0/4", "ff00::/8", "::ffff:169.254.0.0/112"} {
		if _, err := NewForwarder(ForwarderConfig{URL: "http://app", Addresses: []netip.Prefix{netip.MustParsePrefix(listed)}}); err == nil {
			t.Errorf("%s was taken, and none of it is ever connected to", listed)
		}
	}
}

func TestT14_LoopbackByAnotherName(t *testing.T) {
	d := &Dialer{}
	for host, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "localhost": true, "LocalHost.": true, "app.localhost": true,
		"app": false, "app.example": false, "localhost.example": false, "notlocalhost": false,
	} {
		if err := d.judge(host, netip.MustParseAddr("127.0.0.1")); (err == nil) != want {
			t.Errorf("127.0.0.1 by the name %s: %v", host, err)
		}
	}
}

func TestT14_NumbersAreNoHosts(t *testing.T) {
	for _, host := range []string{
		"2130706433", "2852039166", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "0xa9fea9fe", "1.2.3.4.", "999.1.2.3", "app.0x10", "09",
		"99999999999999999999999",
	} {
		if _, err := NewForwarder(ForwarderConfig{URL: "http://" + host + "/"}); err == nil {
			t.Errorf("%s was taken", host)
		}
	}
	for _, host := range []string{"app1", "1.app", "0x7g", "a.b-1", "xn--abc"} {
		if _, err := NewForwarder(ForwarderConfig{URL: "http://" + host + "/"}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// resolving is a resolver that answers each question for an IPv4 address with the next
// of a list, and any other with nothing.
func resolving(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			question := 12 + slices.Index(buf[12:n], 0) + 1 + 4 // name, type, class
			answer := slices.Clone(buf[:question])
			answer[2], answer[3] = 0x81, 0x80                                                     // an answer without error
			answer[6], answer[7], answer[8], answer[9], answer[10], answer[11] = 0, 0, 0, 0, 0, 0 // records
			if binary.BigEndian.Uint16(buf[question-4:]) == 1 && len(addresses) > 0 {             // A
				ip := netip.MustParseAddr(addresses[0]).As4()
				addresses = addresses[1:]
				answer[7] = 1
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				answer = append(answer, ip[:]...)
			}
			conn.WriteTo(answer, from)
		}
	})
	t.Cleanup(func() { conn.Close(); serving.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func TestT14_ResolverThatRebinds(t *testing.T) {
	app := newRawApp(t, func(_ string, answer func(string)) {
		answer("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(app.url, "http://"))
	cfg := ForwarderConfig{URL: "http://app.example:" + port, Addresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}
	w, err := NewForwarder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	d, err := newDialer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.resolver = resolving(t, "127.0.0.1", "169.254.169.254", "127.0.0.1")
	w.reusing.DialContext = d.DialContext
	for i, want := range []string{"", neverReached, ""} {
		err := w.Handle(t.Context(), send(sample()))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("attempt %d: %v, want %q", i, err, want)
		}
	}
	if n := app.hits.Load(); n != 2 {
		t.Errorf("the app saw %d requests, want 2", n)
	}

	// The same without a list: a name that leads to this machine.
	d.addresses, d.resolver = nil, resolving(t, "127.0.0.1")
	var refused *addressError
	if err := w.Handle(t.Context(), send(sample())); !errors.As(err, &refused) || refused.why != byOtherName {
		t.Errorf("app.example is 127.0.0.1: %v", err)
	}
}

func TestT14_RedirectToMetadataIsNotFollowed(t *testing.T) {
	w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	}), 0)
	failed := failure(t, w.Handle(t.Context(), send(sample())))
	if !failed.Permanent || failed.Status != 302 || !strings.Contains(failed.Error(), "169.254.169.254") {
		t.Errorf("%+v, want permanent, with the host", failed)
	}
}

func TestUnixSocketInPlaceOfTheHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.sock")
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	hosts := make(chan string, 2)
	app := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host })}
	var serving sync.WaitGroup
	serving.Go(func() { app.Serve(l) })
	t.Cleanup(func() { app.Close(); serving.Wait() })

	w, err := NewForwarder(ForwarderConfig{URL: "http://169.254.169.254/hook", Socket: file}) // nobody connects there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	empty := sample()
	empty.Delivery.Body = nil // takes the other transport
	for _, f := range []Forward{send(sample()), send(empty)} {
		if err := w.Handle(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if host := <-hosts; host != "169.254.169.254" {
			t.Errorf("host %s", host)
		}
	}
	if _, err := NewForwarder(ForwarderConfig{URL: "http://app", Socket: file, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}); err == nil {
		t.Error("a socket and addresses were taken together")
	}
}
