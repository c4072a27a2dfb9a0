package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every YAML block of a page is a configuration that the program takes, or a recipe.
func TestPagesHoldConfigurationsAndRecipesThatPass(t *testing.T) {
	for _, name := range []string{"README.md", "docs/recipes.md", "docs/sinks.md", "docs/app.md", "docs/delivery.md"} {
		blocks := strings.Split(page(t, name), "```yaml\n")[1:]
		if len(blocks) == 0 {
			t.Fatalf("void: %s has no YAML block", name)
		}
		for _, block := range blocks {
			yaml, _, _ := strings.Cut(block, "```")
			if !strings.HasPrefix(yaml, "version:") {
				if _, err := parseRecipe(name, []byte(yaml)); err != nil {
					t.Errorf("%v\n%s", err, yaml)
				}
				continue
			}
			file := filepath.Join(t.TempDir(), "hooklatch.yaml")
			if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, out, messages := hooklatch(t, "config", "check", "--no-secrets", "-c", file); code != 0 {
				t.Errorf("%s: exit %d\n%s%s", name, code, out, messages)
			}
		}
	}
}

// The page on recipes names each field that is not for code alone, and each token.
func TestRecipesPageIsComplete(t *testing.T) {
	text := page(t, "docs/recipes.md")
	for _, f := range recipeTexts() {
		name := f.path[strings.LastIndex(f.path, ".")+1:]
		if strings.HasPrefix(f.description, "of code:") || strings.HasPrefix(f.path, "handshake.") {
			continue
		}
		if !strings.Contains(text, "`"+name) && !strings.Contains(text, name+":") {
			t.Errorf("no word about %s", f.path)
		}
		if f.path != "template" {
			continue
		}
		for _, token := range regexp.MustCompile(`\{[^}]*\}`).FindAllString(f.description, -1) {
			if !strings.Contains(text, "`"+token+"`") {
				t.Errorf("no word about %s", token)
			}
		}
	}
}

// Its commands work, one after the other, with the recipe that stands above them.
func TestRecipesPageCommandsWork(t *testing.T) {
	_, rest, found := strings.Cut(page(t, "docs/recipes.md"), "```yaml\nname: customerio\n")
	recipe, rest, _ := strings.Cut(rest, "```")
	_, block, more := strings.Cut(rest, "```\nhooklatch ")
	if !found || !more {
		t.Fatal("void: the page has no such blocks")
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"customerio.yaml": "name: customerio\n" + recipe, "body.json": `{"event_id":"e1","metric":"sent"}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	block, _, _ = strings.Cut("hooklatch "+block, "```")
	runBlock(t, block)
}

// README's table of refusals has a row for each kind of send --break.
func TestReadmeNamesEveryBreak(t *testing.T) {
	text := page(t, "README.md")
	for _, kind := range breakNames() {
		if !strings.Contains(text, "\n| `"+kind+"` |") {
			t.Errorf("README has no row for --break %s", kind)
		}
	}
}

// The commands of README's block on signatures work as they stand, one after the
// other, where there is a body.
func TestReadmeSignatureCommandsWork(t *testing.T) {
	_, block, found := strings.Cut(page(t, "README.md"), "## Signatures on the command line\n\n```\n")
	if !found {
		t.Fatal("void: README has no such block")
	}
	block, _, _ = strings.Cut(block, "```")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("body.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	runBlock(t, block)
}

// runBlock runs the commands of a page, and keeps what they write into files.
func runBlock(t *testing.T, block string) {
	t.Helper()
	for line := range strings.Lines(block) {
		command, file, redirected := strings.Cut(strings.TrimSpace(line), " > ")
		code, out, messages := hooklatch(t, strings.Fields(command)[1:]...)
		if code != 0 {
			t.Errorf("%s: exit %d\n%s%s", command, code, out, messages)
		}
		if redirected {
			if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
