package proxy

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// preset is a source of a preset at /in, with the clock of the handshakes and its
// event id in a header that no handshake has.
func preset(t testing.TB, name, secret string) Source {
	t.Helper()
	s, ok := verify.Preset(name)
	if !ok {
		t.Fatalf("no preset %s", name)
	}
	if secret == "" {
		secret = strings.Repeat("s", 40)
	}
	v := &verify.Verifier{Scheme: s, Now: clock(handshakeTime), URL: "https://hooks.example.com/in"}
	v.Handshakes.Origins = []string{"eventemitter.example.com"}
	v.Handshakes.Token = key(t, "", secret).Secret
	source := Source{Name: name, Tenant: "t1", Path: "/in", Verifier: v, EventID: field(t, "header:X-Event-Id")}
	if s.HasHandshake("enrol") {
		v.Handshakes.EnrolUntil = time.Unix(handshakeTime+60, 0)
		source.Enrol = func(_ context.Context, secret []byte) (verify.KeySet, error) {
			return verify.NewKeySet(key(t, "enrolled", string(secret)))
		}
		return source
	}
	spec, text := s.SecretSpec(), []byte(secret)
	switch name {
	case "discord":
		spec.Encoding, text = "pem", privatePEM(t, ed25519.NewKeyFromSeed(make([]byte, 32)))
	case "aws-sns":
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		text = privatePEM(t, key)
		v.Params = map[string]string{"topic_arn": "arn:aws:sns:us-west-2:123456789012:MyTopic"}
	}
	k, err := verify.NewKey("k1", text, spec)
	if err != nil {
		t.Fatal(err)
	}
	if v.Keys, err = verify.NewKeySet(k); err != nil {
		t.Fatal(err)
	}
	return source
}

const handshakeTime = 1700000000

func privatePEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// handshakeVector is one pair of testdata/vectors/handshakes.json.
type handshakeVector struct {
	Name, Provider, Secret string
	Request                struct {
		Method, URL string
		Headers     map[string]string
		BodyBase64  string `json:"body_base64"`
	}
	Response struct {
		Status  int
		Headers map[string]string
		Body    string
	}
}

// do sends a request over a real connection.
func (g *rig) do(method, target string, header http.Header, body []byte) answer {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.server.URL+target, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	r.Host = "hooks.example.com"
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return answer{status: res.StatusCode, close: res.Close, header: res.Header, body: text}
}

// signedBySender are the pairs whose sender signs the request, although it stands
// there without a signature.
var signedBySender = []string{
	"slack/url_verification", "twitch/callback_verification", "azure-eventgrid/validation", "discord/webhook-ping", "discord/interaction-ping",
	"aws-sns/subscription",
}

func TestHandshakesOfProviders(t *testing.T) {
	text, err := os.ReadFile("../testdata/vectors/handshakes.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []handshakeVector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 22 {
		t.Errorf("%d pairs, want 22", len(all))
	}
	for _, pair := range all {
		t.Run(pair.Name, func(t *testing.T) {
			source := preset(t, pair.Provider, pair.Secret)
			in := &recorder{}
			g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{source}}})
			body, err := base64.StdEncoding.DecodeString(pair.Request.BodyBase64)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{}
			for name, value := range pair.Request.Headers {
				header.Set(name, value)
			}
			target := strings.TrimPrefix(pair.Request.URL, "https://hooks.example.com")
			if pair.Provider == "aws-sns" { // the body of the pair stands for another
				body = []byte(`{"Type":"SubscriptionConfirmation","Token":"t","Message":"m","SubscribeURL":"https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription"}`)
			}
			if slices.Contains(signedBySender, pair.Name) {
				if a := g.do(pair.Request.Method, target, header, body); a.status != 401 {
					t.Errorf("unsigned: %d %s", a.status, a.body)
				}
				r, err := source.Verifier.SignRequest(verify.Request{Method: "POST", URL: target, Header: header, Body: body},
					verify.SignOptions{DeliveryID: "m1", Time: time.Unix(handshakeTime, 0)})
				if err != nil {
					t.Fatal(err)
				}
				target, header, body = r.URL, r.Header, r.Body
			}
			a := g.do(pair.Request.Method, target, header, body)
			pair.compare(t, a)
			if n := len(in.deliveries()); n != 0 {
				t.Errorf("%d deliveries were stored", n)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			last := g.results[len(g.results)-1]
			if pair.Response.Status < 400 && (last.Outcome != OutcomeHandshake || last.Handshake == "" || last.Status != pair.Response.Status) {
				t.Errorf("reported as %+v", last)
			}
		})
	}
}

// compare demands the whole answer, and of a refusal the status alone: its body
// is that of every refusal.
func (v *handshakeVector) compare(t *testing.T, a answer) {
	t.Helper()
	if a.status != v.Response.Status {
		t.Fatalf("status %d, want %d: %s", a.status, v.Response.Status, a.body)
	}
	if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header["Set-Cookie"] != nil {
		t.Errorf("header %v", a.header)
	}
	if a.status >= 400 {
		return
	}
	if string(a.body) != v.Response.Body {
		t.Errorf("body %s, want %s", a.body, v.Response.Body)
	}
	for name, want := range v.Response.Headers {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if v.Response.Body == "" && a.header.Get("Content-Type") != "" {
		t.Errorf("Content-Type %q without a body", a.header.Get("Content-Type"))
	}
}

// A refusal that waits for the body is still that refusal, and reads little.
func TestUnsignedRequestsStayRefusedWhereHandshakesAre(t *testing.T) {
	g := start(t, setup{cfg: Config{Sources: []Source{preset(t, "lark-feishu", "")}}})
	for _, body := range []string{"", "{}", "rubbish", strings.Repeat("x", 100_000), `{"challenge":"abc","type":"other","token":"` + strings.Repeat("s", 40) + `"}`} {
		g.do("POST", "/in", nil, []byte(body)).wants(t, 401, "signature_invalid")
	}
	// Declared too long for a handshake, it is not read.
	m := &message{method: "POST", target: "/in"}
	a := g.raw(m.head("Content-Length: 20000"))
	if a.wants(t, 401, "signature_invalid"); !a.close {
		t.Error("the connection stays open behind a body that was not read")
	}
	if a := g.raw((&message{method: "POST", target: "/in", body: bytes.Repeat([]byte("x"), 100_000)}).chunked(30_000)); a.status != 401 {
		t.Errorf("chunked: %d", a.status)
	}
	// Handshakes of other methods stay what they are elsewhere.
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT"} {
		if a := g.do(method, "/in?challenge=xyz", nil, nil); a.status != 405 || a.header.Get("Allow") != "POST" || strings.Contains(string(a.body), "xyz") {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
}

func TestHandshakesOffAreOtherMethods(t *testing.T) {
	s := preset(t, "dropbox", "")
	s.Verifier.Handshakes.Off = true
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	g.do("GET", "/in?challenge=abc", nil, nil).wants(t, 405, "method_not_allowed")
}

func TestDeliveriesPassWhereHandshakesAre(t *testing.T) {
	in := &recorder{}
	s := preset(t, "slack", "")
	s.EventID = verify.Field{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
	body := []byte(`{"type":"event_callback","event_id":"Ev1","challenge":"abc"}`)
	h, err := s.Verifier.Sign(verify.Request{Method: "POST", URL: "/in", Body: body}, verify.SignOptions{Time: time.Unix(handshakeTime, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if a := g.do("POST", "/in", h, body); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got := in.deliveries(); len(got) != 1 || got[0].DeliveryID != "Ev1" {
		t.Errorf("stored %+v", got)
	}
}

// A header that stands for the delivery id is demanded of deliveries still, where
// handshakes come without it.
func TestEventIDHeaderIsDemandedBehindHandshakes(t *testing.T) {
	s := preset(t, "discord", "")
	in := &recorder{}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
	body := []byte(`{"type":1,"event":{"type":"x"}}`)
	h, err := s.Verifier.Sign(verify.Request{Method: "POST", URL: "/in", Body: body}, verify.SignOptions{Time: time.Unix(handshakeTime, 0)})
	if err != nil {
		t.Fatal(err)
	}
	g.do("POST", "/in", h.Clone(), body).wants(t, 400, "header_missing")
	h.Set("X-Event-Id", "e1")
	if a := g.do("POST", "/in", h, body); a.status != 204 || len(in.deliveries()) != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestKeyedAnswersAreFive(t *testing.T) {
	var now atomic.Int64
	now.Store(handshakeTime)
	s := preset(t, "x-twitter", "")
	s.Verifier.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	other := preset(t, "x-twitter", "")
	other.Name, other.Path = "other", "/other"
	g := start(t, setup{cfg: Config{Sources: []Source{s, other}}})
	ask := func(path string) int { return g.do("GET", path+"?crc_token=abc", nil, nil).status }
	for i := range 5 {
		now.Add(1)
		if got := ask("/in"); got != 200 {
			t.Fatalf("answer %d: %d", i, got)
		}
	}
	if got := ask("/in"); got != 429 {
		t.Errorf("the sixth in a minute: %d", got)
	}
	if got := ask("/other"); got != 200 {
		t.Errorf("another source: %d", got)
	}
	now.Store(handshakeTime + 61) // the first is a minute old
	if got := ask("/in"); got != 200 {
		t.Errorf("a minute later: %d", got)
	}
	if got := ask("/in"); got != 429 {
		t.Errorf("and one more: %d", got)
	}
	g = start(t, setup{cfg: Config{Sources: []Source{preset(t, "dropbox", "")}}})
	for range 10 {
		if a := g.do("GET", "/in?challenge=abc", nil, nil); a.status != 200 {
			t.Fatalf("an answer without a key: %d", a.status)
		}
	}
}

// A hook that is asked for under the old key says that the key is in use.
func TestSignedHandshakeIsAUseOfItsKey(t *testing.T) {
	s := preset(t, "slack", "")
	old, next := s.Verifier.Keys.Keys()[0], key(t, "k2", strings.Repeat("n", 40))
	old.NotAfter, next.NotBefore = time.Unix(handshakeTime+60, 0), time.Unix(handshakeTime-60, 0)
	var err error
	if s.Verifier.Keys, err = verify.NewKeySet(old, next); err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"type":"url_verification","challenge":"abc"}`)
	h, err := s.Verifier.Sign(verify.Request{Method: "POST", URL: "/in", Body: body}, verify.SignOptions{Key: old, Time: time.Unix(handshakeTime-7, 0)})
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	if a := g.do("POST", "/in", h, body); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r := g.result(0); r.Outcome != OutcomeHandshake || r.KeyID != "k1" || !r.Retiring || r.Distance != -7*time.Second || r.Scheme != "slack" {
		t.Errorf("reported as %+v", r)
	}
}

// The secret is handed over once: a sender that does not wait for the answer has
// handed it over all the same.
func TestSenderThatHangsUpHasHandedOver(t *testing.T) {
	s := preset(t, "asana", "")
	enrol, kept := s.Enrol, false
	s.Enrol = func(ctx context.Context, secret []byte) (verify.KeySet, error) {
		kept = ctx.Err() == nil
		return enrol(ctx, secret)
	}
	p, err := New(&recorder{}, Config{Sources: []Source{s}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	r := httptest.NewRequestWithContext(ctx, "POST", "/in", strings.NewReader("{}"))
	r.Header.Set("X-Hook-Secret", strings.Repeat("f", 64))
	if p.ServeHTTP(httptest.NewRecorder(), r); !kept {
		t.Error("what keeps the secret was told to stop")
	}
}

func TestEnrolledKeyHoldsAtOnce(t *testing.T) {
	const secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81"
	in := &recorder{}
	s := preset(t, "asana", "")
	var kept atomic.Int32
	enrol := s.Enrol
	s.Enrol = func(ctx context.Context, secret []byte) (verify.KeySet, error) {
		kept.Add(1)
		return enrol(ctx, secret)
	}
	g := start(t, setup{inbox: in, cfg: Config{Sources: []Source{s}}})
	body := []byte(`{"events":[]}`)
	sign := *s.Verifier
	sign.Keys, _ = verify.NewKeySet(key(t, "", secret))
	h, err := sign.Sign(verify.Request{Method: "POST", Body: body}, verify.SignOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.Set("X-Event-Id", "e1")
	g.do("POST", "/in", h.Clone(), body).wants(t, 401, "signature_invalid")

	// Twenty at once: one has its secret taken, and its own answer.
	var senders sync.WaitGroup
	var won, lost atomic.Int32
	for range 20 {
		senders.Go(func() {
			switch a := g.do("POST", "/in", http.Header{"X-Hook-Secret": {secret}}, []byte("{}")); {
			case a.status == 200 && a.header.Get("X-Hook-Secret") == secret:
				won.Add(1)
			case a.status == 403:
				lost.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	senders.Wait()
	if won.Load() != 1 || lost.Load() != 19 || kept.Load() != 1 {
		t.Errorf("%d won, %d lost, kept %d times", won.Load(), lost.Load(), kept.Load())
	}
	// One that was found open, and had to wait for the first.
	var refused *verify.Error
	if err := g.proxy.routes.paths["/in"][0].take(t.Context(), []byte(secret)); !errors.As(err, &refused) || kept.Load() != 1 {
		t.Errorf("a second was taken: %v", err)
	}
	if a := g.do("POST", "/in", h, body); a.status != 202 || len(in.deliveries()) != 1 || in.deliveries()[0].KeyID != "enrolled" {
		t.Errorf("%d %s, stored %+v", a.status, a.body, in.deliveries())
	}
}

func TestSecretThatCannotBeKeptIsNotConfirmed(t *testing.T) {
	s := preset(t, "notion", "")
	full := errors.New("disk full")
	s.Enrol = func(context.Context, []byte) (verify.KeySet, error) { return verify.KeySet{}, full }
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	g.do("POST", "/in", nil, []byte(`{"verification_token":"secret_abc123_verification_token"}`)).wants(t, 500, "internal")
	if r := g.result(0); !errors.Is(r.Err, full) || r.Outcome != OutcomeUnavailable {
		t.Errorf("%+v", r)
	}
	// It may be handed over again.
	g.do("POST", "/in", nil, []byte(`{"verification_token":"secret_abc123_verification_token"}`)).wants(t, 500, "internal")
}

func TestEnrolmentNeedsSomebodyWhoKeeps(t *testing.T) {
	s := preset(t, "asana", "")
	s.Enrol = nil
	if _, err := New(&recorder{}, Config{Sources: []Source{s}}); err == nil || !strings.Contains(err.Error(), "Enrol") {
		t.Errorf("%v", err)
	}
}

func TestConfirmationIsHandedOnOnceItIsVerified(t *testing.T) {
	const url = "https://rp-eastus2.eventgrid.azure.net:553/validate?id=1"
	s := preset(t, "azure-event-grid", "")
	var mu sync.Mutex
	var urls []string
	var busy error
	s.Confirm = func(_ context.Context, url string) error {
		mu.Lock()
		defer mu.Unlock()
		if busy == nil {
			urls = append(urls, url)
		}
		return busy
	}
	g := start(t, setup{cfg: Config{Sources: []Source{s}}})
	body := []byte(`[{"data":{"validationUrl":"` + url + `"}}]`)
	h := http.Header{"Aeg-Event-Type": {"SubscriptionValidation"}}
	target := "/in?key=" + strings.Repeat("s", 40)
	g.do("POST", "/in?key=wrong", h.Clone(), body).wants(t, 401, "signature_invalid")
	if a := g.do("POST", target, h.Clone(), body); a.status != 200 || len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	g.do("POST", target, h.Clone(), bytes.Replace(body, []byte("azure.net"), []byte("azure.com"), 1)).wants(t, 403, "handshake_refused")
	mu.Lock()
	busy = errors.New("queue full")
	mu.Unlock()
	g.do("POST", target, h.Clone(), body).wants(t, 503, "overloaded")
	if r := g.result(3); !errors.Is(r.Err, busy) {
		t.Errorf("the report does not say why: %v", r.Err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(urls) != 1 || urls[0] != url {
		t.Errorf("handed on %v", urls)
	}
}
