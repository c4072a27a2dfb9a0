package main

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

//go:embed completion
var completionScripts embed.FS

// completeCommand is what the scripts call on TAB, with the words typed so far.
// It is no command of the program, so that no help page shows it.
const completeCommand = "__complete"

func completionCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the script that completes commands on TAB",
		ArgsUsage: "bash|zsh|fish|powershell",
		Description: example("Print a completion script for a shell: commands, flags, and the names of schemes,\n"+
			"sources and destinations.",
			"source <(hooklatch completion bash)"),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, "SHELL")
			if err != nil {
				return err
			}
			return completion(s, args[0])
		},
	}
}

func completion(s *stdio, shell string) error {
	script, err := completionScripts.ReadFile("completion/" + shell)
	if err != nil {
		return usagef("hooklatch completion bash", "completion: no script for %q: bash, zsh, fish and powershell are known", shell)
	}
	_, err = s.out.Write(script)
	return err
}

// complete prints what may stand in place of the last of words, one a line.
func complete(s *stdio, words []string) int {
	if len(words) == 0 {
		words = []string{""}
	}
	typed, begin := words[len(words)-1], ""
	// bash hands --scheme=st over as three words, others as one.
	words = slices.DeleteFunc(slices.Clone(words[:len(words)-1]), func(word string) bool { return word == "=" })
	if flag, value, ok := strings.Cut(typed, "="); ok && strings.HasPrefix(flag, "-") {
		words, typed, begin = append(words, flag), value, flag+"="
	}
	typed = strings.TrimPrefix(typed, "=")
	for _, choice := range completions(newApp(s), words) {
		if strings.HasPrefix(choice, typed) && (typed != "" || !strings.HasPrefix(choice, "-")) {
			fmt.Fprintln(s.out, begin+choice)
		}
	}
	return exitOK
}

// completions lists what may come after words.
func completions(app *cli.App, words []string) []string {
	if len(words) > 0 {
		last := strings.TrimLeft(words[len(words)-1], "-")
		if values, ok := flagValues(app, last, words); ok && last != words[len(words)-1] {
			return values
		}
	}
	_, named, _, err := split(app, words)
	if err != nil {
		return nil
	}
	path, rest, err := descend(app, named)
	if err != nil {
		return nil
	}
	choices, flags := app.Commands, app.Flags
	for _, c := range path {
		choices, flags = c.Subcommands, slices.Concat(flags, c.Flags)
	}
	var all []string
	for _, c := range choices {
		all = append(all, c.Name)
	}
	if len(path) == 1 && path[0].Name == "completion" && len(rest) == 0 {
		all = append(all, "bash", "fish", "powershell", "zsh")
	}
	if len(path) == 2 && path[0].Name == "destinations" && path[1].Name != "list" && len(rest) == 0 {
		all = append(all, configuredNames("destination", words)...)
	}
	if len(path) == 1 && path[0].Name == "schemes" && len(rest) == 0 {
		all = append(all, verify.Presets()...)
	}
	for _, f := range flags {
		all = append(all, "--"+f.Names()[0])
	}
	return append(all, "--help")
}

// flagValues lists the values of a flag. ok is false where it takes none; nothing
// to offer leaves the word to the shell, which knows the files.
func flagValues(app *cli.App, name string, words []string) (values []string, ok bool) {
	switch name {
	case "scheme":
		return verify.Presets(), true
	case "format":
		return keyFormats(), true
	case "output":
		return signOutputs(), true
	case "break":
		return breakNames(), true
	case "ordering":
		return orderings, true
	case "state":
		return stateNames(), true
	case "class":
		return attemptClasses, true
	case "code":
		return refusalCodes(), true
	case "source", "destination", "tenant", "key-id":
		return configuredNames(name, words), true
	case "move-to":
		return configuredNames("destination", words), true
	}
	eachFlag(nil, app.Commands, func(f cli.Flag) {
		ok = ok || takesValue(f) && slices.Contains(f.Names(), name)
	})
	return nil, ok
}

// configuredNames lists names of that kind from the configuration that the words
// name. One that cannot be read has none: TAB is no place for its problems.
func configuredNames(kind string, words []string) []string {
	file := cmp.Or(os.Getenv("HOOKLATCH_CONFIG"), defaultConfigFile)
	for i, word := range words {
		if (word == "-c" || word == "--config") && i+1 < len(words) {
			file = words[i+1]
		}
	}
	c, err := readConfig(file)
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for name := range c.Destinations {
		names[name] = kind == "destination"
	}
	for name, s := range c.Sources {
		names[name] = names[name] || kind == "source"
		names[s.Tenant] = names[s.Tenant] || kind == "tenant"
		for _, k := range s.Keys {
			names[k.ID] = names[k.ID] || kind == "key-id"
		}
	}
	maps.DeleteFunc(names, func(_ string, wanted bool) bool { return !wanted })
	return slices.Sorted(maps.Keys(names))
}
