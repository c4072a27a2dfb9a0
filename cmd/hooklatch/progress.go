package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressTells is how often a run says how far it is where no bar can show it.
const progressTells = 10 * time.Second

// progress tells people how far a run is: by a bar at a terminal, else by a line now
// and then. It belongs to one goroutine.
type progress struct {
	s     *stdio
	bar   *progressbar.ProgressBar // nil: lines
	what  string
	total int
	began time.Time
	told  time.Time
	shown string // by the bar
}

// progress begins a run of total steps.
func (s *stdio) progress(what string, total int) *progress {
	now := time.Now()
	p := &progress{s: s, what: what, total: total, began: now, told: now}
	if isTerminal(s.err) && !s.quiet && os.Getenv("TERM") != "dumb" {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(s.err), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(20), progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(false))
	}
	return p
}

// at says that so many steps are done, and what else there is to say of them.
func (p *progress) at(done int, detail string) {
	if p.bar != nil {
		if shown := fmt.Sprint(done, detail); shown != p.shown { // each Describe is drawn
			p.shown = shown
			p.bar.Describe(p.what + ": " + detail)
			_ = p.bar.Set(min(done, p.total))
		}
		return
	}
	now := time.Now()
	if now.Sub(p.told) < progressTells {
		return
	}
	p.told = now
	p.s.note("%s", p.line(done, detail, now.Sub(p.began)))
}

// line is the progress with its rate, and how long the rest takes at it.
func (p *progress) line(done int, detail string, took time.Duration) string {
	text := fmt.Sprintf("%s: %d of %d, %s", p.what, done, p.total, detail)
	if rate := float64(done) / took.Seconds(); done > 0 && done < p.total {
		left := time.Duration(float64(p.total-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %.1f/s, %s left", rate, left.Round(time.Second))
	}
	return text
}

// end clears the bar, so that what is printed next stands by itself.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
