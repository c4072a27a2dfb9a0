package proxy

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// NewServer returns a server for h with the timeouts and limits that the proxy
// counts on. Set Addr, TLSConfig, ErrorLog and HTTP2.CountError as you need them;
// HTTP/2 is offered over TLS only. Stop it with [Proxy.Drain] and then Shutdown:
// Close would cut requests whose commit is running.
func NewServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:   h,
		Protocols: protocols,
		// The proxy judges every target itself, the asterisk too.
		DisableGeneralOptionsHandler: true,
		// Also bounds the TLS handshake.
		ReadHeaderTimeout: 5 * time.Second,
		// Backstops: the proxy sets closer deadlines for each body and answer.
		ReadTimeout:    60 * time.Second,
		WriteTimeout:   60 * time.Second,
		IdleTimeout:    60 * time.Second,
		ConnContext:    countResets,
		MaxHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          64,
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
			WriteByteTimeout:              10 * time.Second,
		},
	}
}

// maxResets is how many requests of one connection the sender may give up before
// the connection is ended. net/http defends itself against streams that are reset
// as fast as they are opened only where its handlers are slower than that.
const maxResets = 30

type resetsKey struct{}

func countResets(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, resetsKey{}, new(atomic.Int64))
}

// tooManyResets counts a request that was given up.
func tooManyResets(ctx context.Context) bool {
	n, ok := ctx.Value(resetsKey{}).(*atomic.Int64)
	return ok && n.Add(1) > maxResets
}
