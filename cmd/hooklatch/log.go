package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

// logLevels are the levels that log.level and HOOKLATCH_LOG_LEVEL know.
var logLevels = []string{"debug", "info", "warn", "error"}

// logLevel is the level of the log: that of the environment, else the configured.
func logLevel(configured string) (string, error) {
	level := os.Getenv("HOOKLATCH_LOG_LEVEL")
	if level == "" {
		return configured, nil
	}
	if !slices.Contains(logLevels, level) {
		return "", usagef("HOOKLATCH_LOG_LEVEL=info", "HOOKLATCH_LOG_LEVEL: %q is not one of %s", level, listed(logLevels))
	}
	return level, nil
}

// newLogger writes the log: one line a request, one an attempt, and what happens
// to the process. No body, no secret and nothing of a signature is ever in it.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil {
		min = slog.LevelInfo // config check has refused it
	}
	options := &slog.HandlerOptions{Level: min, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case len(groups) > 0:
		case a.Key == slog.TimeKey:
			return slog.Time(slog.TimeKey, a.Value.Time().UTC())
		case a.Key == "error":
			return slog.String(a.Key, oneLine(a.Value.String()))
		}
		return a
	}}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// logRequest writes the line of one request.
func logRequest(ctx context.Context, l *slog.Logger, r *proxy.Result) {
	level := slog.LevelInfo
	switch {
	case r.Status >= 500 && r.Code == "internal":
		level = slog.LevelError
	case r.Outcome == proxy.OutcomeUnavailable, r.Conflict, r.Outcome == proxy.OutcomePassed && r.Err != nil:
		level = slog.LevelWarn
	case r.Outcome == proxy.OutcomePassed:
		level = slog.LevelDebug // the app has a log of its own
	}
	if !l.Enabled(ctx, level) {
		return
	}
	a := attributes(make([]slog.Attr, 0, 24))
	a.text("request_id", requestID(r.RequestID))
	a.text("source", r.Source)
	a.text("tenant", r.Tenant)
	a.text("outcome", string(r.Outcome))
	a.text("handshake", r.Handshake)
	a.text("code", r.Code)
	if r.Reason != r.Code {
		a.text("reason", r.Reason)
	}
	a.text("header", r.Field)
	a.add(slog.Int("status", r.Status))
	a.text("delivery_id", r.DeliveryID)
	a.text("kept_as", r.KeptAs)
	a.text("scheme", r.Scheme)
	a.text("key_id", r.KeyID)
	if r.Retiring {
		a.add(slog.Bool("key_retiring", true))
	}
	if r.BodyHash != [32]byte{} {
		a.text("body_hash", hex.EncodeToString(r.BodyHash[:]))
	}
	a.add(slog.Int64("bytes", r.BodyBytes))
	if r.Distance != 0 {
		a.add(slog.Float64("distance_s", r.Distance.Seconds()))
	}
	if r.Outcome == proxy.OutcomeAccepted {
		a.add(slog.Int("forwards", r.Forwards))
	}
	a.text("meta_error", r.MetaError)
	if r.Conflict {
		a.add(slog.Bool("conflict", true))
	}
	if r.FirstConflict {
		a.add(slog.Bool("alarm", true))
	}
	if r.Disconnected {
		a.add(slog.Bool("disconnected", true))
	}
	a.add(milliseconds(r.Duration))
	a.text("peer", r.Peer)
	if r.Err != nil {
		a.text("error", r.Err.Error())
	}
	l.LogAttrs(ctx, level, "request", a...)
}

// logRevisionConflict writes that one revision of a resource came with two bodies.
func logRevisionConflict(ctx context.Context, l *slog.Logger, c *inbox.RevisionConflict) {
	l.LogAttrs(ctx, slog.LevelWarn, "revision conflict",
		slog.String("source", c.Source), slog.String("resource", c.ResourceType+"/"+c.ResourceID), slog.Int64("revision", c.Revision),
		slog.String("delivery_id", c.DeliveryID), slog.String("first_delivery_id", c.FirstDeliveryID), slog.Bool("alarm", true))
}

// logExplained writes why the MAC of a request had failed, in a line after its own.
func logExplained(ctx context.Context, l *slog.Logger, e *proxy.Explained) {
	level := slog.LevelInfo
	if e.Fault != nil {
		level = slog.LevelError
	}
	if e.Dropped || !l.Enabled(ctx, level) {
		return
	}
	var codes []string
	for _, c := range e.Causes {
		codes = append(codes, c.Code)
	}
	a := attributes(make([]slog.Attr, 0, 8))
	a.text("request_id", requestID(e.RequestID))
	a.text("source", e.Source)
	a.text("reason", e.Reason)
	a.text("delivery_id", e.DeliveryID)
	a.text("key_id", e.KeyID)
	a.text("causes", strings.Join(codes, ","))
	a.add(milliseconds(e.Took))
	if e.Fault != nil {
		a.text("error", e.Fault.Error())
	}
	l.LogAttrs(ctx, level, "explained", a...)
}

// logAttempt writes the line of one attempt.
func logAttempt(ctx context.Context, l *slog.Logger, r *consumer.AttemptResult) {
	s, d := &r.Settlement, &r.Forward.Delivery
	level := slog.LevelInfo
	if s.Outcome == inbox.OutcomeBlocked || r.LeaseLost || r.Err != nil {
		level = slog.LevelWarn
	}
	if !l.Enabled(ctx, level) {
		return
	}
	a := attributes(make([]slog.Attr, 0, 16))
	a.text("destination", r.Forward.Destination)
	a.text("source", d.Source)
	a.text("tenant", d.Tenant)
	a.text("delivery_id", d.DeliveryID)
	a.add(slog.Int64("forward", r.Forward.ID))
	a.add(slog.Int("attempt", r.Forward.Attempt))
	a.text("outcome", string(stateAfter(s.Outcome)))
	a.text("reason", s.Reason)
	a.text("class", s.Class)
	if s.Status != 0 {
		a.add(slog.Int("status", s.Status))
	}
	if s.Outcome == inbox.OutcomeRetry {
		a.add(slog.Float64("retry_in_s", s.Delay.Seconds()))
	}
	a.text("error", s.Error)
	switch {
	case r.LeaseLost:
		a.add(slog.Bool("lease_lost", true))
	case r.Err != nil:
		// Why is in a line of its own, from the consumer's OnError.
		a.add(slog.Bool("settled", false))
	}
	a.add(milliseconds(s.Duration))
	l.LogAttrs(ctx, level, "attempt", a...)
}

// stateAfter is the state that a settlement leads to.
func stateAfter(o inbox.Outcome) inbox.State {
	switch o {
	case inbox.OutcomeAccepted:
		return inbox.Accepted
	case inbox.OutcomeRetry:
		return inbox.RetryWait
	case inbox.OutcomeBlocked:
		return inbox.Blocked
	}
	return inbox.Pending
}

// attributes is a log line in the making; what is empty is left out.
type attributes []slog.Attr

func (a *attributes) add(attr slog.Attr) { *a = append(*a, attr) }

func (a *attributes) text(key, value string) {
	if value != "" {
		*a = append(*a, slog.String(key, value))
	}
}

func milliseconds(d time.Duration) slog.Attr {
	return slog.Float64("ms", float64(d.Round(10*time.Microsecond).Microseconds())/1000)
}

func requestID(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// httpErrors is the ErrorLog of a server. Failed handshakes are what any scan of
// the port makes, so they are no warnings.
func httpErrors(l *slog.Logger, listener string) *log.Logger {
	return log.New(httpErrorWriter{l.With("listener", listener)}, "", 0)
}

type httpErrorWriter struct{ log *slog.Logger }

func (w httpErrorWriter) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	w.log.Log(context.Background(), level, strings.TrimSpace(string(line)))
	return len(line), nil
}

// logWarnings writes what a configuration warns of.
func logWarnings(l *slog.Logger, file string, warnings []problem) {
	for _, w := range warnings {
		where := file
		if w.Line > 0 {
			where = fmt.Sprintf("%s:%d:%d", file, w.Line, w.Column)
		}
		l.Warn("configuration: "+w.Message, "at", where)
	}
}
