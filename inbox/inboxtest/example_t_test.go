package inboxtest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// exampleT stands in the examples where a test has its *testing.T.
type exampleT struct {
	testing.TB
	ctx      context.Context
	cancel   context.CancelFunc
	cleanups []func()
}

func newT() *exampleT {
	t := &exampleT{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func (t *exampleT) end() {
	t.cancel()
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

func (t *exampleT) Context() context.Context        { return t.ctx }
func (t *exampleT) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Failed() bool                    { return false }
func (t *exampleT) Fatal(args ...any)               { panic(fmt.Sprint(args...)) }
func (t *exampleT) Fatalf(format string, a ...any)  { panic(fmt.Sprintf(format, a...)) }
func (t *exampleT) Helper()                         {}
func (t *exampleT) Logf(format string, args ...any) {}
