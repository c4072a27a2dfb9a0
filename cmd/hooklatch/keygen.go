package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

func keygenCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "keygen",
		Usage: "make a signing key",
		Description: example("Make a key of 32 random bytes: as 64 hex characters, used as text, or as whsec_ and\n"+
			"base64 for Standard Webhooks. A file is made with mode 0600, without a newline at its\n"+
			"end, with the folder that it lies in, and never over a file that is there.",
			"hooklatch keygen -o keys/billing-1"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "`FORMAT` of the key: hex or whsec"},
			&cli.StringFlag{Name: "scheme", Usage: "scheme `NAME` that picks the format"},
			outFlag("write the key to `FILE`; - is stdout"),
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return keygen(s, c.String("format"), c.String("scheme"), c.String("out"), c.Bool("json"))
		},
	}
}

func outFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "out", Aliases: []string{"o"}, TakesFile: true, Usage: usage}
}

// generated is the JSON of keygen: the key, or where it was written.
type generated struct {
	V      int    `json:"v"`
	Format string `json:"format"`
	File   string `json:"file,omitempty"`
	Key    string `json:"key,omitempty"`
}

func keygen(s *stdio, format, scheme, out string, asJSON bool) error {
	format, err := keyFormat(format, scheme)
	if err != nil {
		return err
	}
	key := newSecret(format)
	if out == "" || out == "-" {
		if asJSON {
			return printJSON(s.out, generated{V: 1, Format: format, Key: key})
		}
		newline := ""
		if isTerminal(s.out) {
			newline = "\n"
		}
		_, err := fmt.Fprint(s.out, key, newline)
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		return fail(exitNo, fmt.Errorf("write key: %w", err), "")
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fail(exitNo, fmt.Errorf("write key: %s is there already, and a key is never written over a file", out), "another name, or remove the file")
	}
	if err != nil {
		return fail(exitNo, fmt.Errorf("write key: %w", err), "")
	}
	if _, err = f.WriteString(key); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fail(exitNo, fmt.Errorf("write key: %w", err), "")
	}
	s.note("wrote %s (mode 0600, %d characters, no newline)", out, len(key))
	if asJSON {
		return printJSON(s.out, generated{V: 1, Format: format, File: out})
	}
	return nil
}

// keyFormat finds the format of a key that the scheme can use.
func keyFormat(format, scheme string) (string, error) {
	if scheme != "" {
		preset, err := presetScheme(scheme, "hooklatch keygen --format hex   for a scheme that is not built in")
		if err != nil {
			return "", err
		}
		wanted, err := schemeKeyFormat(preset)
		if err != nil {
			return "", err
		}
		if format != "" && format != wanted {
			return "", usagef("hooklatch keygen --scheme "+scheme, "keygen: keys of scheme %s are %s, not %s", scheme, wanted, format)
		}
		return wanted, nil
	}
	switch format {
	case "":
		return "hex", nil
	case "hex", "whsec":
		return format, nil
	}
	return "", usagef("hooklatch keygen --format hex", "keygen: unknown format %q: hex and whsec are known", format)
}

// schemeKeyFormat says how a key of 32 random bytes is written for the scheme.
func schemeKeyFormat(scheme verify.Scheme) (string, error) {
	spec := scheme.SecretSpec()
	switch spec.Encoding {
	case "", "utf8", "hex":
		return "hex", nil // as text, 64 characters are more than any scheme demands
	case "whsec":
		return "whsec", nil
	case "base64":
		for _, prefix := range spec.StripPrefix {
			if prefix == "whsec_" {
				return "whsec", nil
			}
		}
	}
	return "", usagef("openssl genpkey", "keygen: scheme %s does not use a shared key of a kind that keygen makes", scheme.Name())
}

// newSecret returns the text of a new key.
func newSecret(format string) string {
	var key [32]byte
	rand.Read(key[:])
	if format == "whsec" {
		return "whsec_" + base64.StdEncoding.EncodeToString(key[:])
	}
	return hex.EncodeToString(key[:])
}
