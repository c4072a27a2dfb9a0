package main

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// specimen is a small program with every kind of flag.
func specimen() *cli.App {
	s := &stdio{}
	return &cli.App{
		Name:  "hooklatch",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}}},
		Commands: []*cli.Command{
			{Name: "events", Subcommands: []*cli.Command{
				{Name: "show", Flags: []cli.Flag{jsonFlag(), configFlag(), &cli.StringSliceFlag{Name: "header"}}},
				{Name: "list", Flags: []cli.Flag{jsonFlag()}},
			}},
			keygenCommand(s),
		},
	}
}

func TestArrange(t *testing.T) {
	for _, test := range []struct {
		name, given, want string
	}{
		{"flag after the argument", "events show ID --json", "events show --json -- ID"},
		{"flag with a value after the argument", "events show ID -c F", "events show -c F -- ID"},
		{"flag before its command", "--json events show ID", "events show --json -- ID"},
		{"flag between command and subcommand", "events --config F show ID", "events show --config F -- ID"},
		{"global flag at the end", "events show ID -q", "-q events show -- ID"},
		{"value behind an equals sign", "events show ID --config=F", "events show --config=F -- ID"},
		{"value that is a command's name", "events show -c show ID", "events show -c show -- ID"},
		{"value that begins with a dash", "events show -c -x ID", "events show -c -x -- ID"},
		{"single dash is an argument", "events show - --json", "events show --json -- -"},
		{"single dash as a value", "keygen -o -", "keygen -o -"},
		{"nothing moves behind two dashes", "events show --json -- --json", "events show --json -- --json"},
		{"repeated flag keeps its order", "events show --header a ID --header b", "events show --header a --header b -- ID"},
		{"argument called help", "events show help", "events show -- help"},
		{"help before the command", "--help events show", "events show --help"},
		{"help as a command", "help events show", "events show --help"},
		{"help alone", "help", "--help"},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := arrange(specimen(), strings.Fields(test.given))
			if err != nil {
				t.Fatal(err)
			}
			if want := append([]string{"hooklatch"}, strings.Fields(test.want)...); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestArrangeRefuses(t *testing.T) {
	for _, test := range []struct {
		name, given, want, try string
	}{
		{"unknown command", "evnts", `unknown command "evnts"`, "hooklatch events"},
		{"unknown subcommand", "events shwo", `unknown command "events shwo"`, "hooklatch events show"},
		{"nothing near", "xyzzy", `unknown command "xyzzy"`, "hooklatch --help"},
		{"misspelled flag", "events show ID --jsno", "events show: unknown flag --jsno", "--json   (or put -- before an argument that begins with -)"},
		{"flag of another command", "events list --config F", "events list: unknown flag --config", "put -- before an argument that begins with -, or see hooklatch events list --help"},
		{"argument that begins with a dash", "events show -1", "events show: unknown flag -1", "put -- before an argument that begins with -, or see hooklatch events show --help"},
		{"three dashes", "events show ---json", "events show: unknown flag ---json", "--json   (or put -- before an argument that begins with -)"},
		{"unknown flag without a command", "--jsno", "unknown flag --jsno", "put -- before an argument that begins with -, or see hooklatch --help"},
		{"value missing at the end", "events show ID -c", "flag -c needs a value", "hooklatch --help"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := arrange(specimen(), strings.Fields(test.given))
			var f *failure
			if !errors.As(err, &f) {
				t.Fatalf("got %v, want a usage error", err)
			}
			if f.code != exitUsage || f.Error() != test.want || f.try != test.try {
				t.Errorf("got  %d %s\n     Try: %s\nwant %s\n     Try: %s", f.code, f, f.try, test.want, test.try)
			}
		})
	}
}

// One name of a flag that took a value here and none there could not be split
// from the arguments before the command is known.
func TestAFlagNameMeansTheSameEverywhere(t *testing.T) {
	app := newApp(&stdio{})
	takes := map[string]bool{}
	eachFlag(app.Flags, app.Commands, func(f cli.Flag) {
		for _, name := range f.Names() {
			if before, ok := takes[name]; ok && before != takesValue(f) {
				t.Errorf("flag %s takes a value in one command and none in another", dashed(name))
			}
			takes[name] = takesValue(f)
		}
	})
}

func TestEveryCommandHasAnExample(t *testing.T) {
	var visit func(name string, commands []*cli.Command)
	visit = func(name string, commands []*cli.Command) {
		for _, c := range commands {
			full := name + " " + c.Name
			var out bytes.Buffer
			s := &stdio{out: &out, err: &out}
			if code := run(context.Background(), s, append(strings.Fields(full)[1:], "--help")); code != exitOK {
				t.Errorf("%s --help: exit code %d", full, code)
			}
			if !strings.Contains(out.String(), "Example:") || c.Usage == "" {
				t.Errorf("%s --help has no example:\n%s", full, out.String())
			}
			visit(full, c.Subcommands)
		}
	}
	visit("hooklatch", newApp(&stdio{}).Commands)
}

// A shell variable that is not set once meant every delivery.
func TestAnEmptyArgumentIsRefused(t *testing.T) {
	for _, args := range [][]string{{"trace", ""}, {"events", "show", ""}, {"events", "body", ""}, {"resources", "show", ""}} {
		code, out, messages := hooklatch(t, args...)
		if code != exitUsage || out != "" || !strings.Contains(messages, "is empty") {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, messages)
		}
	}
}
