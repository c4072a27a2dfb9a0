//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package devdb

import (
	"context"
	"errors"
	"os"
)

const socketName = ".s.PGSQL.5432"

var errPlatform = errors.New("runs on Linux, macOS and the BSDs only; use a Postgres of your own")

type home struct {
	dir, socket string
	major       int
}

func openHome(context.Context, string) (*home, error) { return nil, errPlatform }
func tempHome(context.Context) (*home, error)         { return nil, errPlatform }
func (*home) lock(context.Context) (*os.File, error)  { return nil, errPlatform }
func (*home) create(string) (*os.File, error)         { return nil, errPlatform }
func (*home) discard()                                {}

type process struct{}

func launch(*home, string, map[string]string, *os.File, *os.File) (*process, error) {
	return nil, errPlatform
}
func (*process) ready(context.Context, *home) error { return errPlatform }
func (*process) abort()                             {}
func (*process) end(string) error                   { return errPlatform }
func (*process) kill(*home) error                   { return errPlatform }
