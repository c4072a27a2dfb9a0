package consumer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestLookHandsNothingOver(t *testing.T) {
	var seen []string
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.String())
		w.Header().Set("Date", "Tue, 01 Dec 2026 10:00:00 GMT")
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer app.Close()
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	look := func(url string) (time.Time, error) {
		t.Helper()
		f, err := NewForwarder(ForwarderConfig{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.Look(t.Context())
	}
	date, err := look(app.URL + "/webhooks?token=s3cret")
	if err != nil || !date.Equal(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)) || strings.Join(seen, ", ") != "HEAD /" {
		t.Errorf("%v, %v, the app saw %v", date, err, seen)
	}
	if _, err := look(tls.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody knows: %v", err)
	}
	if _, err := look("http://127.0.0.1:1"); err == nil {
		t.Error("nobody is there, and no error")
	}
}
