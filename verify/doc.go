// Package verify says whether these bytes were signed by a key we accept, now.
// It has no input or output and starts no goroutine.
package verify
