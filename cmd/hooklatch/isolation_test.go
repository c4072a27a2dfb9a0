package main

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// A destination that never answers keeps its own places and no others: the one
// beside it is served all the while.
func TestP10_HangingDestinationHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	hanging, hangingURL := startApp(t)
	hanging.mu.Lock()
	hanging.hold = make(chan struct{})
	hanging.mu.Unlock()
	other, otherURL := startApp(t)
	s := newSite(t)
	file := s.config(hangingURL, "stop: {lame_duck: 0s, attempts: 100ms}")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.write("hooklatch.yaml", strings.NewReplacer("forward: [app]", "forward: [app, other]", `/hook", retry`, `/hook", timeout: 1m, concurrency: 2, retry`).Replace(string(text))+
		`  other: {url: "`+otherURL+`/hook"}`+"\n")
	sv := startServe(t, s, inboxtest.URL(t))
	const deliveries = 30
	for i := range deliveries {
		if a := do(t, http.DefaultClient, s.request(sv.url, "dlv_"+strconv.Itoa(i), "{}")); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	eventually(t, "everything is handed to the other destination", func() bool { return len(other.requests()) == deliveries })
	eventually(t, "the hanging one has its places taken", func() bool { return len(hanging.requests()) == 2 })
	sv.end()
	if n := len(hanging.requests()); n != 2 {
		t.Errorf("%d requests at the hanging destination, want 2: its concurrency", n)
	}
}
