//go:build failpoint

package consumer

import (
	"os"
	"syscall"
)

// failpoint kills this process at the point that HOOKLATCH_FAILPOINT names, as a
// crash would: nothing is closed, nothing deferred runs. Tests build programs with
// -tags failpoint; without it there are no such points.
func failpoint(name string) {
	if os.Getenv("HOOKLATCH_FAILPOINT") == name {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // not a step further
	}
}
