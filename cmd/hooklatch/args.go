package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// cli silently takes a flag after the first argument for an argument
// (urfave/cli#1177). So the list is brought into the order that cli reads before
// it sees it: each flag goes directly behind the command that declares it.

// givenFlag is one flag of the command line with its value.
type givenFlag struct {
	name   string
	tokens []string
}

// arrange returns args with the program's name first, flags moved to the command
// that declares them, and arguments last, behind "--". "-" is an argument, and
// nothing behind "--" is moved. Unknown commands and flags are usage errors here,
// so that cli meets none.
func arrange(app *cli.App, args []string) ([]string, error) {
	flags, words, tail, err := split(app, args)
	if err != nil {
		return nil, err
	}
	if len(words) > 0 && words[0] == "help" {
		words = words[1:]
		flags = append(flags, givenFlag{"help", []string{"--help"}})
	}
	path, words, err := descend(app, words)
	if err != nil {
		return nil, err
	}
	out, err := place(app, path, flags)
	if err != nil {
		return nil, err
	}
	if words = append(words, tail...); len(words) > 0 {
		out = append(append(out, "--"), words...)
	}
	return out, nil
}

// split tells flags from words. Which flags take a value follows from all that
// are declared anywhere: a name means the same in every command, a test sees to it.
func split(app *cli.App, args []string) (flags []givenFlag, words, tail []string, err error) {
	takes := map[string]bool{}
	eachFlag(app.Flags, app.Commands, func(f cli.Flag) {
		for _, name := range f.Names() {
			takes[name] = takesValue(f)
		}
	})
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return flags, words, args[i+1:], nil
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			words = append(words, arg)
			continue
		}
		name, _, inline := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		flag := givenFlag{name, []string{arg}}
		if takes[name] && !inline {
			if i++; i == len(args) {
				return nil, nil, nil, usagef("hooklatch --help", "flag %s needs a value", arg)
			}
			flag.tokens = append(flag.tokens, args[i])
		}
		flags = append(flags, flag)
	}
	return flags, words, nil, nil
}

// descend follows words to the command that they name. What is left are its
// arguments.
func descend(app *cli.App, words []string) (path []*cli.Command, rest []string, err error) {
	choices, name := app.Commands, app.Name
	for len(words) > 0 && len(choices) > 0 {
		next := find(choices, words[0])
		if next == nil {
			var known []string
			for _, c := range choices {
				known = append(known, c.Name)
			}
			try := name + " --help"
			if near := nearest(words[0], known); near != "" {
				try = name + " " + near
			}
			return nil, nil, usagef(try, "unknown command %q", strings.TrimPrefix(name+" "+words[0], app.Name+" "))
		}
		path = append(path, next)
		name += " " + next.Name
		choices, words = next.Subcommands, words[1:]
	}
	return path, words, nil
}

// place puts each flag behind the last command of path that declares it.
func place(app *cli.App, path []*cli.Command, flags []givenFlag) ([]string, error) {
	placed := make([][]string, len(path)+1)
	name := app.Name
	declared := [][]cli.Flag{app.Flags}
	for _, c := range path {
		declared = append(declared, c.Flags)
		name += " " + c.Name
	}
	for _, f := range flags {
		level := len(path)
		if f.name != "help" && f.name != "h" {
			for level >= 0 && !declares(declared[level], f.name) {
				level--
			}
		}
		if level < 0 {
			return nil, unknownFlag(app, name, declared, f)
		}
		placed[level] = append(placed[level], f.tokens...)
	}
	out := append([]string{app.Name}, placed[0]...)
	for i, c := range path {
		out = append(append(out, c.Name), placed[i+1]...)
	}
	return out, nil
}

func unknownFlag(app *cli.App, command string, declared [][]cli.Flag, f givenFlag) error {
	var known []string
	for _, flags := range declared {
		for _, flag := range flags {
			known = append(known, flag.Names()...)
		}
	}
	try := "put -- before an argument that begins with -, or see " + command + " --help"
	if near := nearest(f.name, known); near != "" {
		try = dashed(near) + "   (or put -- before an argument that begins with -)"
	}
	given, _, _ := strings.Cut(f.tokens[0], "=")
	where := ""
	if command != app.Name {
		where = strings.TrimPrefix(command, app.Name+" ") + ": "
	}
	return usagef(try, "%sunknown flag %s", where, given)
}

// dashed writes the name of a flag as people type it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func eachFlag(flags []cli.Flag, commands []*cli.Command, visit func(cli.Flag)) {
	for _, f := range flags {
		visit(f)
	}
	for _, c := range commands {
		eachFlag(c.Flags, c.Subcommands, visit)
	}
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

func declares(flags []cli.Flag, name string) bool {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				return true
			}
		}
	}
	return false
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// nearest returns the candidate that word was probably meant to be, or "".
func nearest(word string, candidates []string) string {
	best, limit := "", max(1, len(word)/3)
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), strings.ToLower(c)); d <= limit && len(c) > 1 {
			best, limit = c, d-1
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours between a and b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 0
			if a[i] != b[j] {
				cost = 1
			}
			row[j+1] = min(last[j]+cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
