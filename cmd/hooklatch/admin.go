package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	adminRequestBytes = 1 << 20
	adminListenerMax  = 32 // connections at once
	adminScrapes      = 4  // at once
)

// newAdmin is the private listener's side: /livez, /readyz and /metrics, and
// nothing else. It asks nobody who they are, which is why it listens on loopback.
func newAdmin(l *slog.Logger, h *health, registry *prometheus.Registry) *http.Server {
	routes := map[string]http.Handler{
		"/livez":  http.HandlerFunc(livez),
		"/readyz": http.HandlerFunc(h.readyz),
		"/metrics": promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorLog: httpErrors(l, "admin"), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: adminScrapes,
		}),
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		route := routes[r.URL.EscapedPath()]
		if route == nil {
			adminProblem(w, http.StatusNotFound, "not_found", "Nothing is here", "The private listener has /livez, /readyz and /metrics.")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			adminProblem(w, http.StatusMethodNotAllowed, "method_not_allowed", "The method is not allowed", "This is read by GET.")
			return
		}
		route.ServeHTTP(w, r)
	})
	return &http.Server{
		Handler:           http.MaxBytesHandler(handler, adminRequestBytes),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          httpErrors(l, "admin"),
	}
}

func adminProblem(w http.ResponseWriter, status int, code, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"type\":\"urn:hooklatch:problem:%s\",\"title\":%q,\"status\":%d,\"detail\":%q,\"code\":%q,\"retryable\":false}\n",
		strings.ReplaceAll(code, "_", "-"), title, status, detail, code)
}

// livez depends on nothing: a process that answers is alive.
func livez(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// readyz says whether requests should come here. ?verbose lists the checks.
func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	ready, checks := h.state()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.URL.Query().Has("verbose") {
		for _, c := range checks {
			if c.err == nil {
				fmt.Fprintf(w, "[+] %s ok\n", c.name)
			} else {
				fmt.Fprintf(w, "[-] %s: %s\n", c.name, oneLine(c.err.Error()))
			}
		}
	}
	if ready {
		fmt.Fprintln(w, "ready")
	} else {
		fmt.Fprintln(w, "not ready")
	}
}
