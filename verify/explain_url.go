package verify

import (
	"net/url"
	"slices"
	"strings"
)

// publicURL is the URL that the sender is thought to call: the configured one, else
// the request's own where that is a whole URL.
func (x *explainer) publicURL() string {
	c := x.c
	if !strings.Contains(c.v.URL, "://") {
		if !strings.Contains(c.r.URL, "://") {
			return ""
		}
		return c.r.URL
	}
	full, err := c.fullURL()
	if err != nil {
		return c.v.URL
	}
	return full
}

// spellings are a URL and what else it may be written as, those with the fewest
// changes first.
func spellings(full string) []string {
	list := []string{full}
	if full == "" {
		return list
	}
	changes := []func(string) string{otherProtocol, otherPort, otherSlash, otherQuery}
	for size := 1; size <= len(changes); size++ {
		for set := 1; set < 1<<len(changes); set++ {
			text, n := full, 0
			for i, change := range changes {
				if set&(1<<i) != 0 {
					text = change(text)
					n++
				}
			}
			if n == size && !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	return list
}

func otherProtocol(s string) string {
	if rest, ok := strings.CutPrefix(s, "https://"); ok {
		return "http://" + rest
	}
	if rest, ok := strings.CutPrefix(s, "http://"); ok {
		return "https://" + rest
	}
	return s
}

// splitURL cuts a URL behind its host and before its query.
func splitURL(s string) (host, path, query string) {
	start := strings.Index(s, "://") + len("://")
	end := strings.IndexAny(s[start:], "/?")
	if end < 0 {
		return s, "", ""
	}
	host, rest := s[:start+end], s[start+end:]
	if q := strings.IndexByte(rest, '?'); q >= 0 {
		return host, rest[:q], rest[q:]
	}
	return host, rest, ""
}

func otherPort(s string) string {
	host, path, query := splitURL(s)
	i := strings.LastIndexByte(host, ':')
	if _, number := digits(host[i+1:], 5); number {
		return host[:i] + path + query
	}
	port := ":443"
	if strings.HasPrefix(s, "http:") {
		port = ":80"
	}
	return host + port + path + query
}

func otherSlash(s string) string {
	host, path, query := splitURL(s)
	if cut, ok := strings.CutSuffix(path, "/"); ok {
		return host + cut + query
	}
	return host + path + "/" + query
}

// otherQuery leaves the query out, which also stands for one that a proxy added.
func otherQuery(s string) string {
	host, path, _ := splitURL(s)
	return host + path
}

func urlDeparture(from, to string) departure {
	change, fix := urlChange(from, to), "let the source's public URL be the one that the sender calls, and signs"
	if change == withoutQuery {
		fix = "sign the query too; a proxy on the way may add one"
	}
	return departure{"url_other", "the URL is spelled " + change, "the sender signed the URL " + change, fix}
}

const withoutQuery = "without the query"

// urlChange says how a spelling differs, without showing it: a query may hold a token.
func urlChange(from, to string) string {
	hostA, pathA, queryA := splitURL(from)
	hostB, pathB, queryB := splitURL(to)
	var list []string
	a, b := "", ""
	if u, err := url.Parse(hostA); err == nil {
		a = u.Port()
	}
	if u, err := url.Parse(hostB); err == nil {
		b = u.Port()
	}
	if scheme, _, _ := strings.Cut(to, ":"); !strings.HasPrefix(from, scheme+":") {
		list = append(list, "with "+scheme+"://")
	}
	switch {
	case a == b:
	case b == "":
		list = append(list, "without the port "+a)
	default:
		list = append(list, "with the port "+b)
	}
	switch {
	case len(pathB) > len(pathA):
		list = append(list, "with a final slash")
	case len(pathB) < len(pathA):
		list = append(list, "without the final slash")
	}
	if queryA != queryB {
		list = append(list, withoutQuery)
	}
	return strings.Join(list, ", ")
}
