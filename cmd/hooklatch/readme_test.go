package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every YAML block of README is a configuration that the program takes.
func TestReadmeConfigurationsPassTheCheck(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("void: README has no YAML block")
	}
	for _, block := range blocks {
		yaml, _, _ := strings.Cut(block, "```")
		file := filepath.Join(t.TempDir(), "hooklatch.yaml")
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, messages := hooklatch(t, "config", "check", "--no-secrets", "-c", file); code != 0 {
			t.Errorf("exit %d\n%s%s", code, out, messages)
		}
	}
}

// README's table of refusals has a row for each kind of send --break.
func TestReadmeNamesEveryBreak(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range breakNames() {
		if !strings.Contains(string(text), "\n| `"+kind+"` |") {
			t.Errorf("README has no row for --break %s", kind)
		}
	}
}

// The commands of README's block on signatures work as they stand, one after the
// other, where there is a body.
func TestReadmeSignatureCommandsWork(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "## Signatures on the command line\n\n```\n")
	if !found {
		t.Fatal("void: README has no such block")
	}
	block, _, _ = strings.Cut(block, "```")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("body.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(block) {
		command, file, redirected := strings.Cut(strings.TrimSpace(line), " > ")
		code, out, messages := hooklatch(t, strings.Fields(command)[1:]...)
		if code != 0 {
			t.Errorf("%s: exit %d\n%s%s", command, code, out, messages)
		}
		if redirected {
			if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
