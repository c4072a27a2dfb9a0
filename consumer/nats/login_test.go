package nats

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// The password is fetched at each connect, so a wrong one can be mended without a
// restart, and a refusal does not end the trying.
func TestAPasswordThatIsMendedIsFound(t *testing.T) {
	s := start(t, func(o *server.Options) { o.Username, o.Password = "hooklatch", "right" })
	hooks := stream(t, s, jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}}, natsgo.UserInfo("hooklatch", "right"))
	var password atomic.Value
	var fetched atomic.Int32
	password.Store("wrong")
	h := newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks", User: "hooklatch",
		Secret: func(context.Context) ([]byte, error) {
			fetched.Add(1)
			return []byte(password.Load().(string)), nil
		}})
	refused := func() bool {
		err := handle(t, h, forward("1"))
		if err == nil || strings.Contains(err.Error(), "wrong") {
			t.Fatalf("%v", err)
		}
		return strings.Contains(err.Error(), "Authorization")
	}
	eventually(t, "a refusal", refused)
	before := fetched.Load()
	eventually(t, "more tries", func() bool { return fetched.Load() > before+3 }) // a client gives up after two by itself
	password.Store("right")
	eventually(t, "a message", func() bool { return handle(t, h, forward("1")) == nil })
	if n := len(messages(t, hooks)); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestACredentialsFileLogsInAndASecretThatIsAwayIsTriedAgain(t *testing.T) {
	operatorKey, accountKey, userKey := newKey(t, nkeys.CreateOperator), newKey(t, nkeys.CreateAccount), newKey(t, nkeys.CreateUser)
	public := func(k nkeys.KeyPair) string {
		text, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	account := jwt.NewAccountClaims(public(accountKey))
	account.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	accountJWT, err := account.Encode(operatorKey)
	if err != nil {
		t.Fatal(err)
	}
	userJWT, err := jwt.NewUserClaims(public(userKey)).Encode(accountKey)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := userKey.Seed()
	if err != nil {
		t.Fatal(err)
	}
	file, err := jwt.FormatUserConfig(userJWT, seed)
	if err != nil {
		t.Fatal(err)
	}
	system := public(newKey(t, nkeys.CreateAccount))
	systemJWT, err := jwt.NewAccountClaims(system).Encode(operatorKey)
	if err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	for name, text := range map[string]string{public(accountKey): accountJWT, system: systemJWT} {
		if err := resolver.Store(name, text); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, func(o *server.Options) {
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{public(operatorKey)}, resolver, system
	})
	stream(t, s, jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}}, natsgo.UserCredentialBytes(file))

	var away atomic.Bool
	away.Store(true)
	h := newHandler(t, Config{Servers: []string{address(s)}, Subject: "hooks", Timeout: 500 * time.Millisecond, Secret: func(context.Context) ([]byte, error) {
		if away.Load() {
			return nil, errors.New("the safe is locked")
		}
		return file, nil
	}})
	if err := handle(t, h, forward("1")); err == nil {
		t.Fatal("accepted without a login")
	}
	away.Store(false)
	eventually(t, "a message", func() bool { return handle(t, h, forward("1")) == nil })
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestAServerIsCheckedByItsCertificate(t *testing.T) {
	cert, roots := certificate(t)
	s := start(t, func(o *server.Options) {
		o.TLS, o.TLSConfig = true, &tls.Config{Certificates: []tls.Certificate{cert}}
	})
	stream(t, s, jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}}, natsgo.Secure(&tls.Config{RootCAs: roots}))
	_, port, err := net.SplitHostPort(address(s))
	if err != nil {
		t.Fatal(err)
	}
	there := []string{net.JoinHostPort("localhost", port)}
	if err := handle(t, newHandler(t, Config{Servers: there, Subject: "hooks", TLS: &tls.Config{RootCAs: roots}}), forward("1")); err != nil {
		t.Error(err)
	}
	h := newHandler(t, Config{Servers: there, Subject: "hooks", TLS: &tls.Config{}})
	eventually(t, "a word about a certificate that nobody vouches for", func() bool {
		err := handle(t, h, forward("2"))
		if err == nil {
			t.Fatal("accepted")
		}
		return strings.Contains(err.Error(), "certificate")
	})
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
