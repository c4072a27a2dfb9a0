package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// startNodeApp runs testdata/passthrough/app.js and returns its address.
func startNodeApp(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: a real web app behind hooklatch is not tested")
	}
	cmd := exec.Command(node, "testdata/passthrough/app.js")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errors bytes.Buffer
	cmd.Stderr = &errors
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // it ends with its input
		cmd.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the app does not start: %v\n%s", err, errors.String())
	}
	return "127.0.0.1:" + strings.TrimSpace(port)
}

// seen is all that a client gets of an answer.
type seen struct {
	Status   int
	Interim  []string
	Header   []string
	Body     string
	Trailers http.Header
}

// mayDiffer are the headers of an answer that say how it is framed on its own
// connection. Of Date it counts only whether there is one.
var mayDiffer = []string{"Connection", "Keep-Alive", "Transfer-Encoding"}

// ask sends a request as it stands and reads the answer. HEAD is known by its line.
func ask(t *testing.T, address, request string) seen {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	go io.WriteString(c, request)
	method, _, _ := strings.Cut(request, " ")
	r := bufio.NewReader(c)
	var s seen
	for {
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%s: %v", firstLineOf(request), err)
		}
		if res.StatusCode < 200 {
			s.Interim = append(s.Interim, fmt.Sprint(res.StatusCode, lines(res.Header)))
			continue
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("%s: %v", firstLineOf(request), err)
		}
		if res.StatusCode == http.StatusNotModified {
			res.Header.Del("Content-Type") // net/http leaves it out: the client has it
		}
		s.Status, s.Header, s.Trailers = res.StatusCode, lines(res.Header), res.Trailer
		s.Body = string(body)
		if len(body) > 10_000 {
			s.Body = fmt.Sprintf("%d bytes, %x", len(body), sha256.Sum256(body))
		}
		return s
	}
}

func firstLineOf(request string) string {
	line, _, _ := strings.Cut(request, "\r\n")
	return line
}

func lines(h http.Header) []string {
	var all []string
	for name, values := range h {
		switch {
		case slices.Contains(mayDiffer, name):
		case name == "Date":
			all = append(all, "Date")
		default:
			for _, v := range values {
				all = append(all, name+": "+v)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { // the order of values that share a name stays
		nameA, _, _ := strings.Cut(a, ":")
		nameB, _, _ := strings.Cut(b, ":")
		return strings.Compare(nameA, nameB)
	})
	return all
}

// appTraffic is what browsers and programs ask of such an app.
func appTraffic() map[string]string {
	const to = "\r\nHost: shop.example.com\r\n"
	boundary := "--b\r\nContent-Disposition: form-data; name=f; filename=\"a.bin\"\r\nContent-Type: application/octet-stream\r\n\r\n"
	upload := boundary + strings.Repeat("\x00\xffbinary\r\n", 100_000) + "\r\n--b--\r\n"
	var chunked strings.Builder
	for chunk := range slices.Chunk([]byte(upload), 70_001) {
		fmt.Fprintf(&chunked, "%x\r\n%s\r\n", len(chunk), chunk)
	}
	return map[string]string{
		"page":                    "GET / HTTP/1.1" + to + "Accept: text/html\r\nAccept-Language: de\r\n\r\n",
		"compressed page":         "GET / HTTP/1.1" + to + "Accept-Encoding: gzip, br\r\n\r\n",
		"head of a page":          "HEAD / HTTP/1.1" + to + "\r\n",
		"form and cookies":        "POST /login HTTP/1.1" + to + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n\r\nu=a&p=b",
		"session":                 "GET /account HTTP/1.1" + to + "Cookie: theme=dark; sid=abc\r\n\r\n",
		"no session":              "GET /account HTTP/1.1" + to + "\r\n",
		"redirect":                "GET /moved HTTP/1.1" + to + "\r\n",
		"redirect of a post":      "POST /again HTTP/1.1" + to + "Content-Length: 3\r\n\r\nabc",
		"file":                    "GET /file HTTP/1.1" + to + "\r\n",
		"head of a file":          "HEAD /file HTTP/1.1" + to + "\r\n",
		"range":                   "GET /file HTTP/1.1" + to + "Range: bytes=10-29\r\n\r\n",
		"open range":              "GET /file HTTP/1.1" + to + "Range: bytes=299990-\r\n\r\n",
		"range beyond the end":    "GET /file HTTP/1.1" + to + "Range: bytes=300000-\r\n\r\n",
		"not modified":            "GET /file HTTP/1.1" + to + "If-None-Match: ETAG\r\n\r\n",
		"no content":              "DELETE /nothing HTTP/1.1" + to + "\r\n",
		"no type, no date":        "GET /plain HTTP/1.1" + to + "\r\n",
		"fault":                   "GET /broken HTTP/1.1" + to + "\r\n",
		"rare status":             "GET /teapot HTTP/1.1" + to + "\r\n",
		"early hints":             "GET /hints HTTP/1.1" + to + "\r\n",
		"trailers of an answer":   "GET /trailers HTTP/1.1" + to + "TE: trailers\r\n\r\n",
		"events":                  "GET /events HTTP/1.1" + to + "Accept: text/event-stream\r\n\r\n",
		"upload":                  fmt.Sprintf("POST /up HTTP/1.1%sContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s", to, len(upload), upload),
		"upload in chunks":        "PUT /up HTTP/1.1" + to + "Transfer-Encoding: chunked\r\n\r\n" + chunked.String() + "0\r\n\r\n",
		"trailers of a request":   "POST /up HTTP/1.1" + to + "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n",
		"refused upload":          "POST /refuse HTTP/1.1" + to + "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n0123456789",
		"expectation":             "POST /up HTTP/1.1" + to + "Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
		"preflight":               "OPTIONS /api HTTP/1.1" + to + "Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n",
		"patch":                   "PATCH /api/1 HTTP/1.1" + to + "Content-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}",
		"empty post":              "POST /api HTTP/1.1" + to + "Content-Length: 0\r\n\r\n",
		"body of a delete":        "DELETE /api HTTP/1.1" + to + "Content-Length: 3\r\n\r\nabc",
		"rare method":             "PROPFIND /api HTTP/1.1" + to + "Depth: 1\r\n\r\n",
		"encoded target":          "GET //a%2Fb/./c/../d;x=1?q=1;r=2&z=%zz&u=\"<> HTTP/1.1" + strings.Replace(to, "Host", "X-A: 1\r\nX-A: 2\r\nhOST", 1) + "\r\n",
		"spellings of the source": "POST /in/billing/ HTTP/1.1" + to + "X-Webhook-Signature: 00\r\nContent-Length: 2\r\n\r\n{}",
		"credentials":             "GET /api HTTP/1.1" + to + "Authorization: Basic YTpi\r\nX_Under_Score: 1\r\nUser-Agent: curl/8\r\nReferer: http://a/?b\r\n\r\n",
	}
}

// withoutAdded takes out of an echo what may be there through hooklatch alone.
func withoutAdded(t *testing.T, body string) string {
	var echo map[string]any
	if json.Unmarshal([]byte(body), &echo) != nil || echo["headers"] == nil {
		return body
	}
	var kept []any
	for _, h := range echo["headers"].([]any) {
		name, value, _ := strings.Cut(h.(string), ": ")
		switch name {
		case "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto":
			if value != "127.0.0.1" && value != "shop.example.com" && value != "http" {
				t.Errorf("the app got %s", h)
			}
		case "connection":
		default:
			kept = append(kept, h)
		}
	}
	echo["headers"] = kept
	text, _ := json.Marshal(echo)
	return string(text)
}

// A web app of another language, asked directly and through hooklatch: what comes
// back must be the same, and what the app has seen too.
func TestAnAppNoticesNothingOfHooklatchInFront(t *testing.T) {
	t.Parallel()
	app := startNodeApp(t)
	s := newSite(t)
	s.config("http://"+app, "upstream: http://"+app, "log: {level: debug}")
	database := inboxtest.URL(t)
	sv := startServe(t, s, database)
	front := strings.TrimSuffix(strings.TrimPrefix(sv.url, "http://"), "/in/billing")

	for _, h := range ask(t, app, "HEAD /file HTTP/1.1\r\nHost: x\r\n\r\n").Header {
		if etag, ok := strings.CutPrefix(h, "Etag: "); ok {
			for name, request := range appTraffic() {
				t.Run(name, func(t *testing.T) {
					request := strings.Replace(request, "ETAG", etag, 1)
					direct, passed := ask(t, app, request), ask(t, front, request)
					direct.Body, passed.Body = withoutAdded(t, direct.Body), withoutAdded(t, passed.Body)
					want, _ := json.MarshalIndent(direct, "", " ")
					got, _ := json.MarshalIndent(passed, "", " ")
					if !bytes.Equal(got, want) {
						t.Errorf("%s\nthrough hooklatch:\n%s\ndirectly:\n%s", firstLineOf(request), got, want)
					}
				})
			}
		}
	}
	t.Run("WebSocket", func(t *testing.T) {
		if direct, passed := webSocket(t, app), webSocket(t, front); passed != direct {
			t.Errorf("through hooklatch:\n%s\ndirectly:\n%s", passed, direct)
		}
	})
	if n := count(t, openPoolOf(t, database), `SELECT count(*) FROM hooklatch.inbox`); n != 0 {
		t.Errorf("%d deliveries are stored, want 0", n)
	}
	sv.line(`"outcome":"passed"`, `"level":"DEBUG"`)
	sv.end()
}

// webSocket opens one, sends two texts and closes it, and returns all that came back.
func webSocket(t *testing.T, address string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, "GET /chat?room=1 HTTP/1.1\r\nHost: shop.example.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(res.Status, lines(res.Header), res.Header["Upgrade"], res.Header["Connection"])
	mask := [4]byte{1, 2, 3, 4}
	for _, text := range []string{"hello", "again"} {
		frame := append([]byte{0x81, 0x80 | byte(len(text))}, mask[:]...)
		for i := range len(text) {
			frame = append(frame, text[i]^mask[i%4])
		}
		c.Write(frame)
		answer := make([]byte, 2+len(text))
		if _, err := io.ReadFull(r, answer); err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintf("%q\n", answer)
	}
	c.Write(append([]byte{0x88, 0x80}, mask[:]...))
	end, err := io.ReadAll(r)
	return got + fmt.Sprintf("%q %v", end, err)
}

// The same over HTTP/2, which the app does not speak.
func TestAnAppIsServedOverHTTP2(t *testing.T) {
	t.Parallel()
	app := startNodeApp(t)
	s := newSite(t)
	s.certificate("a", "a.example.com")
	s.config("http://"+app, "upstream: http://"+app, tlsListen, "tls: {mode: files, certificates: [{cert: a.crt, key: a.key}]}")
	sv := startServe(t, s, inboxtest.URL(t))
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true}
	defer transport.CloseIdleConnections()
	base := strings.TrimSuffix(sv.url, "/in/billing")
	for path, want := range map[string]string{"/": "<!doctype html>", "/events": "id: 1\ndata: tick 1\n\nid: 2\n", "/trailers": "part one, part two", "/file": "abcdefghij"} {
		r, err := http.NewRequest("GET", base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.ProtoMajor != 2 || res.StatusCode != 200 || !strings.HasPrefix(string(body), want) || (path == "/trailers") != (res.Trailer.Get("X-Sum") != "") {
			t.Errorf("%s: %s %d %v, %.40q, trailers %v", path, res.Proto, res.StatusCode, err, body, res.Trailer)
		}
	}
	sv.end()
}
