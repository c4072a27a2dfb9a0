package consumer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hooklatch/hooklatch/inbox"
)

func newApp(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// newForwarder's timeout of 0 is one that no test should meet.
func newForwarder(t testing.TB, url string, timeout time.Duration) *Forwarder {
	t.Helper()
	if timeout == 0 {
		timeout = time.Minute
	}
	w, err := NewForwarder(ForwarderConfig{URL: url, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func send(f inbox.Forward) Forward { return Forward{Forward: f, Report: new(Report)} }

func failure(t *testing.T, err error) *AttemptError {
	t.Helper()
	var failed *AttemptError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want an AttemptError", err)
	}
	return failed
}

func TestDestinationURLs(t *testing.T) {
	for _, url := range []string{
		"", "app", "/x", "//h/x", "ftp://h/x", "HTTPS:opaque", "http://", "http://:80/", "http://u:s3cret@h/", "http://u@h/",
		"http://s3cret:x%zz@h/", "http://h:s3cret/", "file:///etc/passwd",
	} {
		_, err := NewForwarder(ForwarderConfig{URL: url})
		if err == nil {
			t.Errorf("%q was taken", url)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

func TestCaseF2_TargetIsTheConfiguredOne(t *testing.T) {
	targets := make(chan string, 1)
	url := newApp(t, func(_ http.ResponseWriter, r *http.Request) { targets <- r.RequestURI })
	for target, want := range map[string]string{
		"":                             "/",
		"/a%2Fb/../c//d;p=1":           "/a%2Fb/../c//d;p=1",
		"/hook?x=1;y=2&z=%zz&ok=1":     "/hook?x=1;y=2&z=%zz&ok=1",
		"/hook?":                       "/hook?",
		"/hook?token=a#not-a-fragment": "/hook?token=a",
		"/%E4%B8%AD/ü":                 "/%E4%B8%AD/%C3%BC",
		"/a%2Fb|c%7cd/[x]":             "/a%2Fb%7Cc%7cd/[x]", // one odd byte, and no other changes
		"/a%2fb c":                     "/a%2fb%20c",
		"/hook?x=a b&y=ü|":             "/hook?x=a%20b&y=%C3%BC|",
	} {
		if err := newForwarder(t, url+target, 0).Handle(t.Context(), send(sample())); err != nil {
			t.Fatal(err)
		}
		if got := <-targets; got != want {
			t.Errorf("configured %s, the app saw %s, want %s", target, got, want)
		}
	}
}

func FuzzForwardBytes(f *testing.F) {
	for _, seed := range []string{"", "{}", "a\x00b", "\xff\xfe", "\xef\xbb\xbf{}", "{}\r\n", "\x1f\x8b\x08\x00", strings.Repeat("x", 300_000)} {
		f.Add([]byte(seed), "POST")
	}
	f.Add([]byte("x"), "PUT")
	bodies := make(chan []byte, 1)
	w := newForwarder(f, newApp(f, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.ContentLength != int64(len(body)) || len(r.TransferEncoding) > 0 {
			body = fmt.Appendf(nil, "framing: length %d, %v", r.ContentLength, r.TransferEncoding)
		}
		bodies <- body
	}), 0)
	f.Fuzz(func(t *testing.T, body []byte, method string) {
		if method != "POST" && method != "PUT" {
			t.Skip()
		}
		fw := sample()
		fw.Delivery.Body, fw.Delivery.Method = body, method
		if err := w.Handle(t.Context(), send(fw)); err != nil {
			t.Fatal(err)
		}
		if got := <-bodies; !bytes.Equal(got, body) {
			t.Errorf("sent %d bytes, the app saw %q", len(body), got[:min(len(got), 100)])
		}
	})
}

func TestMethodIsTheReceivedOne(t *testing.T) {
	methods := make(chan string, 1)
	w := newForwarder(t, newApp(t, func(_ http.ResponseWriter, r *http.Request) { methods <- r.Method }), 0)
	for method, want := range map[string]string{"": "POST", "POST": "POST", "PUT": "PUT", "DELETE": "DELETE"} {
		f := sample()
		f.Delivery.Method = method
		if err := w.Handle(t.Context(), send(f)); err != nil {
			t.Fatal(err)
		}
		if got := <-methods; got != want {
			t.Errorf("method %s, want %s", got, want)
		}
	}
}

func TestNoReceivedHeaderCanFailTheForward(t *testing.T) {
	w := newForwarder(t, newApp(t, func(http.ResponseWriter, *http.Request) {}), 0)
	rapid.Check(t, func(t *rapid.T) {
		bytesOf := rapid.Custom(func(t *rapid.T) string {
			return string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes"))
		})
		f := sample()
		f.Delivery.Header = rapid.MapOfN(bytesOf, rapid.SliceOfN(bytesOf, 0, 3), 0, 6).Draw(t, "header")
		f.Delivery.EventID, f.Delivery.EventType = bytesOf.Draw(t, "id"), bytesOf.Draw(t, "type")
		if err := w.Handle(context.Background(), send(f)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestX45_AnswerClasses(t *testing.T) {
	status := make(chan int, 1)
	w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(<-status)
		io.WriteString(rw, "why")
	}), 0)
	for code := 200; code < 600; code++ {
		want := fmt.Sprintf("%dxx permanent", code/100)
		switch {
		case code < 300:
			want = "accepted"
		case code == 429:
			want = "429 retry"
		case code == 408, code == 425:
			want = "4xx retry"
		case code >= 500:
			want = "5xx retry"
		}
		status <- code
		f := send(sample())
		err := w.Handle(t.Context(), f)
		got := "accepted"
		if err != nil {
			failed := failure(t, err)
			got = classOf(failed.Status) + " retry"
			if failed.Permanent {
				got = classOf(failed.Status) + " permanent"
			}
		}
		if got != want || f.Report.Status != code {
			t.Errorf("status %d: %s (reported %d), want %s", code, got, f.Report.Status, want)
		}
	}
}

func TestX45_AnswerClassesAsConfigured(t *testing.T) {
	status := make(chan int, 1)
	w, err := NewForwarder(ForwarderConfig{
		URL: newApp(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "60")
			rw.Header().Set("Location", "http://elsewhere.example/x")
			rw.WriteHeader(<-status)
		}),
		Responses: map[string]inbox.Outcome{
			"404": inbox.OutcomeRetry, "409": inbox.OutcomeAccepted, "4xx": inbox.OutcomeBlocked, "429": inbox.OutcomeBlocked,
			"5xx": inbox.OutcomeBlocked, "503": inbox.OutcomeRetry, "501": inbox.OutcomeAccepted,
			"304": inbox.OutcomeAccepted, "302": inbox.OutcomeRetry, "204": inbox.OutcomeBlocked, "202": inbox.OutcomeRetry,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	for code, want := range map[int]string{
		200: "accepted", 201: "accepted", 202: "retry", 204: "permanent",
		301: "permanent", 302: "retry", 304: "accepted",
		400: "permanent", 404: "retry", 408: "permanent", 409: "accepted", 425: "permanent", 429: "permanent",
		500: "permanent", 501: "accepted", 503: "retry after 1m0s",
	} {
		status <- code
		f := send(sample())
		got := "accepted"
		if err := w.Handle(t.Context(), f); err != nil {
			failed := failure(t, err)
			got = "retry"
			if failed.Permanent {
				got = "permanent"
			}
			if failed.RetryAfter > 0 {
				got += " after " + failed.RetryAfter.String()
			}
			if failed.Status != code {
				t.Errorf("status %d: %+v", code, failed)
			}
		}
		if got != want || f.Report.Status != code {
			t.Errorf("status %d: %s (reported %d), want %s", code, got, f.Report.Status, want)
		}
	}
}

func TestResponsesThatAreRefused(t *testing.T) {
	for status, o := range map[string]inbox.Outcome{
		"": inbox.OutcomeRetry, "40": inbox.OutcomeRetry, "4": inbox.OutcomeRetry, "4XX": inbox.OutcomeRetry, "xxx": inbox.OutcomeRetry,
		"100": inbox.OutcomeRetry, "600": inbox.OutcomeRetry, "1xx": inbox.OutcomeRetry, " 404": inbox.OutcomeRetry, "404\n": inbox.OutcomeRetry,
		"404": 0, "405": inbox.OutcomeReleased,
	} {
		if _, err := NewForwarder(ForwarderConfig{URL: "http://app", Responses: map[string]inbox.Outcome{status: o}}); err == nil {
			t.Errorf("%q: %d was taken", status, o)
		}
	}
}

func TestRetryAfterOnlyWhereItMeansOverload(t *testing.T) {
	w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Retry-After", "120")
		code, _ := strconv.Atoi(r.Header.Get("X-Want"))
		rw.WriteHeader(code)
	}), 0)
	for code, want := range map[int]time.Duration{429: 2 * time.Minute, 503: 2 * time.Minute, 500: 0, 404: 0, 301: 0} {
		f := sample()
		f.Delivery.Header = map[string][]string{"X-Want": {strconv.Itoa(code)}}
		if got := failure(t, w.Handle(t.Context(), send(f))).RetryAfter; got != want {
			t.Errorf("status %d: Retry-After %v, want %v", code, got, want)
		}
	}
}

func TestCaseF7_RedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Int64
	other := newApp(t, func(http.ResponseWriter, *http.Request) { followed.Add(1) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, other+"/elsewhere?token=x", code)
		}), 0)
		failed := failure(t, w.Handle(t.Context(), send(sample())))
		if !failed.Permanent || failed.Status != code || !strings.Contains(failed.Error(), strings.TrimPrefix(other, "http://")) {
			t.Errorf("%d: %+v, want permanent with the host of Location", code, failed)
		}
		if strings.Contains(failed.Error(), "token") {
			t.Errorf("%d: the ledger would show the query: %v", code, failed)
		}
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d redirects followed", n)
	}
}

func TestCaseF6_NothingIsSentTwiceInSecret(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key", "X-Other"} {
		for _, body := range []string{"", "{}"} {
			app := newRawApp(t, func(head string, answer func(string)) {
				if !strings.Contains(head, "X-Drop") {
					answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			w := newForwarder(t, app.url, 0)
			f := sample()
			f.Delivery.Body = []byte(body)
			f.Delivery.Header = map[string][]string{name: {"1"}}
			if err := w.Handle(t.Context(), send(f)); err != nil { // a connection to reuse
				t.Fatal(err)
			}
			f.Delivery.Header["X-Drop"] = []string{"1"}
			if failed := failure(t, w.Handle(t.Context(), send(f))); failed.Class != "network" || failed.Permanent {
				t.Errorf("%s, body %q: %+v, want a retry of class network", name, body, failed)
			}
			if n := app.hits.Load(); n != 2 {
				t.Errorf("%s, body %q: the app saw %d requests, want 2", name, body, n)
			}
		}
	}
}

func TestX46_ADroppedIdleConnectionSaysNothingOfTheApp(t *testing.T) {
	app := newRawApp(t, func(head string, answer func(string)) {
		if !strings.Contains(head, "X-Drop") {
			answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	w := newForwarder(t, app.url, 0)
	f := sample()
	f.Delivery.Header = map[string][]string{"X-Drop": {"1"}}
	dropped := func() bool { return errors.As(w.Handle(t.Context(), send(f)), &silent{}) }
	if dropped() {
		t.Error("a connection that was made for it was dropped, and that is to say nothing")
	}
	if err := w.Handle(t.Context(), send(inbox.Forward{Delivery: inbox.Delivery{Body: []byte("{}")}})); err != nil {
		t.Fatal(err)
	}
	if !dropped() {
		t.Error("an idle connection was dropped, which is to count as a failure of the app")
	}
	if dropped() {
		t.Error("the next one went over a connection of its own, and is to say nothing")
	}
}

func TestEveryRequestAtTheAppIsOneAttempt(t *testing.T) {
	// The app closes each connection after an answer that promised to keep it.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var hits atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.Copy(io.Discard, r.Body)
				hits.Add(1)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	w := newForwarder(t, "http://"+l.Addr().String(), 0)
	f := sample()
	f.Delivery.Header = map[string][]string{"Idempotency-Key": {"1"}}
	accepted := int64(0)
	for range 300 {
		if w.Handle(t.Context(), send(f)) == nil {
			accepted++
		}
	}
	if n := hits.Load(); n != accepted || n == 0 {
		t.Errorf("the app saw %d requests, %d attempts were accepted", n, accepted)
	}
}

func TestX46_HangingAppTimesOut(t *testing.T) {
	w := newForwarder(t, newApp(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}), 50*time.Millisecond)
	if failed := failure(t, w.Handle(t.Context(), send(sample()))); failed.Class != "timeout" || failed.Permanent {
		t.Errorf("%+v, want class timeout and a retry", failed)
	}
}

func TestWhatWasNotSentIsNoTimeout(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	failed := failure(t, newForwarder(t, newApp(t, func(http.ResponseWriter, *http.Request) {}), 0).Handle(ctx, send(sample())))
	if failed.Class != "network" {
		t.Errorf("%+v, want class network: timeout says that the app may have it", failed)
	}
}

func TestStatusDecidesEvenIfTheAnswerNeverEnds(t *testing.T) {
	w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(rw, "start")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	}), 50*time.Millisecond)
	f := send(sample())
	if err := w.Handle(t.Context(), f); err != nil || string(f.Report.Answer) != "start" {
		t.Errorf("%v with answer %q, want accepted by the status", err, f.Report.Answer)
	}
}

func TestX46_EndlessAnswerIsCutOff(t *testing.T) {
	var written atomic.Int64
	w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(500)
		for {
			n, err := rw.Write(bytes.Repeat([]byte("x"), 1<<16))
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}), 0)
	f := send(sample())
	if failed := failure(t, w.Handle(t.Context(), f)); failed.Status != 500 || len(f.Report.Answer) != keptAnswer {
		t.Errorf("%+v with %d bytes of answer", failed, len(f.Report.Answer))
	}
}

func TestCaseE15_AnswerIsKeptAsItCame(t *testing.T) {
	plain := append([]byte{0xff, 0xfe, 0}, bytes.Repeat([]byte("y"), 10<<20)...)
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	zip.Write(plain)
	zip.Close()
	for encoding, body := range map[string][]byte{"": plain, "gzip": packed.Bytes()} {
		w := newForwarder(t, newApp(t, func(rw http.ResponseWriter, r *http.Request) {
			if got := r.Header["Accept-Encoding"]; got != nil {
				t.Errorf("Accept-Encoding %q was made up", got)
			}
			if encoding != "" {
				rw.Header().Set("Content-Encoding", encoding)
			}
			rw.WriteHeader(500)
			rw.Write(body)
		}), 0)
		f := send(sample())
		failure(t, w.Handle(t.Context(), f))
		if !bytes.Equal(f.Report.Answer, body[:keptAnswer]) {
			t.Errorf("%q: kept %d bytes that begin with %x", encoding, len(f.Report.Answer), f.Report.Answer[:8])
		}
	}
}

func TestBrokenAnswersAreTriedAgain(t *testing.T) {
	for name, answer := range map[string]string{
		"no answer at all":       "",
		"not HTTP":               "hello\r\n\r\n",
		"headers without an end": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", longestHeader+5000) + "\r\n\r\n",
		"switching protocols":    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			app := newRawApp(t, func(_ string, write func(string)) {
				if answer != "" {
					write(answer)
				}
			})
			failed := failure(t, newForwarder(t, app.url, 0).Handle(t.Context(), send(sample())))
			if failed.Class != "network" || failed.Permanent {
				t.Errorf("%+v, want class network and a retry", failed)
			}
		})
	}
}

func TestInterimAnswersAreNoAnswers(t *testing.T) {
	app := newRawApp(t, func(head string, write func(string)) {
		write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	f := send(sample())
	if err := newForwarder(t, app.url, 0).Handle(t.Context(), f); err != nil || f.Report.Status != 200 || string(f.Report.Answer) != "ok" {
		t.Errorf("%v, %+v", err, f.Report)
	}
}

func TestX46_EndlessInterimAnswersAreCutOff(t *testing.T) {
	app := newRawApp(t, func(_ string, write func(string)) {
		for range 100_000 {
			write("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
		}
	})
	failed := failure(t, newForwarder(t, app.url, 0).Handle(t.Context(), send(sample())))
	if failed.Class != "network" || failed.Permanent {
		t.Errorf("%+v, want class network and a retry", failed)
	}
}

func TestRefusedConnectionIsClassNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	failed := failure(t, newForwarder(t, "http://"+l.Addr().String(), 0).Handle(t.Context(), send(sample())))
	if failed.Class != "network" || failed.Permanent || !strings.Contains(failed.Error(), "refused") {
		t.Errorf("%+v", failed)
	}
}

func TestHTTPSIsHTTP1AndChecked(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)

	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	for name, tc := range map[string]struct {
		tls  *tls.Config
		want string
	}{
		"trusted":   {&tls.Config{RootCAs: roots}, "HTTP/1.1"},
		"untrusted": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewForwarder(ForwarderConfig{URL: s.URL, TLS: tc.tls})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Close)
			f := send(sample())
			if err := w.Handle(t.Context(), f); (err == nil) != (tc.want != "") || string(f.Report.Answer) != tc.want {
				t.Errorf("%v, spoke %s; want %s", err, f.Report.Answer, tc.want)
			}
		})
	}
}

func TestTransportKnobs(t *testing.T) {
	w := newForwarder(t, "http://app", 0)
	for _, tr := range []*http.Transport{w.reusing, w.fresh} {
		if tr.Proxy != nil || tr.IdleConnTimeout != 4*time.Second || !tr.DisableCompression || tr.MaxResponseHeaderBytes != 64<<10 ||
			tr.Protocols.HTTP2() || tr.Protocols.UnencryptedHTTP2() || !tr.Protocols.HTTP1() || tr.TLSHandshakeTimeout != 5*time.Second {
			t.Errorf("transport %+v", tr)
		}
	}
}
