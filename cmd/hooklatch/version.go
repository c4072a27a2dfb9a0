package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

func versionCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: example("Print the version of this binary, of Go, and the commit that it was built from.", "hooklatch version --json"),
		Flags:       []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return version(s, c.Bool("json"))
		},
	}
}

// buildVersion is what the binary says of itself, in logs and metrics too.
type buildVersion struct {
	V        int    `json:"v"`
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() buildVersion {
	v := buildVersion{V: 1, Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = build.Main.Version
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func version(s *stdio, asJSON bool) error {
	v := readVersion()
	if asJSON {
		return printJSON(s.out, v)
	}
	_, err := fmt.Fprintf(s.out, "hooklatch %s %s %s\n", v.Version, v.Go, v.Platform)
	return err
}
