package proxy

import (
	"errors"
	"fmt"
	"strings"
)

// routes finds the source of a request by exact comparison: no patterns, no
// cleaning, no redirect. http.ServeMux would answer 307 to // and dot segments,
// and senders turn a redirected POST into a GET without a body.
type routes struct {
	hosts map[string]bool      // nil: every host is served
	paths map[string][]*source // those with a host before the one without
}

func newRoutes(cfg Config) (routes, error) {
	if len(cfg.Sources) == 0 {
		return routes{}, errors.New("no sources")
	}
	r := routes{paths: make(map[string][]*source)}
	for _, h := range cfg.Hosts {
		if err := r.serve(h); err != nil {
			return routes{}, fmt.Errorf("Hosts: %w", err)
		}
	}
	if found := SharedKeys(cfg.Sources); len(found) > 0 {
		return routes{}, fmt.Errorf("source %q: %w", found[0].Source, found[0])
	}
	// An app behind us may have more hosts than sources know of.
	open := cfg.Upstream != nil && len(cfg.Hosts) == 0
	names := make(map[string]bool)
	var all []*source
	for _, s := range cfg.Sources {
		c, err := newSource(s, cfg.BodyBytes)
		if err == nil && names[s.Name] {
			err = errors.New("Name stands twice")
		}
		if err == nil && s.Host != "" {
			if err = plainHost(s.Host); err == nil && !open {
				err = r.serve(s.Host)
			}
			c.host = strings.ToLower(s.Host)
		}
		if err == nil {
			err = r.add(c)
		}
		if err != nil {
			return routes{}, fmt.Errorf("source %q: %w", s.Name, err)
		}
		names[s.Name] = true
		all = append(all, c)
	}
	for _, s := range all {
		for _, other := range all {
			if other != s && other.tenant == s.tenant {
				s.others = append(s.others, other)
			}
		}
	}
	return r, nil
}

func plainHost(host string) error {
	if host == "" || strings.ContainsAny(host, "/@ ") || hostOf(host) != host {
		return fmt.Errorf("host %q is not a plain name", host)
	}
	return nil
}

func (r *routes) serve(host string) error {
	if err := plainHost(host); err != nil {
		return err
	}
	if r.hosts == nil {
		r.hosts = make(map[string]bool)
	}
	r.hosts[strings.ToLower(host)] = true
	return nil
}

func (r *routes) add(s *source) error {
	there := r.paths[s.path]
	for _, other := range there {
		if other.host == s.host {
			return fmt.Errorf("source %q has the same host and path", other.name)
		}
	}
	if s.host == "" {
		r.paths[s.path] = append(there, s)
	} else {
		r.paths[s.path] = append([]*source{s}, there...)
	}
	return nil
}

func (r *routes) find(hostport, path string) (*source, error) {
	host := strings.ToLower(hostOf(hostport))
	if r.hosts != nil && !r.hosts[host] {
		return nil, errHost
	}
	for _, s := range r.paths[path] {
		if s.host == "" || s.host == host {
			return s, nil
		}
	}
	return nil, errPath
}

// hostOf cuts the port and the brackets of an IPv6 address.
func hostOf(hostport string) string {
	if strings.HasPrefix(hostport, "[") {
		host, _, _ := strings.Cut(hostport[1:], "]")
		return host
	}
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && strings.IndexByte(hostport, ':') == i {
		return hostport[:i]
	}
	return hostport
}

// pathOf is the path of a request target as it came, still encoded. The target
// of a request to a proxy holds scheme and host before it.
func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	if strings.HasPrefix(path, "/") {
		return path
	}
	if _, after, ok := strings.Cut(path, "://"); ok {
		if i := strings.IndexByte(after, '/'); i >= 0 {
			return after[i:]
		}
	}
	return ""
}
