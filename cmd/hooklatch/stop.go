package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// stop ends the server gracefully:
//
//  1. /readyz answers 503, claiming stops, answers end their connections. For
//     the lame-duck time requests are still taken, so that load balancers notice.
//  2. The public listeners close. What is in flight is answered; what is not
//     complete when the shutdown time is over is cut, and nothing of it stored. So
//     are connections to the upstream that were upgraded: those never end.
//  3. Beside both, from the beginning: attempts in flight get their time. What
//     was claimed and not sent is given back; what does not finish is recorded as
//     unknown and due again. No lease is left.
//
// Claiming has stopped already; drained is closed when the consumers have ended.
// Then finish writes what was counted and ends what the health check sees.
func (s *server) stop(drained <-chan error, finish func()) error {
	times := s.cfg.Stop
	s.health.stopping.Store(true)
	done := make(chan error, 1)
	go func() {
		err := s.drain(time.Duration(times.LameDuck), time.Duration(times.Shutdown), drained)
		finish()
		s.close()
		done <- err
	}()
	timer := time.NewTimer(time.Duration(times.Total))
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fail(exitNo, fmt.Errorf("stop: not done within %s", times.Total), "")
	}
}

func (s *server) drain(lameDuck, shutdown time.Duration, drained <-chan error) error {
	if s.public != nil {
		time.Sleep(lameDuck)
		s.proxy.Drain()
		if !s.endPublic(shutdown) {
			s.log.Warn("stop: requests were cut", "after", shutdown.String())
		}
	}
	var left []error
	for err := range drained {
		left = append(left, err)
	}
	if err := errors.Join(left...); err != nil {
		return fail(exitNo, fmt.Errorf("stop: %w", err), "")
	}
	return nil
}

// endPublic closes the public listeners, lets what has connected get its answer,
// and cuts what has none in time. http.Server.Shutdown comes only then: from its
// beginning on it hangs up on requests that it reads, without any answer. It is
// left with idle connections of HTTP/2, to which it says goodbye.
func (s *server) endPublic(patience time.Duration) (allAnswered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, l := range []net.Listener{s.listeners.https, s.listeners.http} {
		if l != nil {
			l.Close()
		}
	}
	s.accepting.Wait()
	s.public.SetKeepAlivesEnabled(false) // hangs up on idle connections of HTTP/1
	select {
	case <-s.connections.quiet():
	case <-ctx.Done():
	}
	allAnswered = s.public.Shutdown(ctx) == nil
	if !allAnswered {
		s.public.Close()
	}
	return s.proxy.Finish(ctx) == nil && allAnswered
}

// connections knows which of a server's have a request, or may have one that
// nobody has read yet.
type connections struct {
	mu    sync.Mutex
	busy  map[net.Conn]bool
	empty chan struct{} // nil: nobody waits
}

// note is a ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateActive:
		if c.busy == nil {
			c.busy = map[net.Conn]bool{}
		}
		c.busy[conn] = true
	default:
		delete(c.busy, conn)
		c.tell()
	}
}

// quiet returns what is closed once no connection is busy.
func (c *connections) quiet() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	empty := make(chan struct{})
	c.empty = empty
	c.tell()
	return empty
}

func (c *connections) tell() {
	if len(c.busy) == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}
