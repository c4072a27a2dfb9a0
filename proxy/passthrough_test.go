package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// passing starts a proxy in front of an app, with a source at /in/src1.
func passingTo(t testing.TB, app http.Handler, change ...func(*setup)) *rig {
	t.Helper()
	server := httptest.NewServer(app)
	t.Cleanup(server.Close)
	return passingToURL(t, server.URL, change...)
}

func passingToURL(t testing.TB, url string, change ...func(*setup)) *rig {
	t.Helper()
	s := setup{cfg: Config{Upstream: &Upstream{URL: url}}}
	for _, c := range change {
		c(&s)
	}
	return start(t, s)
}

// wireApp is an app that keeps the head of each request as it came over the wire.
type wireApp struct {
	url    string
	answer func(c net.Conn, r *bufio.Reader, n int) // nil: 204, and the connection ends

	mu    sync.Mutex
	heads []string
}

func startWireApp(t testing.TB, answer func(c net.Conn, r *bufio.Reader, n int)) *wireApp {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &wireApp{url: "http://" + l.Addr().String(), answer: answer}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { defer c.Close(); a.serve(c) })
		}
	})
	return a
}

func (a *wireApp) serve(c net.Conn) {
	c.SetDeadline(time.Now().Add(30 * time.Second))
	r := bufio.NewReader(c)
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		head.WriteString(line)
	}
	a.mu.Lock()
	a.heads = append(a.heads, head.String())
	n := len(a.heads)
	a.mu.Unlock()
	if a.answer != nil {
		a.answer(c, r, n)
		return
	}
	io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
}

// got is the head of the n-th request, from 0.
func (a *wireApp) got(t testing.TB, n int) (line string, fields []string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.heads) <= n {
		t.Fatalf("the app got %d requests, want one more", len(a.heads))
	}
	lines := strings.Split(strings.TrimSuffix(a.heads[n], "\r\n\r\n"), "\r\n")
	return lines[0], lines[1:]
}

func (a *wireApp) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.heads)
}

func get(target string, header ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: www.example.com\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
}

func TestCaseF1_PassedPathIsAsItCame(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	store := &recorder{}
	g := passingToURL(t, app.url, func(s *setup) { s.inbox = store })
	for n, target := range []string{
		"//in/src1", "/in//src1", "/in/./src1", "/in/x/../src1", "/in/src1/", "/IN/src1", "/in/src%31", "/in%2Fsrc1",
		"/", "/a%2fB%2Fc", `/a"b<c>{d}|e^f` + "`g\\h", "/caf\xc3\xa9", "/a;b=1/c,d@e:f!$&'()*+=~", "/[1]", "//a//b//?c", "/%E2%82%AC",
	} {
		signed := strings.Replace(signed("d", "abc").wire(), "POST /in/src1 ", "POST "+target+" ", 1)
		if a := g.raw(signed); a.status != 204 || a.header.Get("Location") != "" {
			t.Errorf("%s: %d %v", target, a.status, a.header)
		}
		if line, _ := app.got(t, n); line != "POST "+target+" HTTP/1.1" {
			t.Errorf("%s came to the app as %s", target, line)
		}
	}
	if len(store.deliveries()) != 0 {
		t.Error("the inbox was touched")
	}
	for _, target := range []string{"*", "http://www.example.com/page"} {
		a := g.raw("OPTIONS " + target + " HTTP/1.1\r\nHost: www.example.com\r\n\r\n")
		a.wants(t, 404, "source_unknown")
	}
	for _, target := range []string{"www.example.com:443", "/page"} {
		g.raw("CONNECT "+target+" HTTP/1.1\r\nHost: www.example.com\r\n\r\n").wants(t, 404, "source_unknown")
	}
	// A source is one whatever the method: its path never goes on.
	g.raw("GET /in/src1?x=1 HTTP/1.1\r\nHost: www.example.com\r\n\r\n").wants(t, 405, "method_not_allowed")
	g.send(signed("d", "abc")).wants(t, 202, "")
	if n := app.count(); n != 16 {
		t.Errorf("the app got %d requests, want 16", n)
	}
}

// What stands behind a space would be the protocol to some apps, and the path before it
// one that nobody has judged.
func TestT15_NothingGetsIntoTheRequestLine(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	g := passingToURL(t, app.url, overTLS, func(s *setup) { s.cfg.Upstream.Destinations = []string{app.url + "/hook"} })
	for n, c := range [][2]string{
		{"/hook HTTP/1.0", "/hook%20HTTP/1.0"}, {"/a b?c d", "/a%20b?c%20d"}, {"//a b%2Fc?d e", "//a%20b%2Fc?d%20e"}, {`//a%2Fb"c`, "//a%2Fb%22c"},
	} {
		r, err := http.NewRequest("GET", g.server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		host := r.URL.Host
		if r.URL.Opaque = c[0]; strings.HasPrefix(c[0], "//") {
			r.URL.Opaque = "//" + host + c[0] // as net/http sends it over HTTP/2
		}
		res, err := g.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if line, _ := app.got(t, n); res.ProtoMajor != 2 || line != "GET "+c[1]+" HTTP/1.1" {
			t.Errorf("%s: over %s came to the app as %s", c[0], res.Proto, line)
		}
	}
}

func TestCaseF2_PassedQueryIsAsItCame(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	g := passingToURL(t, app.url)
	for n, target := range []string{"/page?x=1;y=2&z=%zz&ok=1", "/page?", "/page??a?b", "//page?x=1;y=%zz", "/page?q=a\"b|c\xff", "/page?a=b%20c+d#e"} {
		if a := g.raw(get(target)); a.status != 204 {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
		if line, _ := app.got(t, n); line != "GET "+target+" HTTP/1.1" {
			t.Errorf("%s came to the app as %s", target, line)
		}
	}
	if a := g.raw(get("/page?" + strings.Repeat("a", 32<<10))); a.status != 431 {
		t.Errorf("target of 32 KiB: %d", a.status)
	}
}

// Of every header it is said here what the app gets.
func TestCaseF3_PassedHeaders(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	g := passingToURL(t, app.url)
	c := g.dial()
	io.WriteString(c, get("/page",
		"Connection: keep-alive, X-Only-For-You, X-Forwarded-For", "Keep-Alive: timeout=5", "X-Only-For-You: 1",
		"Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eDp5", "TE: trailers, deflate", "Upgrade-Insecure-Requests: 1",
		"Hooklatch-Delivery-Id: forged", "Hooklatch_Tenant: forged", "hOOKLATCH-x: forged", "Hooklatch-: forged",
		"X-Forwarded-For: 192.0.2.1", "X_Forwarded_For: 192.0.2.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example",
		"X-Forwarded-Prefix: /admin", "X-Forwarded-Port: 1", "Forwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1", "X_Real_IP: 192.0.2.1",
		"X.Real.IP: 192.0.2.1", "Hooklatch.Tenant: forged", "X-Original-URL: /hooks", "X-Rewrite-URL: /hooks", "X-Own.Dot: kept",
		"Cookie: a=1; b=2", "cookie: c=3", "Authorization: Bearer t", "X_Own: kept", "Webhook-Id: kept", "X-Request-Id: kept", "User-Agent:",
		"Accept-Encoding: br", "X-Bytes: caf\xe9"))
	g.read(bufio.NewReader(c))
	line, fields := app.got(t, 0)
	slices.Sort(fields)
	want := []string{
		"Accept-Encoding: br", "Authorization: Bearer t", "Cookie: a=1; b=2", "Cookie: c=3", "Host: www.example.com", "Te: trailers",
		"Upgrade-Insecure-Requests: 1", "Webhook-Id: kept", "X-Bytes: caf\xe9", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: www.example.com",
		"X-Forwarded-Proto: http", "X-Own.dot: kept", "X-Request-Id: kept", "X_own: kept",
	}
	if line != "GET /page HTTP/1.1" || !slices.Equal(fields, want) {
		t.Errorf("the app got %s\n%q, want\n%q", line, fields, want)
	}

	// Nothing is added where the client sent nothing.
	g.raw("GET / HTTP/1.0\r\n\r\n")
	_, fields = app.got(t, 1)
	slices.Sort(fields)
	if want := []string{"Host: " + strings.TrimPrefix(app.url, "http://"), "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http"}; !slices.Equal(fields, want) {
		t.Errorf("the app got %q, want %q", fields, want)
	}
}

func TestT13_ClientAddress(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for name, c := range map[string]struct {
		trusted []netip.Prefix
		header  []string
		want    string
	}{
		"nobody is trusted":           {nil, []string{"X-Forwarded-For: 192.0.2.1"}, "127.0.0.1"},
		"another is trusted":          {[]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, []string{"X-Forwarded-For: 198.51.100.1"}, "127.0.0.1"},
		"one":                         {trusted, []string{"X-Forwarded-For: 192.0.2.1"}, "192.0.2.1"},
		"rightmost untrusted":         {trusted, []string{"X-Forwarded-For: 8.8.8.8, 192.0.2.1, 10.1.2.3"}, "192.0.2.1"},
		"two lines are one list":      {trusted, []string{"X-Forwarded-For: 8.8.8.8, 192.0.2.1", "X-Forwarded-For: 10.1.2.3"}, "192.0.2.1"},
		"all are proxies":             {trusted, []string{"X-Forwarded-For: 10.0.0.9, 10.1.2.3"}, "10.0.0.9"},
		"nothing is said":             {trusted, nil, "127.0.0.1"},
		"no address":                  {trusted, []string{"X-Forwarded-For: 192.0.2.1, unknown, 10.1.2.3"}, "10.1.2.3"},
		"empty":                       {trusted, []string{"X-Forwarded-For: 192.0.2.1,"}, "127.0.0.1"},
		"with ports":                  {trusted, []string{"X-Forwarded-For: 192.0.2.1:4711, [2001:db8::1]:80"}, "192.0.2.1"},
		"IPv6":                        {trusted, []string{"X-Forwarded-For: 2001:db9::1"}, "2001:db9::1"},
		"mapped is IPv4":              {trusted, []string{"X-Forwarded-For: 192.0.2.1, ::ffff:10.0.0.1"}, "192.0.2.1"},
		"a mapped prefix":             {[]netip.Prefix{netip.MustParsePrefix("::ffff:127.0.0.0/104")}, []string{"X-Forwarded-For: 192.0.2.1"}, "192.0.2.1"},
		"underscores say nothing":     {trusted, []string{"X_Forwarded_For: 192.0.2.1"}, "127.0.0.1"},
		"X-Real-IP alone says nought": {trusted, []string{"X-Real-IP: 192.0.2.1"}, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := startWireApp(t, nil)
			store := &recorder{}
			g := passingToURL(t, app.url, func(s *setup) { s.inbox, s.cfg.TrustedProxies = store, c.trusted })
			g.raw(get("/page", c.header...))
			_, fields := app.got(t, 0)
			if !slices.Contains(fields, "X-Forwarded-For: "+c.want) {
				t.Errorf("the app got %q, want %s", fields, c.want)
			}
			m := signed("d", "abc")
			for _, h := range c.header {
				name, value, _ := strings.Cut(h, ": ")
				m = m.add(name, value)
			}
			g.send(m).wants(t, 202, "")
			if a, b := g.result(0).Peer, g.result(1).Peer; a != c.want || b != c.want {
				t.Errorf("reported %s and %s, want %s", a, b, c.want)
			}
			if d := store.deliveries(); len(d) != 1 || d[0].Peer != c.want {
				t.Errorf("stored %+v, want peer %s", d, c.want)
			}
		})
	}
}

// What a trusted proxy says beside the address goes on.
func TestTrustedProxyIsHandedOn(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	g := passingToURL(t, app.url, func(s *setup) { s.cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	g.raw(get("/page", "X-Forwarded-For: 6.6.6.6, 192.0.2.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example.com", "X-Forwarded-Port: 443",
		"X-Forwarded-Prefix: /shop", "X_Forwarded_Proto: http", "X-Real-IP: 6.6.6.6", "Forwarded: for=6.6.6.6", "Hooklatch-Tenant: forged"))
	_, fields := app.got(t, 0)
	slices.Sort(fields)
	want := []string{"Host: www.example.com", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: shop.example.com", "X-Forwarded-Port: 443",
		"X-Forwarded-Prefix: /shop", "X-Forwarded-Proto: https", "X-Real-Ip: 192.0.2.1"}
	if !slices.Equal(fields, want) {
		t.Errorf("the app got\n%q, want\n%q", fields, want)
	}
}

// An app has more hosts than sources know of.
func TestHostsOfSourcesDoNotCloseTheApp(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	s := src1(t)
	s.Host = "hooks.example.com"
	g := passingToURL(t, app.url, func(set *setup) { set.cfg.Sources = []Source{s} })
	if a := g.raw(get("/page")); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := g.raw(get("/in/src1")); a.status != 204 {
		t.Errorf("path of a source at another host: %d %s", a.status, a.body)
	}
	g.send(signed("d", "abc")).wants(t, 202, "")

	strict := passingToURL(t, app.url, func(set *setup) { set.cfg.Sources, set.cfg.Hosts = []Source{s}, []string{"shop.example.com"} })
	strict.raw(get("/page")).wants(t, 421, "host_not_allowed")
	strict.send(signed("d", "abc")).wants(t, 202, "")
}

func TestNewRefusesAnUpstream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		upstream Upstream
		want     string
	}{
		"no URL":                    {Upstream{}, "no http or https URL"},
		"other scheme":              {Upstream{URL: "ftp://app"}, "no http or https URL"},
		"no host":                   {Upstream{URL: "http:///x"}, "no http or https URL"},
		"password":                  {Upstream{URL: "http://u:secret@app"}, "user or password"},
		"path":                      {Upstream{URL: "http://app/base"}, "more than scheme"},
		"query":                     {Upstream{URL: "http://app/?a"}, "more than scheme"},
		"destination at the root":   {Upstream{URL: "http://app", Destinations: []string{"http://APP:80/?x"}}, "closes all of it"},
		"destination is no URL":     {Upstream{URL: "http://app", Destinations: []string{"http://u:secret@[/"}}, "does not parse"},
		"decoded to the root":       {Upstream{URL: "http://app", Destinations: []string{"http://app/%2e"}}, "closes all of it"},
		"localhost is a name of it": {Upstream{URL: "http://127.0.0.1", Destinations: []string{"http://localhost"}}, "closes all of it"},
	} {
		_, err := New(&recorder{}, Config{Sources: []Source{src1(t)}, Upstream: &c.upstream})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestT12_PathsOfDestinationsAreClosed(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	g := passingToURL(t, app.url, func(s *setup) {
		s.cfg.Upstream.Destinations = []string{app.url + "/webhooks", "http://elsewhere.example/other", "kafka://a:1,b:2/topic", app.url + "/API%2fHooks/"}
	})
	for _, target := range []string{
		"/webhooks", "//webhooks", "/x/../webhooks", "/webhooks/", "/%77ebhooks", "/%2577ebhooks", "/%252577ebhooks", "/WebHooks", "/webhooks;a=1",
		"/webhooks?x=1", "/webhooks/more", "/webhooks//", "/./webhooks", "/x/%2e%2e/webhooks", "/x%2f..%2fwebhooks", "/..;/webhooks", "/;a/webhooks;b/c",
		"/\\webhooks", "/x\\..\\webhooks", "/%5cwebhooks", "/webhooks%00", "/webhooks%3fx", "/webhooks%23x", "/webhooks/../public", "/webhooks/%252e%252e/public",
		"/api/hooks", "/api%2fhooks/x", "/webhooks.json", "/api/hooks.php/x",
		// Some apps count empty segments, and some do not; the same goes for parameters, backslashes,
		// encoded slashes, and what stands behind an encoded question mark.
		"/api/x//../../hooks", "/api/;/../hooks", "/api/..;/../hooks", "/api/a\\b/../hooks", "/api/a%2fb/%2e%2e/hooks", "/api/a%5cb/%2e./hooks",
		"/x%3f/%2e%2e/webhooks", "/x%23/%2e%2e/webhooks", "/x%00/%2e%2e/webhooks", "/x#/../webhooks", "/x%3f/%2e%2e;/webhooks", "/webhoo\u212a\u017f",
		"http://www.example.com/webhooks", "http://www.example.com//x/../WEBHOOKS/",
	} {
		a := g.raw("POST " + target + " HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 0\r\n\r\n")
		if a.status != 404 || !strings.Contains(string(a.body), "source_unknown") || a.header.Get("Location") != "" {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
	if n := app.count(); n != 0 {
		t.Errorf("the app got %d requests: %q", n, app.heads)
	}
	for _, target := range []string{"/", "/webhooks2", "/web/hooks", "/other", "/x/webhooks", "/api", "/webhook", "/?/webhooks", "/a?b=/webhooks", "/a/../b", "/hooks/../api", "/a%2f..%2fb"} {
		if a := g.raw(get(target)); a.status != 204 {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
}

// However an app reads a path, it is never at a closed one.
func FuzzClosedPaths(f *testing.F) {
	for _, s := range []string{"/api/hooks", "/api/%2568ooks", "/a/../api/hooks;x/b", "/api/hooks/%252e%252e/a", `/%5c%255c..\api/hooks`,
		"/api/x//../../hooks", "/api/;/../hooks", "/api/a%2fb/%2e%2e/hooks", "/x%3f/%2e%2e/api/hooks", "/api/..;/../hooks", `/api/a\b/../hooks`} {
		f.Add(s)
	}
	closed := closedPaths{"/api/hooks"}
	f.Fuzz(func(t *testing.T, p string) {
		if !strings.HasPrefix(p, "/") || closed.holds(p) {
			return
		}
		for n := range 1 << 9 {
			if r := readAs(p, n); r == "/api/hooks" || strings.HasPrefix(r, "/api/hooks/") || strings.HasPrefix(r, "/api/hooks.") {
				t.Fatalf("%q is open, and read as %q in way %b", p, r, n)
			}
		}
	})
}

// readAs reads a path as apps do; each bit of way is a habit of some of them.
func readAs(p string, way int) string {
	habit := func(n int) bool { return way>>n&1 == 1 }
	for range way & 3 {
		p = unescape(p)
	}
	if i := strings.IndexAny(p, "?#\x00"); i >= 0 && habit(2) {
		p = p[:i]
	}
	if habit(3) {
		p = strings.ReplaceAll(p, `\`, "/")
	}
	plain := func(s string) string {
		if habit(4) {
			s, _, _ = strings.Cut(s, ";")
		}
		return s
	}
	var read []string
	for _, s := range strings.Split(p, "/")[1:] {
		dots := plain(s)
		if habit(5) {
			dots = unescape(dots)
		}
		switch {
		case habit(6) && plain(s) == "": // slashes are merged
		case habit(7) && dots == ".":
		case habit(7) && dots == "..":
			read = read[:max(0, len(read)-1)]
		case habit(8): // parameters belong to what is cleaned, not to what is looked up
			s, _, _ = strings.Cut(s, ";")
			read = append(read, s)
		default:
			read = append(read, plain(s))
		}
	}
	return strings.ToLower("/" + strings.Join(read, "/"))
}

// An upgrade to another way of sending requests would hide them all.
func TestUpgradeToHTTP2IsNotHandedOn(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, nil)
	g := passingToURL(t, app.url)
	for n, upgrade := range []string{"h2c", "websocket, H2C", "HTTP/2.0", "TLS/1.0, HTTP/1.1"} {
		g.raw(get("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+upgrade, "HTTP2-Settings: AAMAAABk"))
		_, fields := app.got(t, n)
		if s := fmt.Sprint(fields); strings.Contains(s, "Upgrade") || strings.Contains(s, "Settings") {
			t.Errorf("%s: the app got %s", upgrade, s)
		}
	}
}
