package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hooklatch/hooklatch"

// mayImport is who may import what: packages of ours by their folder, others by
// the beginning of their path. Not listed means standard library only.
var mayImport = map[string][]string{
	"verify":          {},
	"verify/interop":  {}, // tests only
	"migrations":      {"github.com/pressly/goose/v3", "github.com/jackc/pgx/v5"},
	"inbox":           {"github.com/jackc/pgx/v5", "github.com/google/uuid"},
	"inbox/devdb":     {},
	"docs/embedding":  {"consumer", "inbox", "migrations", "proxy", "verify", "github.com/jackc/pgx/v5"},
	"cmd/bench":       {"inbox", "inbox/devdb", "migrations", "verify", "github.com/jackc/pgx/v5"},
	"inbox/inboxtest": {"migrations", "inbox/devdb", "github.com/jackc/pgx/v5", "github.com/peterldowns/pgtestdb"},
	"consumer":        {"inbox", "github.com/jackc/pgx/v5", "golang.org/x/time/rate", "github.com/sony/gobreaker/v2"},
	"consumer/nats":   {"consumer", "inbox", "github.com/nats-io/nats.go", "github.com/nats-io/nkeys"},
	"consumer/kafka":  {"consumer", "inbox", "github.com/twmb/franz-go/pkg"},
	"proxy":           {"verify", "inbox", "github.com/google/uuid", "golang.org/x/time/rate"},
}

// testPackages are linked into no program.
var testPackages = []string{
	module + "/inbox/inboxtest", "testing", "pgregory.net/rapid", "github.com/stretchr/testify",
	"github.com/nats-io/nats-server/v2/server", "github.com/twmb/franz-go/pkg/kfake",
	"github.com/stripe/stripe-go/v85", "github.com/standard-webhooks/standard-webhooks/libraries/go",
}

type goPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...)
	cmd.Stderr = &strings.Builder{}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%v", cmd, err, cmd.Stderr)
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

func TestEachPackageImportsOnlyWhatItMay(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range goList(t, module+"/...") {
		room := strings.TrimPrefix(p.ImportPath, module+"/")
		seen[room] = true
		allowed, listed := mayImport[room]
		if !listed {
			if room != "cmd/hooklatch" {
				t.Errorf("package %s is in no row of the table", room)
			}
			continue
		}
		for _, imported := range p.Imports {
			ours, isOurs := strings.CutPrefix(imported, module+"/")
			switch {
			case isOurs && !slices.Contains(allowed, ours):
				t.Errorf("%s imports %s", room, ours)
			case !isOurs && strings.Contains(strings.Split(imported, "/")[0], ".") &&
				!slices.ContainsFunc(allowed, func(a string) bool { return imported == a || strings.HasPrefix(imported, a+"/") }):
				t.Errorf("%s imports %s", room, imported)
			}
		}
	}
	for room := range mayImport {
		if !seen[room] {
			t.Errorf("the table names package %s, which does not exist", room)
		}
	}
}

func TestNoTestPackageIsLinkedIntoTheProgram(t *testing.T) {
	for _, p := range goList(t, module+"/cmd/hooklatch") {
		for _, dep := range p.Deps {
			if slices.Contains(testPackages, dep) {
				t.Errorf("%s is linked into the program", dep)
			}
		}
	}
}
