package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// certificate writes NAME.crt and NAME.key, signed by itself, for the names.
func (s *site) certificate(file string, names ...string) *x509.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(file+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	s.write(file+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return cert
}

func tlsClient(t *testing.T, name string, version uint16, trusted ...*x509.Certificate) *http.Client {
	roots := x509.NewCertPool()
	for _, c := range trusted {
		roots.AddCert(c)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{ServerName: name, RootCAs: roots, MaxVersion: version},
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

const tlsListen = `listen: {https: "127.0.0.1:0", admin: "127.0.0.1:0"}`

func TestServeOverTLSByServerName(t *testing.T) {
	t.Parallel()
	app, appURL := startApp(t)
	s := newSite(t)
	a, b := s.certificate("a", "a.example.com"), s.certificate("b", "*.b.example.com")
	s.config(appURL, tlsListen, `tls: {mode: files, certificates: [{cert: a.crt, key: a.key}, {cert: b.crt, key: b.key}]}`)
	sv := startServe(t, s, inboxtest.URL(t))

	for i, host := range []string{"a.example.com", "x.b.example.com"} {
		id := "dlv_" + string(rune('1'+i))
		client := tlsClient(t, host, 0, a, b)
		resp, err := client.Do(s.request(sv.url, id, "{}"))
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != 202 || resp.ProtoMajor != 2 {
			t.Errorf("%s: %d over %s, want 202 over HTTP/2", host, resp.StatusCode, resp.Proto)
		}
		sv.line(`"msg":"attempt"`, id, `"outcome":"accepted"`)
	}
	if n := len(app.requests()); n != 2 {
		t.Errorf("the app got %d, want 2", n)
	}

	u, err := url.Parse(sv.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		cfg  *tls.Config
		want string
	}{
		{"no server name", &tls.Config{}, "unrecognized name"},
		{"a name that is not served", &tls.Config{ServerName: "c.example.com"}, "unrecognized name"},
		{"the name above a wildcard", &tls.Config{ServerName: "b.example.com"}, "unrecognized name"},
		{"TLS 1.1", &tls.Config{ServerName: "a.example.com", MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11}, "protocol version not supported"},
	} {
		c.cfg.InsecureSkipVerify = true // the server has to refuse, not we
		conn, err := tls.Dial("tcp", u.Host, c.cfg)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an alert %q", c.what, err, c.want)
		}
	}
	if metrics := get(t, sv.admin+"/metrics").body; !strings.Contains(metrics, `hooklatch_certificate_not_after_timestamp_seconds{domain="*.b.example.com"}`) {
		t.Error("/metrics lacks the end of a certificate")
	}
	begun := time.Now()
	sv.end() // with idle connections of HTTP/2
	if took := time.Since(begun); took > 10*time.Second || strings.Contains(sv.output(), "requests were cut") {
		t.Errorf("the stop took %s", took)
	}
	if strings.Contains(sv.output(), "handshake") {
		t.Error("failed handshakes of strangers are in the log")
	}
}

func TestServeASingleCertificateToWhoeverAsks(t *testing.T) {
	t.Parallel()
	_, appURL := startApp(t)
	s := newSite(t)
	s.certificate("a", "a.example.com")
	s.config(appURL, tlsListen, `tls: {mode: files, certificates: [{cert: a.crt, key: a.key}]}`)
	sv := startServe(t, s, inboxtest.URL(t))
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	defer transport.CloseIdleConnections()
	// By address, so without a server name, and over HTTP/1.1.
	if a := do(t, &http.Client{Transport: transport}, s.request(sv.url, "dlv_1", "{}")); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
	sv.end()
}
