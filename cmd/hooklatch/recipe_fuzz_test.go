package main

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/hooklatch/hooklatch/verify"
)

// FuzzRecipe: a recipe file, YAML or JSON, is refused with a place, or makes a scheme
// that reads back equal from either.
func FuzzRecipe(f *testing.F) {
	for _, name := range verify.Presets() {
		s, _ := verify.Preset(name)
		asJSON, err := json.Marshal(s.Recipe())
		if err != nil {
			f.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(asJSON))
		f.Add(string(asYAML))
		f.Add("preset: " + name + "\ntimestamp: {tolerance_s: null}\n")
	}
	for _, fault := range recipeFaults() {
		f.Add(fault.text)
	}
	for _, text := range []string{
		"", "a", "\ufeffpreset: github", "preset: github\n---\npreset: stripe", "preset: &a github\nname: *a", "<<: {preset: github}",
		"preset: !!str github", "preset: github\ntemplate: |\n  {body}\n", `preset: github` + "\n" + `template: "v0\n{body}\u0000"`, "preset: 'github",
		"algo: token\nsignature: {name: X-Token}\nid: {from: [header:A, json:/b/0]}", "algo: token\nsignature: {name: on}\n", "? preset\n: github",
		"preset: github\nrequire: [{header: A, equals: 1e3}]", "preset: github\nrequire: [{header: A, equals: \"\\xff\"}]", "{\"preset\":\"github\",\"name\":\"\\ud83d\\ude0a\"}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseRecipe("recipe", []byte(text))
		if err != nil {
			var fault *failure
			if !errors.As(err, &fault) || fault.code != exitConfig || len(problemsOf(err)) == 0 {
				t.Fatalf("an error without a problem: %v", err)
			}
			return
		}
		want, err := json.Marshal(s.Recipe())
		if err != nil {
			t.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, printed := range [][]byte{want, asYAML} {
			back, err := parseRecipe("printed", printed)
			if err != nil {
				t.Fatalf("%s does not read back: %v", printed, err)
			}
			if got, err := json.Marshal(back.Recipe()); err != nil || string(got) != string(want) {
				t.Fatalf("%s is read as %s, %v", printed, got, err)
			}
		}
	})
}
