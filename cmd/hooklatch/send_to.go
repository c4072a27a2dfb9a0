package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// target is where a delivery is sent.
type target struct {
	url  string
	host string // of the Host header, where it is not that of the URL

	refusal, conflict int    // statuses that the source sets; 0: those of the scheme
	onConflict        string // likewise

	source   string         // of the configuration; empty: none is known
	resource resourceConfig // where it reads resources
}

// sourceTarget is the address of a source on this machine, as its configuration
// has it.
func (c *config) sourceTarget(name string) (target, error) {
	s := c.Sources[name]
	to, err := c.sourceURL(name, s)
	to.onConflict = s.OnConflict
	to.refusal, to.conflict, to.source, to.resource = s.RefusalStatus, s.ConflictStatus, name, s.Resource
	return to, err
}

func (c *config) sourceURL(name string, s *sourceConfig) (target, error) {
	unknown := func(why, host string) (target, error) {
		return target{}, usagef("--url "+host+s.Path, "send: the URL of source %s does not follow from %s: %s", name, c.file, why)
	}
	if c.Listen.HTTPS != "" {
		_, port, err := net.SplitHostPort(c.Listen.HTTPS)
		switch {
		case s.PublicURL != "":
			return target{url: s.PublicURL}, nil
		case s.Host == "":
			return unknown("https needs the name that the certificate is for", "https://HOST")
		case err != nil || port == "443":
			return target{url: "https://" + s.Host + s.Path}, nil
		}
		return target{url: "https://" + net.JoinHostPort(s.Host, port) + s.Path}, nil
	}
	host, port, err := net.SplitHostPort(c.Listen.HTTP)
	if err != nil || port == "0" {
		return unknown("listen.http is "+c.Listen.HTTP, "http://HOST:PORT")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return target{url: "http://" + net.JoinHostPort(host, port) + s.Path, host: s.Host}, nil
}

// unanswered says what may help where nobody has answered.
func (o sendOptions) unanswered(to target, err error) string {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	u, parseErr := url.Parse(to.url)
	switch {
	case o.url == "" && o.scheme.source == "" || parseErr != nil:
		return programName() + " dev   in another terminal"
	case errors.As(err, &authority):
		return "SSL_CERT_FILE=ca.pem hooklatch send …   where ca.pem is the certificate of the authority that signed the server's"
	case errors.As(err, &name):
		return "--url with a name that the certificate is for: " + listed(name.Certificate.DNSNames)
	case errors.Is(err, http.ErrSchemeMismatch):
		return "--url " + shellQuote("http"+strings.TrimPrefix(to.url, "https")) + "   the server speaks plain HTTP there"
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return fmt.Sprintf("check that the server is up and listens on port %s of %s:  curl -i %s", port, u.Hostname(), shellQuote(to.url))
}
