package main

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"hooklatch": main,
		"exits":     exits,
	})
}

// TestScripts runs testdata/*.txtar: the commands as people type them.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_RUNTIME_DIR", e.WorkDir+"/run")
			return os.Mkdir(e.WorkDir+"/run", 0o700)
		},
	})
}

// exits runs hooklatch and prints its exit code to stdout's end, since a script
// can only tell zero from not zero: exits CODE ARGS...
func exits() {
	os.Exit(exitsAs(os.Args[1], os.Args[2:]))
}

func exitsAs(want string, args []string) int {
	got := run(context.Background(), &stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}, args)
	if text := strconv.Itoa(got); text != want {
		os.Stderr.WriteString("exit code " + text + ", want " + want + "\n")
		return 1
	}
	return 0
}
