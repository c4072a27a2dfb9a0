package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// begin sends the start-up delivery and then says that dev is ready.
func (d *devRun) begin(ctx context.Context, v *verify.Verifier) error {
	delivery, err := sendOptions{}.delivery(ctx, d.s, v)
	if err != nil {
		return err
	}
	delivery.to.url = d.state.URL
	x, err := delivery.sign()
	if err != nil {
		return err
	}
	client := newSender()
	defer client.CloseIdleConnections()
	got, err := x.post(ctx, client)
	if err != nil {
		return fail(exitNo, fmt.Errorf("dev: the start-up delivery: %w", err), "")
	}
	if !got.AsExpected {
		return fail(exitNo, fmt.Errorf("dev: the start-up delivery was answered %d %s", got.Status, got.Code), "")
	}
	done, err := d.handedOn(ctx, startID(got, x.body))
	if err != nil {
		return err
	}
	if earlier, err := readDevState(); err == nil {
		d.events.head("note", "another dev runs at %s: send goes to this one until it ends", earlier.URL)
	}
	if err := d.state.write(); err != nil {
		d.events.trouble(d.events.program+" send will not find this dev", err)
	}
	curl, err := d.curl(ctx, v)
	if err != nil {
		return err
	}
	d.introduce(done, curl)
	return nil
}

// devEventID is where dev finds the delivery id of schemes that have none.
const devEventID = "/id"

// startID is the id of the start-up delivery. An answer in the words of a scheme does
// not say it.
func startID(got sent, body []byte) string {
	if got.DeliveryID != "" {
		return got.DeliveryID
	}
	field, err := verify.ParseField(devEventID)
	if err == nil {
		if id, ok, err := field.Read(verify.Request{Body: body}); err == nil && ok {
			return id
		}
	}
	sum := sha256.Sum256(body)
	return "body:" + hex.EncodeToString(sum[:])
}

// handedOn says what has become of the start-up delivery. The built-in app takes it;
// one of the user may do so or not.
func (d *devRun) handedOn(ctx context.Context, id string) (string, error) {
	if d.o.to == "" {
		return "committed and handed on", d.events.handedOn(ctx, id)
	}
	if d.events.tookIt(ctx, id) {
		return "committed and handed on", nil
	}
	return "committed; the app has not taken it yet", nil
}

func (d *devRun) introduce(done, curl string) {
	e, st := d.events, d.state
	e.head("source", "dev: POST %s    %s, key %s%s", st.URL, st.Scheme, st.KeyID, otherPort(st.URL))
	if d.o.printSecret {
		e.head("secret", "%s", st.Secret)
	}
	e.head("admin", "%s/readyz  and  %s/metrics", st.Admin, st.Admin)
	e.head("tunnel", "cloudflared tunnel --url %s   (or any other) makes it public", strings.TrimSuffix(st.URL, devPath))
	e.head("curl", "a delivery that is signed already%s:", goodFor(d.scheme))
	e.plain("\n" + curl + "\n")
	e.ready(st, fmt.Sprintf("a test delivery was %s.   In another terminal:  %s send   |   %s send --break body", done, e.program, e.program))
}

// otherPort says why the URL has not the port that people know.
func otherPort(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Port() == fmt.Sprint(devPort) {
		return ""
	}
	return fmt.Sprintf("   (%d is taken: using %s; send goes here now)", devPort, u.Port())
}

// programName is how a person in another terminal calls this program: by its name
// if PATH leads there, else as it was called here.
func programName() string {
	found, err := exec.LookPath("hooklatch")
	if err == nil {
		there, thereErr := os.Stat(found)
		exe, exeErr := os.Executable()
		if thereErr == nil && exeErr == nil {
			if here, err := os.Stat(exe); err == nil && os.SameFile(there, here) {
				return "hooklatch"
			}
		}
	}
	return shellQuote(os.Args[0])
}

// goodFor says how long a signature is taken.
func goodFor(scheme verify.Scheme) string {
	t := scheme.Recipe().Timestamp
	switch {
	case t == nil || t.ToleranceS == verify.NoWindow:
		return ""
	case t.ToleranceS == 0 || t.ToleranceS == 300:
		return ", good for 5 minutes"
	}
	return ", good for " + (time.Duration(t.ToleranceS) * time.Second).String()
}

// curl is a line for the shell, good as long as its timestamp is.
func (d *devRun) curl(ctx context.Context, v *verify.Verifier) (string, error) {
	delivery, err := sendOptions{}.delivery(ctx, d.s, v)
	if err != nil {
		return "", err
	}
	delivery.to.url = d.state.URL
	x, err := delivery.sign()
	if err != nil {
		return "", err
	}
	return curlLine(verify.Request{Method: http.MethodPost, URL: x.url, Header: x.header, Body: x.body}, "", ""), nil
}
