package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
)

// origin is scheme, host and port, spelled so that equal ones are equal. All names
// of this machine are one: an app at 127.0.0.1 is at localhost too.
func origin(u *url.URL) string {
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a = a.Unmap(); a.IsLoopback() || a.IsUnspecified() {
			host = "localhost"
		} else {
			host = a.String()
		}
	}
	return scheme + "://" + host + ":" + port
}

// closedPaths are those that destinations post to at the upstream, as [plainPath]
// spells them: reached from outside they would be a way around the signature.
type closedPaths []string

func newClosedPaths(upstream *url.URL, destinations []string) (closedPaths, error) {
	var closed closedPaths
	for _, d := range destinations {
		if !strings.HasPrefix(strings.ToLower(d), "http") {
			continue // no app is there, and lists of brokers are no URLs
		}
		u, err := url.Parse(d)
		if err != nil {
			return nil, errors.New("URL of a destination does not parse") // it may hold a password
		}
		if origin(u) != origin(upstream) {
			continue
		}
		p := cleaned(plainPath(unescapeFully(u.EscapedPath())))
		if p == "/" {
			return nil, fmt.Errorf("a destination at the root of the upstream %s closes all of it", origin(upstream))
		}
		closed = append(closed, p)
	}
	return closed, nil
}

// rounds is how often a path is decoded: a chain of proxies may do it as often.
const rounds = 3

// holds says whether p, a path as it came, may lead an app to a closed path or below
// one. Nobody knows how often the app decodes, nor whether it cleans first, so each
// reading counts. Too much is closed rather than too little; the signature of the
// forward is the wall that does not depend on spelling.
func (c closedPaths) holds(p string) bool {
	if len(c) == 0 {
		return false
	}
	for range rounds + 1 {
		plain := plainPath(p)
		if c.lead(plain) || c.lead(cleaned(plain)) || c.climb(p) {
			return true
		}
		decoded := unescape(p)
		if decoded == p {
			return false
		}
		p = decoded
	}
	return false
}

func (c closedPaths) lead(plain string) bool {
	return slices.ContainsFunc(c, func(closed string) bool {
		rest, ok := strings.CutPrefix(plain, closed)
		return ok && (rest == "" || rest[0] == '/' || rest[0] == '.') // some take .json for the format of the answer
	})
}

// climb says whether p has a segment that leads up, and what is left after some segments
// are taken out may be a closed path. How far up it leads depends on what an app takes
// for a segment: empty ones, parameters, encoded slashes. So any may be taken out.
func (c closedPaths) climb(p string) bool {
	segments := strings.FieldsFunc(folded(p), func(r rune) bool { return r == '/' || r == '\\' })
	up := false
	for i, s := range segments {
		if cut := strings.IndexAny(s, ";?#\x00"); cut >= 0 {
			segments[i] = s[:cut]
		}
		up = up || segments[i] == ".."
	}
	return up && slices.ContainsFunc(c, func(closed string) bool {
		left := segments
		for want := range strings.SplitSeq(closed[1:], "/") {
			i := slices.IndexFunc(left, func(s string) bool { return s == want || strings.HasPrefix(s, want+".") })
			if i < 0 {
				return false
			}
			left = left[i+1:]
		}
		return true
	})
}

// folded spells what differs in case only alike, also letters that are one of ASCII
// in another case.
func folded(s string) string { return strings.ToLower(strings.ToUpper(s)) }

// plainPath is p in lower case, each segment without its parameters, none of them
// empty, backslashes being slashes.
func plainPath(p string) string {
	if i := strings.IndexAny(p, "?#\x00"); i >= 0 {
		p = p[:i] // decoded ones; some apps cut there
	}
	var b strings.Builder
	for segment := range strings.SplitSeq(strings.ReplaceAll(p, `\`, "/"), "/") {
		segment, _, _ = strings.Cut(segment, ";")
		if segment != "" {
			b.WriteString("/" + folded(segment))
		}
	}
	return b.String()
}

func cleaned(plain string) string { return path.Clean("/" + plain) }

func unescapeFully(p string) string {
	for range rounds {
		p = unescape(p)
	}
	return p
}

// unescape decodes what is rightly encoded, and leaves the rest as an app might.
func unescape(p string) string {
	if !strings.Contains(p, "%") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) {
			high, low := hexDigit(p[i+1]), hexDigit(p[i+2])
			if high >= 0 && low >= 0 {
				b = append(b, byte(high<<4|low))
				i += 2
				continue
			}
		}
		b = append(b, p[i])
	}
	return string(b)
}

func hexDigit(c byte) int { return strings.IndexByte("0123456789abcdef", c|0x20) }
