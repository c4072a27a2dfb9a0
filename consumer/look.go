package consumer

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Look finds out whether somebody answers where forwards go: it connects as Handle
// does, with TLS where the URL says so, and asks for the head of the root, which hands
// nothing over. Any answer will do. date is the clock of the destination, zero where
// the answer has none.
func (w *Forwarder) Look(ctx context.Context) (date time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	root := url.URL{Scheme: w.url.Scheme, Host: w.url.Host, Path: "/"}
	req := (&http.Request{Method: http.MethodHead, URL: &root, Header: http.Header{}}).WithContext(ctx)
	resp, err := w.fresh.RoundTrip(req)
	if err != nil {
		return time.Time{}, err
	}
	resp.Body.Close()
	date, err = http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, nil
	}
	return date, nil
}
