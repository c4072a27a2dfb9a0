package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

type report struct {
	Body    int           `json:"body_bytes"`
	SyncNS  time.Duration `json:"fsync_median_ns"`
	Rounds  int           `json:"rounds"`
	RoundNS time.Duration `json:"round_ns"`
	Levels  []level       `json:"levels"`
}

type level struct {
	Connections int      `json:"connections"`
	Series      []series `json:"series"`
}

type series struct {
	Name    string   `json:"name"`
	Samples []sample `json:"samples"`
}

// median is the middle sample by rate.
func (s series) median() sample {
	sorted := slices.SortedFunc(slices.Values(s.Samples), func(a, b sample) int {
		switch {
		case a.PerSecond < b.PerSecond:
			return -1
		case a.PerSecond > b.PerSecond:
			return 1
		}
		return 0
	})
	return sorted[len(sorted)/2]
}

// spread is the distance of the slowest and the fastest round, in parts of the
// median.
func (s series) spread() float64 {
	least, most := s.Samples[0].PerSecond, s.Samples[0].PerSecond
	for _, x := range s.Samples {
		least, most = min(least, x.PerSecond), max(most, x.PerSecond)
	}
	return (most - least) / s.median().PerSecond
}

const noisy = 0.25

func (r report) print(w io.Writer) {
	fmt.Fprintln(w, "\nmedians; processor time per 1,000 requests")
	for _, l := range r.Levels {
		fmt.Fprintf(w, "\n%d connections\n", l.Connections)
		for _, s := range l.Series {
			m := s.median()
			per := func(seconds float64) float64 { return seconds / float64(m.Requests) * 1e6 }
			fmt.Fprintf(w, "  %-9s %8.0f/s  ±%2.0f %%  p50 %-8v p99 %-8v  client %3.0f ms  server %3.0f ms  postgres %3.0f ms",
				s.Name, m.PerSecond, 50*s.spread(), m.P50.Round(10*time.Microsecond), m.P99.Round(10*time.Microsecond),
				per(m.CPU.Client), per(m.CPU.Server), per(m.CPU.Postgres))
			if s.spread() > noisy {
				fmt.Fprint(w, "   noisy")
			}
			fmt.Fprintln(w)
		}
		ours := l.Series[0].median().PerSecond
		for _, s := range l.Series[1:] {
			fmt.Fprintf(w, "  serve against %-9s %.2f\n", s.Name, ours/s.median().PerSecond)
		}
	}
}

func (r report) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
