package main

import (
	"io"
	"net/http"
	"time"
)

// newEcho is the app of dev: it takes every delivery and answers 200 with the
// bytes that it got, as far as anybody keeps them.
func newEcho() *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start, err := io.ReadAll(io.LimitReader(r.Body, 4<<10))
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Write(start)
		}),
		ReadHeaderTimeout: 5 * time.Second,
	}
}
