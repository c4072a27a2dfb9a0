package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hooklatch/hooklatch/inbox"
)

// checkGone finds destinations with open forwards that the configuration does not have:
// nobody would ever hand these on.
func checkGone(stats []inbox.DestinationStats, c *config) (found []finding) {
	for _, st := range stats {
		if openIn(st) > 0 && c.Destinations[st.Destination] == nil {
			found = append(found, finding{check: "destinations", what: fmt.Sprintf("destination %s is not in the configuration, and forwards to it are open (%s): nobody would hand them on",
				st.Destination, openText(st)), fix: removeWays(st.Destination)})
		}
	}
	return found
}

// openText is what is open at a destination, in a few words.
func openText(st inbox.DestinationStats) string {
	waiting := st.Open[inbox.Pending] + st.Open[inbox.RetryWait] + st.Open[inbox.Held]
	return fmt.Sprintf("%d waiting, %s", waiting, counted(st.Open[inbox.Blocked], "dead letter"))
}

// removeWays are the three ways out for who removes a destination.
func removeWays(name string) string {
	return fmt.Sprintf("put %s back without a route to it, and %s destinations remove %s --drain; or --cancel; or --move-to OTHER", name, programName(), shellQuote(name))
}

// refuseGone keeps a server from starting that would let forwards lie for ever.
func refuseGone(ctx context.Context, store *inbox.Store, c *config, url string) error {
	names, err := store.OpenDestinations(ctx, sortedKeys(c.Destinations))
	if err == nil && len(names) == 0 {
		return nil // as it is at nearly every start, and without counting
	}
	var stats []inbox.DestinationStats
	if err == nil {
		stats, err = store.Stats(ctx)
	}
	if err != nil {
		return unreachable(ctx, url, err)
	}
	found := checkGone(stats, c)
	if len(found) == 0 {
		return nil
	}
	var lines, ways []string
	for _, f := range found {
		lines, ways = append(lines, f.what), append(ways, f.fix)
	}
	return fail(exitConfig, errors.New(strings.Join(lines, "\n")), strings.Join(ways, "\n     "))
}
