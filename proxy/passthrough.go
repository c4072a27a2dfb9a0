package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// Upstream is the app that gets what is for no source.
type Upstream struct {
	// URL is scheme, host and port of the app: http or https, no path.
	URL string
	// Destinations are the URLs that deliveries are handed on to. Of those at the
	// same scheme, host and port as URL the path is closed, and what is below it, in
	// any spelling: it is answered 404.
	Destinations []string
	// TLS is how an https upstream is checked. Defaults to the system's roots.
	TLS *tls.Config
}

// Check says what is wrong with u. [New] asks it too.
func (u *Upstream) Check() error {
	_, _, err := u.parse()
	return err
}

// Serves says whether the app is what answers at a URL.
func (u *Upstream) Serves(address string) bool {
	there, err := url.Parse(address)
	own, wrong := parseUpstream(u.URL)
	return err == nil && wrong == nil && origin(there) == origin(own)
}

func (u *Upstream) parse() (*url.URL, closedPaths, error) {
	own, err := parseUpstream(u.URL)
	if err != nil {
		return nil, nil, err
	}
	closed, err := newClosedPaths(own, u.Destinations)
	return own, closed, err
}

const (
	upstreamConnect = 5 * time.Second
	// upstreamIdle is short of what apps keep an idle connection for, so that none is
	// closed under a request: 2 seconds and more are in use.
	upstreamIdle = time.Second
	// upstreamAnswer bounds the wait for an answer to begin, after the whole request
	// was sent. Apps that hold a request until something happens need minutes.
	upstreamAnswer      = 5 * time.Minute
	upstreamConnections = 128 // idle ones
)

// passthrough is a reverse proxy to the upstream.
type passthrough struct {
	url     *url.URL
	closed  closedPaths
	proxies proxies
	proxy   *httputil.ReverseProxy
	// A request without a body is one that net/http may send again by itself where it
	// carries an idempotency key. It does not on a connection that was never used.
	reusing, fresh *http.Transport

	running running
}

// newPassthrough returns nil for no upstream.
func newPassthrough(cfg *Upstream, trusted proxies) (*passthrough, error) {
	if cfg == nil {
		return nil, nil
	}
	u, closed, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	pt := &passthrough{url: u, closed: closed, proxies: trusted,
		reusing: upstreamTransport(cfg.TLS, false), fresh: upstreamTransport(cfg.TLS, true)}
	pt.proxy = &httputil.ReverseProxy{
		Rewrite:       pt.rewrite,
		Transport:     pt,
		FlushInterval: -1, // what the app sends goes on at once
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { w.(*passing).failed = err },
	}
	return pt, nil
}

func parseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, errors.New("URL is no http or https URL with a host")
	case u.User != nil:
		return nil, errors.New("URL holds a user or password")
	case strings.TrimPrefix(u.Path, "/") != "", u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return nil, errors.New("URL has more than scheme, host and port: paths go on as they come")
	}
	return u, nil
}

func upstreamTransport(secure *tls.Config, fresh bool) *http.Transport {
	t := &http.Transport{
		Proxy:                 nil, // the environment has no say
		DialContext:           (&net.Dialer{Timeout: upstreamConnect}).DialContext,
		TLSClientConfig:       secure.Clone(),
		TLSHandshakeTimeout:   upstreamConnect,
		DisableCompression:    true, // encodings are between the app and its client
		DisableKeepAlives:     fresh,
		MaxIdleConns:          upstreamConnections,
		MaxIdleConnsPerHost:   upstreamConnections,
		IdleConnTimeout:       upstreamIdle,
		ResponseHeaderTimeout: upstreamAnswer,
		ExpectContinueTimeout: time.Second,
		Protocols:             new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true) // a connection can be upgraded only there
	return t
}

// RoundTrip implements [http.RoundTripper].
func (pt *passthrough) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil && (r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil) {
		return pt.fresh.RoundTrip(r)
	}
	return pt.reusing.RoundTrip(r)
}

// takes says whether a request of this target may go to the upstream.
func (pt *passthrough) takes(method, target string) bool {
	return pt != nil && method != http.MethodConnect && strings.HasPrefix(target, "/") && !pt.closed.holds(pathOf(target))
}

// rewrite makes the request that the app gets: the target and the header as they
// came, but for what belongs to a connection, is reserved, or says who came which way.
func (pt *passthrough) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL.Scheme, out.URL.Host = pt.url.Scheme, pt.url.Host
	// HTTP/2 carries spaces in a target. In a request line the app might take what is
	// behind one for the protocol, and so read another path than we have judged.
	target := strings.ReplaceAll(in.RequestURI, " ", "%20")
	if strings.HasPrefix(target, "//") {
		// Opaque would be read as a host. So what no URL may hold must be encoded, and
		// by us: net/url would write all of the path anew, and turn %2F into a slash.
		path, query, _ := strings.Cut(target, "?")
		out.URL.RawPath, out.URL.RawQuery = encodeUnfit(path), query
	} else {
		out.URL.Opaque, out.URL.RawQuery, out.URL.ForceQuery = target, "", false
	}
	out.Host = in.Host
	if tunnels(out.Header["Upgrade"]) {
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
	}
	// Otherwise net/http sends the body of an app that has refused it after all.
	out.Close = out.Header["Expect"] != nil
	pt.forwarded(in, out.Header)
	if b, ok := in.Body.(*passingBody); ok && len(in.Trailer) > 0 {
		b.declared, out.Trailer = in.Trailer, make(http.Header, len(in.Trailer))
		for name := range in.Trailer {
			if !reservedName(name) {
				out.Trailer[name] = nil
			}
		}
		b.trailer = out.Trailer
	}
}

// encodeUnfit encodes the bytes that no path of a URL may hold, and only those.
func encodeUnfit(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"#<>?\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// forwarded takes out what only we may say, and says it.
func (pt *passthrough) forwarded(in *http.Request, h http.Header) {
	client, vouched := pt.proxies.client(in)
	scheme := "http"
	if in.TLS != nil {
		scheme = "https"
	}
	realIP := vouched && in.Header["X-Real-Ip"] != nil
	for name := range h {
		told := vouched && (strings.HasPrefix(name, "X-Forwarded-") || name == "X-Original-Url" || name == "X-Rewrite-Url") && !strings.Contains(name, "_")
		if reservedName(name) && !told {
			delete(h, name)
		}
	}
	// The one address alone: whatever an app's rule is for picking one out of a list,
	// it is the client's that it finds.
	delete(h, "X-Forwarded-For")
	if client != "" {
		h.Set("X-Forwarded-For", client)
		if realIP {
			h.Set("X-Real-Ip", client)
		}
	}
	if vouched { // they went with Rewrite
		h["X-Forwarded-Host"], h["X-Forwarded-Proto"] = in.Header["X-Forwarded-Host"], in.Header["X-Forwarded-Proto"]
	}
	if len(h["X-Forwarded-Host"]) == 0 && in.Host != "" {
		h.Set("X-Forwarded-Host", in.Host)
	}
	if len(h["X-Forwarded-Proto"]) == 0 {
		h.Set("X-Forwarded-Proto", scheme)
	}
}

// reservedName: ours, the words about who came which way, and those that some apps take
// for the path, which would open the closed ones. Gateways write every other byte of a
// name as "_" and apps then cannot tell it from "-".
func reservedName(name string) bool {
	folded := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return strings.HasPrefix(folded, "hooklatch-") || strings.HasPrefix(folded, "x-forwarded-") ||
		folded == "forwarded" || folded == "x-real-ip" || folded == "x-original-url" || folded == "x-rewrite-url"
}

// tunnels says whether the upgrade is to another way of sending requests. None of
// those would be looked at: closed paths would be open, and addresses anybody's.
func tunnels(upgrade []string) bool {
	for _, v := range upgrade {
		for protocol := range strings.SplitSeq(strings.ToLower(v), ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(protocol), "/")
			if name == "h2c" || name == "http" || name == "tls" || name == "h2" {
				return true
			}
		}
	}
	return false
}
