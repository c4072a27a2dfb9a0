package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func brief(s *setup) {
	s.tune = func(server *http.Server) {
		server.ReadTimeout, server.WriteTimeout = 400*time.Millisecond, 400*time.Millisecond // they bound the TLS handshake too
	}
}

func overTLS(s *setup) { s.tls = true }

// clients are one of each protocol.
func clients(t *testing.T, test func(t *testing.T, change ...func(*setup))) {
	t.Run("HTTP/1.1", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("HTTP/2", func(t *testing.T) { t.Parallel(); test(t, overTLS) })
}

func readLine(t testing.TB, r io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

// Each side waits for what the other has sent before it goes on, longer than the
// deadlines of the server: nothing is kept back, nothing is cut.
func TestPassedBodiesStreamBothWays(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known length %t", known), func(t *testing.T) {
			t.Parallel()
			clients(t, func(t *testing.T, change ...func(*setup)) {
				wait := make(chan struct{})
				g := passingTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					control := http.NewResponseController(w)
					control.EnableFullDuplex()
					if known {
						w.Header().Set("Content-Length", "6")
					}
					control.Flush()
					for range 3 {
						b := make([]byte, 2)
						if _, err := io.ReadFull(r.Body, b); err != nil {
							t.Errorf("the app reads: %v", err)
							return
						}
						w.Write(b)
						control.Flush()
					}
				}), append(change, brief)...)
				sent, body := io.Pipe()
				r, err := http.NewRequestWithContext(t.Context(), "POST", g.server.URL+"/stream", sent)
				if err != nil {
					t.Fatal(err)
				}
				if known {
					r.ContentLength = 6
				}
				res, err := g.server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				for i := range 3 {
					part := fmt.Sprint(i) + "\n"
					io.WriteString(body, part)
					if i == 2 {
						body.Close() // a client that knows the length keeps the last part until it has seen this
					}
					readLine(t, res.Body, part)
					time.AfterFunc(300*time.Millisecond, func() { wait <- struct{}{} })
					<-wait
				}
				if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
					t.Errorf("end of the answer: %q, %v", rest, err)
				}
				if r := g.result(0); r.Outcome != OutcomePassed || r.Status != 200 || r.Err != nil || r.Disconnected || r.Source != "" {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestPassedEventsAreNotKeptBack(t *testing.T) {
	t.Parallel()
	clients(t, func(t *testing.T, change ...func(*setup)) {
		next := make(chan string)
		gone := make(chan struct{})
		g := passingTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			w.Header().Set("Content-Type", "text/event-stream")
			http.NewResponseController(w).Flush() // the header alone must arrive
			for {
				select {
				case <-r.Context().Done():
					return
				case event := <-next:
					fmt.Fprintf(w, "data: %s\n\n", event)
					http.NewResponseController(w).Flush()
				}
			}
		}), append(change, brief)...)
		res, err := g.server.Client().Get(g.server.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{"a", "b"} {
			next <- event
			readLine(t, res.Body, "data: "+event+"\n\n")
		}
		res.Body.Close() // the client goes, and so the app's request ends
		<-gone
		if r := g.result(0); r.Status != StatusDisconnected || !r.Disconnected || r.Outcome != OutcomePassed {
			t.Errorf("%+v", r)
		}
	})
}

func TestPassedTrailers(t *testing.T) {
	t.Parallel()
	clients(t, func(t *testing.T, change ...func(*setup)) {
		g := passingTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			io.Copy(w, r.Body)
			w.Header().Set("X-Sum", "app:"+r.Trailer.Get("X-Sum"))
			w.Header().Set(http.TrailerPrefix+"X-Late", fmt.Sprint(len(r.Trailer)))
		}), change...)
		r, err := http.NewRequest("POST", g.server.URL+"/", struct{ io.Reader }{strings.NewReader("abc")})
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = http.Header{"X-Sum": {"client"}, "Hooklatch-Tenant": {"forged"}}
		res, err := g.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || string(body) != "abc" || res.Trailer.Get("X-Sum") != "app:client" || res.Trailer.Get("X-Late") != "1" {
			t.Errorf("%q, %v, trailers %v", body, err, res.Trailer)
		}
	})
}

func TestInterimAnswersArePassed(t *testing.T) {
	t.Parallel()
	clients(t, func(t *testing.T, change ...func(*setup)) {
		g := passingTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(103)
			w.Header().Set("Link", "</b.css>")
			w.Write([]byte("x"))
		}), change...)
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h["Link"]))
			return nil
		}})
		r, _ := http.NewRequestWithContext(ctx, "GET", g.server.URL+"/", nil)
		res, err := g.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if fmt.Sprint(hints) != "[103 [</a.css>]]" || fmt.Sprint(res.Header["Link"]) != "[</b.css>]" {
			t.Errorf("%q, then %v", hints, res.Header)
		}
	})
}

// Whether the body is asked for is the app's decision.
func TestExpectationIsTheApps(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, func(c net.Conn, r *bufio.Reader, n int) {
		if n == 1 {
			io.WriteString(c, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
			r.ReadByte() // until the connection ends
			return
		}
		io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		body, _ := io.ReadAll(io.LimitReader(r, 3))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n%s", body)
	})
	g := passingToURL(t, app.url)
	request := "POST /up HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
	if a := g.raw(request); a.status != 417 {
		t.Errorf("%d %s", a.status, a.body)
	}
	c := g.dial()
	r := bufio.NewReader(c)
	io.WriteString(c, request)
	if line, err := r.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	r.ReadString('\n')
	io.WriteString(c, "abc")
	if a := g.read(r); a.status != 200 || string(a.body) != "abc" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What the app leaves out of an answer is not filled in.
func TestNothingIsAddedToAnAnswer(t *testing.T) {
	t.Parallel()
	app := startWireApp(t, func(c net.Conn, _ *bufio.Reader, _ int) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 6\r\n\r\n<html>")
	})
	a := passingToURL(t, app.url).raw(get("/"))
	delete(a.header, "X-A")
	if a.status != 200 || string(a.body) != "<html>" || fmt.Sprint(a.header) != "map[Content-Length:[6]]" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// Without a length at the app's, an answer has none, be it as short as can be: net/http
// would give it one if the proxy ended before the head went out.
func TestNoLengthIsAddedToAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	answer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(&passing{ResponseWriter: w, x: &exchange{r: r}}).WriteHeader(http.StatusMovedPermanently)
	}))
	defer answer.Close()
	res, err := answer.Client().Get(answer.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); len(body) != 0 || err != nil || res.Header.Get("Content-Length") != "" {
		t.Errorf("%q, %v, %v", body, err, res.Header)
	}
}

func TestBrokenAnswerIsSeenToBeBroken(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{"chunked": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "known length": "Content-Length: 6\r\n\r\nabc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients(t, func(t *testing.T, change ...func(*setup)) {
				app := startWireApp(t, func(c net.Conn, _ *bufio.Reader, _ int) { io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head) })
				g := passingToURL(t, app.url, change...)
				res, err := g.server.Client().Get(g.server.URL + "/")
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if body, err := io.ReadAll(res.Body); err == nil || string(body) != "abc" {
					t.Errorf("%q, %v: want an error", body, err)
				}
				if r := g.result(0); !errors.Is(r.Err, errUpstreamCut) || r.Status != 200 || r.Disconnected {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestUpstreamThatIsDown(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	g := passingToURL(t, "http://"+l.Addr().String())
	a := g.raw("POST /x HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 3\r\n\r\nabc")
	a.wants(t, 502, "upstream_unreachable")
	if r := g.result(0); r.Outcome != OutcomePassed || r.Code != "upstream_unreachable" || r.Status != 502 || r.Err == nil {
		t.Errorf("%+v", r)
	}
	g.send(signed("d", "abc")).wants(t, 202, "") // sources do not depend on the app
}

// A body that cannot be read is its sender's fault, and the app must not take what
// there is of it for the whole.
func TestMalformedBodyIsNotTheUpstreamsFault(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	g := passingTo(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	}))
	a := g.raw("POST / HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
	a.wants(t, 400, "body_malformed")
	if err := <-read; err == nil {
		t.Error("the app took the part for a whole")
	}
	if r := g.result(0); r.Outcome != OutcomePassed || r.Code != "body_malformed" || r.Err != nil {
		t.Errorf("%+v", r)
	}
}

// An app that answers before it has read the body: the answer arrives, and the
// client that stalls holds nothing.
func TestEarlyAnswerIsPassed(t *testing.T) {
	t.Parallel()
	for name, framing := range map[string]string{"chunked": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "known length": "Content-Length: 600\r\n\r\nabc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := startWireApp(t, func(c net.Conn, r *bufio.Reader, _ int) {
				io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
				io.Copy(io.Discard, r) // until the connection ends
			})
			g := passingToURL(t, app.url)
			c := g.dial()
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: www.example.com\r\n"+framing)
			r := bufio.NewReader(c)
			if a := g.read(r); a.status != 413 {
				t.Errorf("%d %s", a.status, a.body)
			}
			c.SetReadDeadline(time.Now().Add(10 * time.Second)) // drainTime, and some patience
			if _, err := r.ReadByte(); err != io.EOF && !isReset(err) {
				t.Errorf("the connection is still there: %v", err)
			}
		})
	}
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "reset") }

// With an idempotency key net/http takes an empty POST for something that it may send
// again by itself. Whether that is so is between the app and its client.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		var dropped atomic.Int32
		app := startWireApp(t, func(c net.Conn, r *bufio.Reader, n int) {
			if n == 1 { // keeps the connection, and drops the next request on it
				io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
				if _, err := http.ReadRequest(r); err == nil {
					dropped.Add(1)
				}
			}
		})
		g := passingToURL(t, app.url)
		if a := g.raw(get("/")); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a := g.raw("POST / HTTP/1.1\r\nHost: www.example.com\r\n" + header + ": k\r\nContent-Length: 0\r\n\r\n")
		a.wants(t, 502, "upstream_unreachable")
		if n := app.count() + int(dropped.Load()); n != 2 {
			t.Errorf("%s: the app got %d requests, want 2", header, n)
		}
	}
}

// echo upgrades and then sends back what it gets, in upper case.
func echo(c net.Conn, r *bufio.Reader, _ int) {
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\nX-A: 1\r\n\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		io.WriteString(c, strings.ToUpper(line))
	}
}

func upgrade(t testing.TB, g *rig) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := g.dial()
	r := bufio.NewReader(c)
	io.WriteString(c, get("/shout", "Connection: keep-alive, Upgrade", "Upgrade: shout"))
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "shout" || res.Header.Get("Connection") != "Upgrade" || res.Header.Get("X-A") != "1" {
		t.Fatalf("%+v, %v", res, err)
	}
	return c, r
}

func TestUpgradedConnectionIsPassed(t *testing.T) {
	t.Parallel()
	g := passingToURL(t, startWireApp(t, echo).url, brief)
	c, r := upgrade(t, g)
	for _, line := range []string{"a\n", "b\n"} {
		io.WriteString(c, line)
		readLine(t, r, strings.ToUpper(line))
		pause := make(chan struct{})
		time.AfterFunc(250*time.Millisecond, func() { close(pause) }) // beyond the deadlines
		<-pause
	}
	c.Close()
	if r := g.result(0); r.Status != 101 || r.Outcome != OutcomePassed || r.Err != nil || r.Disconnected {
		t.Errorf("%+v", r)
	}
}

// When a stop begins, what is at the upstream has the time of the stop, and is cut
// then: an upgraded connection would never end, nor do all answers.
func TestFinishWaitsAndThenCuts(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 1)
	app := startWireApp(t, func(c net.Conn, r *bufio.Reader, n int) {
		if n == 1 {
			echo(c, r, n)
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nabc")
		began <- struct{}{}
		r.ReadByte()
	})
	g := passingToURL(t, app.url)
	up, upReader := upgrade(t, g)
	stream, err := g.server.Client().Get(g.server.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	<-began
	g.proxy.Drain()
	ctx, cancel := context.WithCancel(t.Context())
	var finishing sync.WaitGroup
	var finished error
	finishing.Go(func() { finished = g.proxy.Finish(ctx) })
	io.WriteString(up, "still\n") // until the time is over
	readLine(t, upReader, "STILL\n")
	cancel()
	finishing.Wait()
	if finished == nil || !strings.Contains(finished.Error(), "2 requests") {
		t.Errorf("Finish: %v", finished)
	}
	if _, err := upReader.ReadByte(); err == nil {
		t.Error("the upgraded connection is still open")
	}
	if body, err := io.ReadAll(stream.Body); err == nil {
		t.Errorf("%q looks like a whole answer", body)
	}
	if err := g.proxy.Finish(t.Context()); err != nil {
		t.Errorf("Finish again: %v", err)
	}
	for n := range 2 {
		if r := g.result(n); !errors.Is(r.Err, errStopped) {
			t.Errorf("%+v", r)
		}
	}
}

// A client that neither reads nor writes must not hold the stop.
func TestFinishCutsAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	full := make(chan struct{})
	app := startWireApp(t, func(c net.Conn, r *bufio.Reader, _ int) {
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\nX-A: 1\r\n\r\n")
		for err := error(nil); err == nil; {
			c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			_, err = c.Write(make([]byte, 64<<10))
		}
		close(full)
		r.ReadByte()
	})
	g := passingToURL(t, app.url)
	upgrade(t, g)
	<-full // all buffers on the way
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.proxy.Finish(ctx); err == nil {
		t.Error("nothing was cut")
	}
}

func TestChunkedRequestEndsTheConnection(t *testing.T) {
	t.Parallel()
	g := passingTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	c := g.dial()
	r := bufio.NewReader(c)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+get("/smuggled"))
	if a := g.read(r); !a.close || string(a.body) != "abc" {
		t.Errorf("%+v", a)
	}
	if _, err := r.ReadByte(); err != io.EOF && !isReset(err) {
		t.Errorf("the connection is still there: %v", err)
	}
}

func TestUpstreamOverTLS(t *testing.T) {
	t.Parallel()
	app := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto+" "+r.Host) }))
	t.Cleanup(app.Close)
	trusting := app.Client().Transport.(*http.Transport).TLSClientConfig
	g := passingToURL(t, app.URL, func(s *setup) { s.cfg.Upstream.TLS = trusting })
	if a := g.raw(get("/")); string(a.body) != "HTTP/1.1 www.example.com" {
		t.Errorf("%d %s", a.status, a.body)
	}
	passingToURL(t, app.URL).raw(get("/")).wants(t, 502, "upstream_unreachable")
}
