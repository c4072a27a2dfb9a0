//go:build !failpoint

package inbox

func failpoint(string) {}
