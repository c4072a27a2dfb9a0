// Command hooklatch stands in front of an app and receives its webhooks: it
// checks each signature over the raw bytes, commits each delivery once to an
// inbox in Postgres, and hands it to the app until the app has taken it.
//
// Results go to stdout, messages to stderr. Exit codes: 0 ok, 1 negative answer,
// 2 usage, 3 configuration, 4 database or server unreachable, 5 partly done, 130
// interrupted. Flags may stand before or after arguments. No secret is ever the
// value of a flag.
//
// This package connects the rooms that do the work: a rule that a user of the
// packages would miss does not belong here. One file holds one command;
// config.go is the manual of the configuration file.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameWish is within which a second signal tells nothing new.
const sameWish = 200 * time.Millisecond

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal asks for an orderly end, a second one ends it now, unless it
		// is the same wish: timeout and some shells signal a process and its group.
		<-signals
		first := time.Now()
		cancel()
		for range signals {
			if time.Since(first) >= sameWish {
				os.Exit(exitInterrupted)
			}
		}
	}()
	os.Exit(run(ctx, &stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Args[1:]))
}
