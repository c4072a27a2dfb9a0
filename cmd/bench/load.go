package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// sample is what one round of load measured.
type sample struct {
	Requests  int           `json:"requests"`
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	Statuses  map[int]int   `json:"statuses,omitempty"`
	CPU       cpuSplit      `json:"cpu_seconds"`
}

// load sends signed requests with unique delivery ids over a fixed number of
// connections, each waiting for its answer before it sends the next.
type load struct {
	signer *verify.Verifier
	path   string
	body   []byte

	postmaster int // whose processor time is counted
}

// sign makes the heads of n requests ahead of time, so that signing costs the
// measured minute nothing.
func (l *load) sign(n int) ([][]byte, error) {
	heads := make([][]byte, n)
	for i := range heads {
		var id [12]byte
		rand.Read(id[:])
		header, err := l.signer.Sign(verify.Request{Method: "POST", Header: http.Header{}, Body: l.body},
			verify.SignOptions{DeliveryID: "dlv_" + hex.EncodeToString(id[:])})
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nUser-Agent: hooklatch-bench\r\nContent-Length: %d\r\n", l.path, len(l.body))
		for name, values := range header {
			fmt.Fprintf(&b, "%s: %s\r\n", name, values[0])
		}
		b.WriteString("\r\n")
		heads[i] = []byte(b.String())
	}
	return heads, nil
}

// run keeps the connections busy for the given time and sums up.
func (l *load) run(ctx context.Context, addr string, connections int, heads [][]byte, d time.Duration) (sample, error) {
	var next atomic.Int64
	var mu sync.Mutex
	var latencies []time.Duration
	var failed error
	statuses := map[int]int{}
	start := time.Now()
	end := start.Add(d)
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			mine, seen, err := l.drive(ctx, addr, heads, &next, end)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, mine...)
			for status, n := range seen {
				statuses[status] += n
			}
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	took := time.Since(start)
	if ctx.Err() != nil {
		return sample{}, ctx.Err()
	}
	if failed != nil {
		return sample{}, failed
	}
	if int(next.Load()) > len(heads) {
		return sample{}, fmt.Errorf("all %d requests that were signed ahead were sent before the round was over", len(heads))
	}
	s := sample{Requests: len(latencies), PerSecond: float64(len(latencies)) / took.Seconds(), Statuses: statuses}
	s.P50, s.P99 = quantiles(latencies)
	return s, nil
}

// drive is one connection.
func (l *load) drive(ctx context.Context, addr string, heads [][]byte, next *atomic.Int64, end time.Time) ([]time.Duration, map[int]int, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := bufio.NewReaderSize(conn, 4096)
	var buf []byte
	latencies, statuses := make([]time.Duration, 0, 1<<14), map[int]int{}
	for {
		start := time.Now()
		n := int(next.Add(1)) - 1
		if !start.Before(end) || n >= len(heads) {
			return latencies, statuses, nil
		}
		buf = append(append(buf[:0], heads[n]...), l.body...)
		if _, err := conn.Write(buf); err != nil {
			return nil, nil, err
		}
		status, err := readAnswer(r)
		if err != nil {
			return nil, nil, err
		}
		statuses[status]++
		latencies = append(latencies, time.Since(start))
	}
}

// readAnswer reads one HTTP/1.1 answer that carries its length.
func readAnswer(r *bufio.Reader) (status int, err error) {
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		switch {
		case first:
			if len(line) < 12 {
				return 0, fmt.Errorf("status line %q", line)
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, err
			}
		case len(line) == 2:
			if length < 0 {
				return 0, errors.New("an answer without Content-Length")
			}
			_, err = io.CopyN(io.Discard, r, int64(length))
			return status, err
		case len(line) > 16 && strings.EqualFold(string(line[:16]), "content-length: "):
			if length, err = strconv.Atoi(strings.TrimSpace(string(line[16:]))); err != nil {
				return 0, err
			}
		}
	}
}

func quantiles(latencies []time.Duration) (p50, p99 time.Duration) {
	if len(latencies) == 0 {
		return 0, 0
	}
	slices.Sort(latencies)
	return latencies[len(latencies)/2], latencies[len(latencies)*99/100]
}
