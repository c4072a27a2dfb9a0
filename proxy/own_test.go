package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

// own is the shortest handler of one's own.
func own(v *verify.Verifier, in Inbox) http.Handler {
	accept := func(w http.ResponseWriter, r *http.Request) error {
		req := verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header}
		err := v.CheckHeader(req)
		if err != nil {
			return err
		}
		if req.Body, err = ReadBody(w, r, 0); err != nil {
			return err
		}
		env, err := v.Verify(req)
		if err != nil {
			return err
		}
		_, err = in.Accept(context.WithoutCancel(r.Context()), inbox.Delivery{
			Tenant: "t1", Source: "src1", DeliveryID: env.DeliveryID, Body: req.Body,
		})
		return err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := accept(w, r); err != nil {
			Refuse(w, r, err)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

// Whatever is wrong, a handler of one's own says what a Proxy says, and leaves the
// connection as a Proxy does.
func TestOwnHandlerAnswersAsTheProxyDoes(t *testing.T) {
	in := &recorder{accept: func(_ context.Context, d inbox.Delivery) (inbox.Receipt, error) {
		lost := errors.New("unexpected EOF")
		switch d.DeliveryID {
		case "conflict":
			return inbox.Receipt{}, &inbox.ConflictError{Tenant: "t1", Source: "src1", DeliveryID: "conflict"}
		case "unavailable":
			return inbox.Receipt{}, fmt.Errorf("accept: %w: %w", inbox.ErrUnavailable, context.DeadlineExceeded)
		case "unknown":
			return inbox.Receipt{}, fmt.Errorf("accept: %w: %w", inbox.ErrOutcomeUnknown, lost)
		case "busy":
			return inbox.Receipt{}, inbox.ErrBusy
		case "full":
			return inbox.Receipt{}, inbox.ErrFull
		case "internal":
			return inbox.Receipt{}, inbox.ErrInternal
		case "unforeseen":
			return inbox.Receipt{}, errors.New("secret detail")
		}
		return inbox.Receipt{}, nil
	}}
	ours := start(t, setup{inbox: in})
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(own(src1(t).Verifier, in))
	server.Start()
	t.Cleanup(server.Close)
	theirs := &rig{t: t, server: server, addr: server.Listener.Addr().String()}

	m := signed("dlv_1", body1)
	huge := strings.Repeat("x", verify.DefaultMaxBody+1)
	for _, c := range []struct {
		name, wire string
		status     int
	}{
		{"right", m.wire(), 202},
		{"right, chunked", m.chunked(3), 202},
		{"empty body", signed("dlv_1", "").wire(), 202},
		{"id known with other bytes", signed("conflict", body1).wire(), 409},
		{"store away", signed("unavailable", body1).wire(), 503},
		{"outcome unknown", signed("unknown", body1).wire(), 503},
		{"store busy", signed("busy", body1).wire(), 503},
		{"store full", signed("full", body1).wire(), 503},
		{"fault of ours", signed("internal", body1).wire(), 500},
		{"fault that nobody foresaw", signed("unforeseen", body1).wire(), 500},
		{"no signature", m.set("X-Webhook-Signature").wire(), 401},
		{"wrong signature", m.set("X-Webhook-Signature", strings.Repeat("0", 64)).wire(), 401},
		{"unknown key", m.set("X-Webhook-Key-Id", "k9").wire(), 401},
		{"too old", signedAt(t0-301, "k1", secretK1, "dlv_1", body1).wire(), 401},
		{"no timestamp", m.set("X-Webhook-Timestamp").wire(), 400},
		{"milliseconds", m.set("X-Webhook-Timestamp", "1760000000000").wire(), 400},
		{"id twice", m.add("X_Webhook_Delivery_Id", "dlv_1").wire(), 400},
		{"a byte over the cap, declared", signed("dlv_1", huge).wire(), 413},
		{"a byte over the cap, chunked", signed("dlv_1", huge).chunked(64 << 10), 413},
		{"bad chunk", m.head("Transfer-Encoding: chunked") + "zz\r\n", 400},
	} {
		want, got := ours.raw(c.wire), theirs.raw(c.wire)
		if got.status != c.status || want.status != c.status || got.close != want.close {
			t.Errorf("%s: %d, the proxy %d, want %d; close %v, the proxy %v", c.name, got.status, want.status, c.status, got.close, want.close)
			continue
		}
		if c.status == 202 {
			continue
		}
		ourProblem, theirProblem := want.problem(t), got.problem(t)
		if theirProblem.Instance == ourProblem.Instance || (theirProblem.RetryAfterS > 0) != (ourProblem.RetryAfterS > 0) ||
			got.header.Get("Retry-After") != fmt.Sprint(theirProblem.RetryAfterS) && theirProblem.RetryAfterS > 0 {
			t.Errorf("%s: %s, the proxy %s", c.name, got.body, want.body)
		}
		for _, p := range []*problemBody{&ourProblem, &theirProblem} {
			p.Instance, p.RetryAfterS, p.ServerTime, p.ToleranceS = "", 0, 0, 0 // that of a source alone
		}
		if theirProblem != ourProblem {
			t.Errorf("%s: %s, the proxy %s", c.name, got.body, want.body)
		}
	}
}

// A body that ends early is refused, and nothing of it reaches the inbox.
func TestOwnHandlerRefusesHalfABody(t *testing.T) {
	in := &recorder{}
	server := httptest.NewServer(own(src1(t).Verifier, in))
	t.Cleanup(server.Close)
	g := &rig{t: t, server: server, addr: server.Listener.Addr().String()}
	m := signed("dlv_1", body1)
	answers := g.all(m.wire()[:len(m.wire())-1])
	if len(answers) != 1 || answers[0].status != 400 || answers[0].problem(t).Code != "body_malformed" {
		t.Errorf("%+v", answers)
	}
	if n := len(in.deliveries()); n != 0 {
		t.Errorf("%d deliveries", n)
	}
}
