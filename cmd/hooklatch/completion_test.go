package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCompletionOffersNames(t *testing.T) {
	for words, want := range map[string]string{
		"schemes|zhi":                       "zhisou-v1",
		"sign|--scheme|zhi":                 "zhisou-v1",
		"sign|--scheme|=|zhi":               "zhisou-v1", // as bash splits it
		"sign|--scheme=zhi":                 "--scheme=zhisou-v1",
		"send|--break|cl":                   "clock",
		"keygen|--format|=":                 strings.Join(keyFormats(), "\n"),
		"keys|":                             "list",
		"verify|--recipe|":                  "", // the shell knows the files
		"sign|--scheme|github|--output|cur": "curl",
	} {
		var out bytes.Buffer
		run(t.Context(), &stdio{out: &out, err: &out}, append([]string{completeCommand}, strings.Split(words, "|")...))
		if got := strings.TrimSpace(out.String()); got != want {
			t.Errorf("%s: got %q, want %q", words, got, want)
		}
	}
}
