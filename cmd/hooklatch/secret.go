package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/hooklatch/hooklatch/verify"
)

// secretRef says where a secret stands. Exactly one of its fields is set; the
// secret itself never stands in the configuration.
type secretRef struct {
	// File is a file that neither group nor others may write. One final line end
	// is cut, since editors and echo add it.
	File string `json:"file,omitempty"`
	// Env is an environment variable, taken as it is.
	Env string `json:"env,omitempty"`
	// Exec is a program with its arguments, found by its path or on PATH, never
	// given to a shell. It has 5 seconds; one final line end of its output is cut.
	Exec []string `json:"exec,omitempty"`
}

// maxSecretFile bounds what is read of one; a chain of PEM keys fits.
const maxSecretFile = 64 << 10

// secretTimeout bounds a program that fetches a secret.
const secretTimeout = 5 * time.Second

func (r secretRef) isZero() bool { return r.File == "" && r.Env == "" && len(r.Exec) == 0 }

func (r *secretRef) decodeNode(d *decoder, n ast.Node, path string) {
	before := len(d.problems)
	entries, ok := []entry(nil), false
	if _, mapping := n.(ast.MapNode); mapping {
		entries, ok = d.entries(n, path)
	} else {
		d.bare = true
		d.problem(n, path, "a secret does not stand in the file: write {file: F}, {env: NAME} or {exec: [PROGRAM, ARGUMENT]}")
	}
	if !ok {
		return
	}
	for _, e := range entries {
		at := join(path, e.key)
		switch e.key {
		case "file":
			r.File, _ = d.text(e.value, at)
		case "env":
			r.Env, _ = d.text(e.value, at)
		case "exec":
			r.Exec = d.words(e.value, at)
		default:
			d.bare = true
			d.problem(e.at, at, "unknown field %q: a secret is one of file, env and exec", e.key)
			return
		}
	}
	if len(d.problems) > before {
		return
	}
	set := 0
	for _, given := range []bool{r.File != "", r.Env != "", len(r.Exec) > 0} {
		if given {
			set++
		}
	}
	if set != 1 {
		d.problem(n, path, "a secret is exactly one of file, env and exec")
	}
}

// words decodes a list of texts.
func (d *decoder) words(n ast.Node, path string) []string {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.problem(n, path, "%s where a list belongs: exec is no shell command, but [PROGRAM, ARGUMENT]", kindOf(n))
		return nil
	}
	var words []string
	for i, value := range list.Values {
		word, _ := d.text(value, fmt.Sprintf("%s[%d]", path, i))
		words = append(words, word)
	}
	return words
}

// MarshalJSON implements json.Marshaler. Arguments of a program are masked.
func (r secretRef) MarshalJSON() ([]byte, error) {
	type plain secretRef
	if len(r.Exec) > 1 {
		r.Exec = []string{r.Exec[0], redacted}
	}
	return json.Marshal(plain(r))
}

// String names the place, for messages.
func (r secretRef) String() string {
	switch {
	case r.File != "":
		return "file " + r.File
	case r.Env != "":
		return "environment variable " + r.Env
	case len(r.Exec) > 0:
		return "program " + r.Exec[0]
	}
	return "nowhere"
}

// read fetches the secret. dir is where relative paths start.
func (r secretRef) read(ctx context.Context, dir string) ([]byte, error) {
	switch {
	case r.File != "":
		file := r.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return readSecretFile(file)
	case r.Env != "":
		value, ok := os.LookupEnv(r.Env)
		if !ok {
			return nil, fmt.Errorf("environment variable %s is not set", r.Env)
		}
		if value == "" {
			return nil, fmt.Errorf("environment variable %s is empty", r.Env)
		}
		return []byte(value), nil
	case len(r.Exec) > 0:
		return r.execute(ctx, dir)
	}
	return nil, errors.New("no secret is named")
}

func readSecretFile(file string) ([]byte, error) {
	text, err := readProtected(file, maxSecretFile)
	return verify.TrimSecretFile(text), err
}

// errWritable: whoever may write the file decides what is accepted and where it
// goes.
var errWritable = errors.New("writable by group or others")

func refuseWritable(f *os.File) error {
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && stat.Mode().IsRegular() && stat.Mode().Perm()&0o022 != 0 {
		return &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("%w (mode %04o): chmod go-w %s", errWritable, stat.Mode().Perm(), f.Name())}
	}
	return nil
}

// readProtected reads a file of which only its owner decides what it says.
func readProtected(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := refuseWritable(f); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: larger than %s", file, size(most))
	}
	return text, nil
}

func (r secretRef) execute(ctx context.Context, dir string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Exec[0], r.Exec[1:]...)
	cmd.Dir = dir
	// A child that keeps the pipe open must not hold us beyond the time.
	cmd.WaitDelay = time.Second
	// What it says on stderr is not shown: it may hold the secret.
	text, err := cmd.Output()
	if ctx.Err() == context.DeadlineExceeded {
		return nil, fmt.Errorf("%s: no answer within %s", r.Exec[0], secretTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Exec[0], err)
	}
	if len(text) > maxSecretFile {
		return nil, fmt.Errorf("%s: printed more than %s", r.Exec[0], size(maxSecretFile))
	}
	return verify.TrimSecretFile(text), nil
}
