package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stop ends the server gracefully:
//
//  1. /readyz answers 503, claiming stops, answers end their connections. For
//     the lame-duck time requests are still taken, so that load balancers notice.
//  2. The public listeners close. What is in flight is answered; what is not
//     complete when the shutdown time is over is cut, and nothing of it stored.
//  3. Beside both, from the beginning: attempts in flight get their time. What
//     was claimed and not sent is given back; what does not finish is recorded as
//     unknown and due again. No lease is left.
//
// Claiming has stopped already; drained is closed when the consumers have ended.
// unwatch ends what the health check sees.
func (s *server) stop(drained <-chan error, unwatch context.CancelFunc) error {
	times := s.cfg.Stop
	s.health.stopping.Store(true)
	done := make(chan error, 1)
	go func() {
		err := s.drain(time.Duration(times.LameDuck), time.Duration(times.Shutdown), drained)
		unwatch()
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
		ctx, cancel := context.WithTimeout(context.Background(), shutdown)
		defer cancel()
		if err := s.public.Shutdown(ctx); err != nil {
			s.log.Warn("stop: requests were cut", "after", shutdown.String())
			s.public.Close()
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
