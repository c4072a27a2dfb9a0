//go:build !failpoint

package consumer

func failpoint(string) {}
