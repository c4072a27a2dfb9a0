package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
)

// listen binds an address, or a unix socket where it begins with unix:. key is
// its place in the configuration, for the error.
func listen(ctx context.Context, key, address string) (net.Listener, error) {
	var l net.Listener
	var err error
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		l, err = listenUnix(ctx, path)
	} else {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	}
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, syscall.EADDRINUSE):
		// It may pass: the process before this one may still be stopping.
		return nil, fail(exitNo, fmt.Errorf("%s: %w", key, err), "another address, or end the process that has "+address)
	case errors.Is(err, syscall.EACCES):
		return nil, fail(exitConfig, fmt.Errorf("%s: %w", key, err),
			"a port above 1023, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit")
	}
	return nil, fail(exitConfig, fmt.Errorf("%s: %w", key, err), "an address of this machine, such as 127.0.0.1:9470 or :9470")
}

// listenUnix takes over a socket that a process before this one left behind, but
// none that somebody still listens on.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		l, err = (&net.ListenConfig{}).Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func abandoned(ctx context.Context, path string) bool {
	stat, err := os.Lstat(path)
	if err != nil || stat.Mode()&fs.ModeSocket == 0 {
		return false
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// limitListener is l with at most n connections open at once; further ones wait.
func limitListener(l net.Listener, n int) net.Listener {
	return &limitedListener{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, slots: l.slots}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	slots chan struct{}
	once  sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}
