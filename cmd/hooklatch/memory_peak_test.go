//go:build !race

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// P11: a thousand bodies of 256 KiB at once are more than may be in memory. Some
// are refused; the process stays within 256 MiB. Not under the race detector,
// which needs several times the memory.
func TestP11_ThousandLargeBodiesAtOnceStayWithinBounds(t *testing.T) {
	status := func(pid int) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Skip("no /proc to read the peak memory from:", err)
		}
		return string(text)
	}
	status(os.Getpid())
	s := newSite(t)
	p, url := s.run(inboxtest.URL(t), "http://127.0.0.1:9", "--role", "receive")
	body := strings.Repeat("x", 256<<10)
	requests := make([]*http.Request, 1000)
	for i := range requests {
		requests[i] = s.request(url, fmt.Sprintf("dlv_%d", i), body)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex
	said, cut := map[int]int{}, 0
	var wg sync.WaitGroup
	for _, r := range requests {
		wg.Go(func() {
			a, err := try(client, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
				cut++ // refused, and closed before this client had written its body
				return
			case err != nil:
				t.Error(err)
			}
			said[a.status]++
		})
	}
	wg.Wait()
	if said[202] == 0 || said[503] == 0 || said[202]+said[503]+cut != len(requests) || cut > len(requests)/10 {
		t.Errorf("answers %v, %d cut, want some 202, some 503 and hardly anything else", said, cut)
	}
	var peak int // kB
	for line := range strings.Lines(status(p.cmd.Process.Pid)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Sscan(rest, &peak)
		}
	}
	if peak == 0 || peak > 256<<10 {
		t.Errorf("peak memory %d kB, want at most 256 MiB", peak)
	}
	t.Logf("answers %v, peak memory %d MiB", said, peak>>10)
}
