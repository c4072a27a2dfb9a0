package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

// publicSuffix is what the public key of a pair adds to the file's name.
const publicSuffix = ".pub"

func keygenCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "keygen",
		Usage: "make a signing key",
		Description: example("Make a key that sign and verify take for a scheme. A file is made with mode 0600, with the\n"+
			"folder that it lies in, and never over a file that is there. A secret has no newline at its\n"+
			"end. Of a pair the private key goes to FILE, the public key to FILE.pub, spelled as the\n"+
			"scheme reads it; without a file the public key goes to stderr. Formats:\n\n"+keyFormatHelp(),
			"hooklatch keygen -o keys/billing-1",
			"hooklatch keygen --scheme standard-webhooks -o keys/shop-1",
			"hooklatch keygen --scheme discord -o keys/discord"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "`FORMAT` of the key: " + strings.Join(keyFormats(), " ")},
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
	V          int    `json:"v"`
	Format     string `json:"format"`
	File       string `json:"file,omitempty"`
	PublicFile string `json:"public_file,omitempty"`
	Key        string `json:"key,omitempty"`
	PublicKey  string `json:"public_key,omitempty"`
}

func keygen(s *stdio, format, scheme, out string, asJSON bool) error {
	format, spec, err := keyFormat(format, scheme)
	if err != nil {
		return err
	}
	key, err := makeKey(format, spec)
	if err != nil {
		return fmt.Errorf("keygen: %w", err)
	}
	if out == "" || out == "-" {
		return printKey(s, format, key, asJSON)
	}
	result := generated{V: 1, Format: format, File: out, PublicKey: key.public}
	if key.public != "" {
		result.PublicFile = out + publicSuffix
		// First, so that a name that is taken leaves no key behind.
		if err := writeKey(result.PublicFile, key.public, 0o644); err != nil {
			return err
		}
	}
	if err := writeKey(out, key.secret, 0o600); err != nil {
		if key.public != "" {
			os.Remove(result.PublicFile)
		}
		return err
	}
	if key.public == "" {
		s.note("wrote %s (mode 0600, %d characters, no newline)", out, len(key.secret))
	} else {
		s.note("wrote %s (mode 0600, the private key) and %s (the public key)", out, result.PublicFile)
	}
	if asJSON {
		return printJSON(s.out, result)
	}
	return nil
}

// printKey writes the key alone to stdout: it may go into another program.
func printKey(s *stdio, format string, key newKey, asJSON bool) error {
	if asJSON {
		return printJSON(s.out, generated{V: 1, Format: format, Key: key.secret, PublicKey: key.public})
	}
	if key.public != "" {
		fmt.Fprintf(s.err, "public key:\n%s\n", strings.TrimSpace(key.public))
	}
	newline := ""
	if isTerminal(s.out) && !strings.HasSuffix(key.secret, "\n") {
		newline = "\n"
	}
	_, err := fmt.Fprint(s.out, key.secret, newline)
	return err
}

// writeKey makes a file, never over one that is there.
func writeKey(file, text string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fail(exitNo, fmt.Errorf("write key: %w", err), "")
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fail(exitNo, fmt.Errorf("write key: %s is there already, and a key is never written over a file", file), "another name, or remove the file")
	}
	if err != nil {
		return fail(exitNo, fmt.Errorf("write key: %w", err), "")
	}
	if _, err = f.WriteString(text); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = syncFolder(filepath.Dir(file))
	}
	if err != nil {
		os.Remove(file) // half a key would stand in the way of the whole one
		return fail(exitNo, fmt.Errorf("write key: %w", err), "")
	}
	return nil
}

// syncFolder makes the name of a new file survive a crash of the machine. A secret
// that was handed over once cannot be fetched again.
func syncFolder(folder string) error {
	if runtime.GOOS == "windows" {
		return nil // it cannot open one
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// keyFormat finds the format of a key that the scheme can use, and how the scheme
// reads it.
func keyFormat(format, scheme string) (string, verify.SecretSpec, error) {
	known := slices.Contains(keyFormats(), format)
	if format != "" && !known {
		try := "hooklatch keygen --format hex"
		if near := nearest(format, keyFormats()); near != "" {
			try = "hooklatch keygen --format " + near
		}
		return "", verify.SecretSpec{}, usagef(try, "keygen: unknown format %q: %s are known", format, listed(keyFormats()))
	}
	if scheme == "" {
		return cmp.Or(format, "hex"), verify.SecretSpec{}, nil
	}
	preset, err := presetScheme(scheme, "hooklatch keygen --format hex   for a scheme that is not built in")
	if err != nil {
		return "", verify.SecretSpec{}, err
	}
	wanted, err := schemeKeyFormat(preset)
	switch {
	case err != nil && format == "":
		return "", verify.SecretSpec{}, err
	case err == nil && format != "" && format != wanted:
		return "", verify.SecretSpec{}, usagef("hooklatch keygen --scheme "+scheme, "keygen: keys of scheme %s are %s, not %s", scheme, wanted, format)
	}
	return cmp.Or(format, wanted), preset.SecretSpec(), nil
}
