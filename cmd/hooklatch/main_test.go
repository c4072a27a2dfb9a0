package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"hooklatch": main,
		"exits":     exits,
	})
}

// quickExit is GORACE for the program as a child: under -race each would sleep
// for a second at its end.
const quickExit = "atexit_sleep_ms=0"

// leakChecked fails the tests that leave a goroutine behind.
type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs testdata/*.txtar: the commands as people type them.
func TestScripts(t *testing.T) {
	example, err := filepath.Abs("../../testdata/config/hooklatch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"chop": chop,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_RUNTIME_DIR", e.WorkDir+"/run")
			e.Setenv("EXAMPLE", example)
			e.Setenv("GORACE", quickExit)
			return os.Mkdir(e.WorkDir+"/run", 0o700)
		},
	})
}

// hooklatch runs a command in this process, without a person at its terminal. Tests
// that run beside others start a process instead: the parser of flags keeps some for
// the whole process.
func hooklatch(t *testing.T, args ...string) (code int, out, messages string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), &stdio{in: strings.NewReader(""), out: &stdout, err: &stderr}, args)
	return code, stdout.String(), stderr.String()
}

// chop FILE cuts the newline that txtar puts at the end of each file.
func chop(ts *testscript.TestScript, _ bool, args []string) {
	for _, file := range args {
		text := strings.TrimSuffix(ts.ReadFile(file), "\n")
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
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
