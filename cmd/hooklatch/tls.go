package main

import "crypto/tls"

// newTLS serves certificates from files. A handshake without a server name, or
// with one that no certificate has, is refused, unless there is a single
// certificate: that one is what was meant.
func newTLS(certificates []tls.Certificate) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(certificates) == 1 {
		cfg.Certificates = certificates
		return cfg
	}
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		var fits *tls.Certificate
		for i := range certificates {
			c := &certificates[i]
			if c.Leaf.VerifyHostname(hello.ServerName) != nil { // also where there is none
				continue
			}
			if hello.SupportsCertificate(c) == nil {
				return c, nil
			}
			if fits == nil {
				fits = c // the right name; the handshake says what does not go together
			}
		}
		// Nothing: crypto/tls answers with the alert unrecognized_name.
		return fits, nil
	}
	return cfg
}
