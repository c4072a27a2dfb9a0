package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cpuSplit is processor time by what used it, in seconds. Without /proc all of
// it is 0.
type cpuSplit struct {
	Client   float64 `json:"client"`
	Server   float64 `json:"server"`
	Postgres float64 `json:"postgres"`
}

func (c cpuSplit) sub(d cpuSplit) cpuSplit {
	return cpuSplit{c.Client - d.Client, c.Server - d.Server, c.Postgres - d.Postgres}
}

// cpuNow sums up the time that this process, the server, and the postmaster with
// its children have used. Sessions that have ended are in the postmaster's sum.
func cpuNow(server, postmaster int) cpuSplit {
	var c cpuSplit
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone in between
		}
		pid, parent, seconds, ok := parseStat(string(stat))
		switch {
		case !ok:
		case pid == os.Getpid():
			c.Client += seconds
		case pid == server:
			c.Server += seconds
		case pid == postmaster, parent == postmaster:
			c.Postgres += seconds
		}
	}
	return c
}

// parseStat reads pid, parent and user + system time, also of reaped children,
// from proc(5); a tick is 10 ms.
func parseStat(stat string) (pid, parent int, seconds float64, ok bool) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < 0 {
		return 0, 0, 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stat[:open]))
	fields := strings.Fields(stat[end+1:])
	if err != nil || len(fields) < 15 {
		return 0, 0, 0, false
	}
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return 0, 0, 0, false
	}
	for _, f := range fields[11:15] {
		ticks, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, 0, 0, false
		}
		seconds += ticks / 100
	}
	return pid, parent, seconds, true
}

// postmasterOf reads the process id from the lock file beside the socket.
func postmasterOf(socket string) (int, error) {
	text, err := os.ReadFile(socket + ".lock")
	if err != nil {
		return 0, err
	}
	pid, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(pid)
}

// syncTime is the median time of a small write with fsync in dir: what a commit
// costs at least on this disk in this minute.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	took := make([]time.Duration, 101)
	for i := range took {
		start := time.Now()
		if _, err := f.WriteAt(make([]byte, 8192), 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
