package main

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestOneLineEndOfASecretIsCut(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"none", "k", "k"},
		{"LF", "k\n", "k"},
		{"CRLF", "k\r\n", "k"},
		{"two LF", "k\n\n", "k\n"},
		{"CR alone", "k\r", "k\r"},
		{"blank", "k ", "k "},
		{"newline alone", "\n", ""},
		{"newline in front", "\nk", "\nk"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "k")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, ref := range []secretRef{{File: "k"}, {Exec: []string{"cat", "k"}}} {
				got, err := ref.read(t.Context(), filepath.Dir(file))
				if err != nil || string(got) != test.want {
					t.Errorf("%s: got %q, %v; want %q", ref, got, err, test.want)
				}
			}
		})
	}
	t.Setenv("HOOKLATCH_TEST_SECRET", "k\n")
	if got, err := (secretRef{Env: "HOOKLATCH_TEST_SECRET"}).read(t.Context(), "."); err != nil || string(got) != "k\n" {
		t.Errorf("a variable is taken as it is: got %q, %v", got, err)
	}
}

func TestSecretsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for file, mode := range map[string]os.FileMode{"group": 0o660, "others": 0o602, "big": 0o600} {
		text := []byte("s3cret")
		if file == "big" {
			text = make([]byte, maxSecretFile+1)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, file), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOOKLATCH_TEST_EMPTY", "")
	for _, test := range []struct {
		name string
		ref  secretRef
		want string
	}{
		{"file that is not there", secretRef{File: "nowhere"}, "no such file"},
		{"file that its group may write", secretRef{File: "group"}, "writable by group or others (mode 0660)"},
		{"file that others may write", secretRef{File: "others"}, "writable by group or others (mode 0602)"},
		{"file without an end", secretRef{File: "big"}, "larger than 64KiB"},
		{"variable that is not set", secretRef{Env: "HOOKLATCH_TEST_NOWHERE"}, "is not set"},
		{"variable that is empty", secretRef{Env: "HOOKLATCH_TEST_EMPTY"}, "is empty"},
		{"program that is not there", secretRef{Exec: []string{"hooklatch-no-such-program"}}, "not found"},
		{"program that fails", secretRef{Exec: []string{"sh", "-c", "echo s3cret; echo s3cret >&2; exit 3"}}, "exit status 3"},
		{"arguments are no shell words", secretRef{Exec: []string{"cat", "$HOME; echo s3cret"}}, "exit status 1"},
		{"nothing", secretRef{}, "no secret is named"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && test.ref.Env == "" {
				t.Skip("no such modes and programs")
			}
			got, err := test.ref.read(t.Context(), dir)
			if err == nil || !strings.Contains(err.Error(), test.want) || got != nil {
				t.Errorf("got %q, %v; want an error with %q", got, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") && test.ref.Exec == nil {
				t.Errorf("the secret is shown: %v", err)
			}
		})
	}
}

func TestMaskedConfigurationHoldsNoSecret(t *testing.T) {
	text := strings.NewReplacer("{file: keys/k1}", "{exec: [vault, -token=s3cret]}",
		"/webhooks", "/webhooks?key=s3cret").Replace(minimal)
	c, err := parseConfig("f", []byte(text), configNow)
	if err != nil {
		t.Fatal(err)
	}
	masked, err := c.masked()
	if err != nil || strings.Contains(string(masked), "s3cret") || !json.Valid(masked) {
		t.Errorf("%v\n%s", err, masked)
	}
	if c.Destinations["app"].URL != "http://127.0.0.1:3000/webhooks?key=s3cret" {
		t.Error("masking changed the configuration itself")
	}
}

// One secret in two tenants lets either sign for the other. A public key does not: all
// customers of one sender have the same.
func TestOneSecretInTwoTenants(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "public"), []byte(ed25519PEM), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "hex"), []byte(hex.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))), 0o600); err != nil {
		t.Fatal(err)
	}
	source := func(name, tenant, file string) string {
		return "  " + name + ":\n    tenant: " + tenant + "\n    path: /in/" + name + "\n    scheme: zhisou-v1\n" +
			"    keys: [{id: k, secret: {file: " + file + "}}]\n"
	}
	public := func(name, tenant string) string {
		return strings.NewReplacer("zhisou-v1", "discord", "{file: public}", "{file: public}, encoding: pem").Replace(source(name, tenant, "public")) +
			"    event: {id: /id}\n"
	}
	const head = "version: 1\nlisten: {http: \"127.0.0.1:0\"}\ndatabase: {url: {env: HOOKLATCH_TEST_DB}}\nsources:\n"
	t.Setenv("HOOKLATCH_TEST_DB", "postgres://localhost/db")
	for name, test := range map[string]struct{ text, want string }{
		"same tenant": {source("one", "acme", "a") + source("two", "acme", "b"), ""},
		"two tenants": {source("one", "acme", "a") + source("two", "globex", "b"),
			"14:20 key k has the secret of k, a key of tenant acme: either could sign for the other"},
		"two spellings of one": {source("one", "acme", "a") + strings.Replace(source("two", "globex", "hex"), "{file: hex}", "{file: hex}, encoding: hex", 1),
			"14:20 key k has the secret of k, a key of tenant acme: either could sign for the other"},
		"public key, two tenants": {public("one", "acme") + public("two", "globex"), ""},
	} {
		c, err := parseConfig(filepath.Join(dir, "hooklatch.yaml"), []byte(head+test.text), configNow)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.loadSecrets(t.Context())
		if got := shortly(problemsOf(err)); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
