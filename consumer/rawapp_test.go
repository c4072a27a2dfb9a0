package consumer

import (
	"bufio"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// rawApp answers each request on a connection as a function says, without the
// manners of net/http.
type rawApp struct {
	url  string
	seen chan rawRequest
	hits atomic.Int64
}

type rawRequest struct{ head, body string }

// newRawApp calls answer for each request; a connection whose request was not
// answered is closed.
func newRawApp(t *testing.T, answer func(head string, write func(string))) *rawApp {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := &rawApp{url: "http://" + l.Addr().String(), seen: make(chan rawRequest, 1000)}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { app.serve(c, answer) })
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return app
}

func (app *rawApp) serve(c net.Conn, answer func(string, func(string))) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		var head strings.Builder
		length := 0
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
			if name, value, ok := strings.Cut(line, ": "); ok && textproto.CanonicalMIMEHeaderKey(name) == "Content-Length" {
				length, _ = strconv.Atoi(strings.TrimSpace(value))
			}
			if line == "\r\n" {
				break
			}
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		app.hits.Add(1)
		app.seen <- rawRequest{head.String(), string(body)}
		answered := false
		answer(head.String(), func(text string) {
			answered = true
			io.WriteString(c, text)
		})
		if !answered {
			return
		}
	}
}
