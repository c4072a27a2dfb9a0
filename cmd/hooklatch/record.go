package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// recorder writes each request as a raw HTTP file, in the form that verify and
// send read. A request is read as far as the cap before it goes on, so that also
// what is refused by its headers is there whole.
type recorder struct {
	dir     string
	max     int64
	count   atomic.Int64
	trouble func(what string, err error)
}

func newRecorder(dir string, max int64, trouble func(string, error)) (*recorder, error) {
	// Signatures and bodies are for their owner alone.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &recorder{dir: dir, max: max, trouble: trouble}, nil
}

func (rec *recorder) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, rec.max+1))
		if recErr := rec.write(r, body); recErr != nil {
			rec.trouble("record", recErr)
		}
		rest := io.Reader(r.Body)
		if err != nil {
			rest = failedReader{err}
		}
		if r.Body != http.NoBody {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(body), rest), r.Body}
		}
		next.ServeHTTP(w, r)
	})
}

type failedReader struct{ err error }

func (f failedReader) Read([]byte) (int, error) { return 0, f.err }

func (rec *recorder) write(r *http.Request, body []byte) error {
	header := r.Header.Clone()
	header.Del("Expect") // was answered when the body was read
	var raw bytes.Buffer
	err := writeRequest(&raw, verify.Request{Method: r.Method, URL: "http://" + r.Host + r.RequestURI, Header: header, Body: body})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%04d.http", time.Now().UTC().Format("20060102T150405.000Z"), rec.count.Add(1))
	return os.WriteFile(filepath.Join(rec.dir, name), raw.Bytes(), 0o600)
}
