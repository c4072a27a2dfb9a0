package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox"
)

// nowhere is an inbox that stores nothing and remembers nothing.
type nowhere struct{}

func (nowhere) Accept(context.Context, inbox.Delivery) (inbox.Receipt, error) {
	return inbox.Receipt{ID: 1, ReceivedAt: time.Unix(t0, 123456000)}, nil
}

// sink is a ResponseWriter that keeps nothing.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header    { return s.header }
func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkServeHTTP is the whole path but net/http and the store.
func BenchmarkServeHTTP(b *testing.B) {
	for _, size := range []int{0, 1536, 64 << 10} {
		for _, meta := range []bool{false, true} {
			name := strconv.Itoa(size)
			s := src1(b)
			if meta {
				name += "/metadata"
				s = withMetadata(b)
			}
			b.Run(name, func(b *testing.B) {
				p, err := New(nowhere{}, Config{Sources: []Source{s}})
				if err != nil {
					b.Fatal(err)
				}
				m := signed("dlv_bench", jsonOf(size))
				b.SetBytes(int64(len(m.body)))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					r := &http.Request{Method: "POST", RequestURI: "/in/src1", Host: "hooks.example.com", ProtoMajor: 1, ProtoMinor: 1,
						Header: http.Header{}, ContentLength: int64(len(m.body)), RemoteAddr: "192.0.2.1:4711"}
					for _, h := range m.header {
						r.Header[h[0]] = []string{h[1]}
					}
					body := bytes.NewReader(nil)
					r.Body = io.NopCloser(body)
					w := &sink{header: http.Header{}}
					for pb.Next() {
						body.Reset(m.body)
						p.ServeHTTP(w, r)
						if w.status != 202 {
							b.Fatalf("status %d", w.status)
						}
					}
				})
			})
		}
	}
}

func jsonOf(size int) string {
	const head = `{"event_id":"evt_1","type":"invoice.paid","resource":{"type":"invoice","id":"inv_1","revision":7,"deleted":false},"pad":"`
	if size < len(head)+2 {
		return strings.Repeat(" ", size)
	}
	return head + strings.Repeat("x", size-len(head)-2) + `"}`
}

// BenchmarkLoopback is the same behind net/http, over keep-alive connections.
func BenchmarkLoopback(b *testing.B) {
	p, err := New(nowhere{}, Config{Sources: []Source{src1(b)}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := NewServer(p)
	go server.Serve(l)
	defer server.Close()
	wire := []byte(signed("dlv_bench", jsonOf(1536)).wire())
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for pb.Next() {
			c.Write(wire)
			res, err := http.ReadResponse(r, nil)
			if err != nil || res.StatusCode != 202 {
				b.Error(err, res)
				return
			}
			io.Copy(io.Discard, res.Body)
		}
	})
}
