package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// rooms are the packages that others import.
var rooms = []string{"verify", "inbox", "inbox/devdb", "inbox/inboxtest", "consumer", "proxy", "migrations"}

// TestHouseRules holds what a reviewer would otherwise have to say each time.
func TestHouseRules(t *testing.T) {
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		l := linter{t: t, files: files, room: filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../../")), test: strings.HasSuffix(path, "_test.go")}
		ast.Inspect(file, l.node)
		if !l.test {
			l.docs(file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

type linter struct {
	t     *testing.T
	files *token.FileSet
	room  string
	test  bool
}

func (l linter) report(n ast.Node, why string) {
	l.t.Helper()
	l.t.Errorf("%s: %s", l.files.Position(n.Pos()), why)
}

func (l linter) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		switch name := n.Name.Name; {
		case name == "init" && n.Recv == nil:
			l.report(n, "an init function: state that nobody asked for")
		case !l.test && n.Recv == nil && len(name) > 4 && strings.HasPrefix(name, "With") && ast.IsExported(name):
			l.report(n, "a WithX constructor: use a field of Config")
		}
	case *ast.CallExpr:
		callee, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, _ := callee.X.(*ast.Ident)
		switch {
		case from == nil:
		case l.test && from.Name == "time" && callee.Sel.Name == "Sleep":
			l.report(n, "a sleep in a test: wait for a condition with a deadline")
		case !l.test && from.Name == "os" && callee.Sel.Name == "Exit" && !strings.HasPrefix(l.room, "cmd/"):
			l.report(n, "a library that ends the process")
		case l.room == "verify" && !l.test && from.Name == "bytes" && (callee.Sel.Name == "Equal" || callee.Sel.Name == "Compare"):
			l.report(n, "a comparison that is not constant in time: use hmac.Equal")
		}
	}
	return true
}

// docs demands a comment, beginning with the name, on what a library exports.
func (l linter) docs(file *ast.File) {
	exportedRoom := false
	for _, r := range rooms {
		exportedRoom = exportedRoom || r == l.room
	}
	if !exportedRoom {
		return
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if ast.IsExported(d.Name.Name) && exportedReceiver(d) && !begins(d.Doc, d.Name.Name) {
				l.report(d, d.Name.Name+" has no comment that begins with its name")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && ast.IsExported(s.Name.Name) && !begins(d.Doc, s.Name.Name) && !begins(s.Doc, s.Name.Name) {
					l.report(s, s.Name.Name+" has no comment that begins with its name")
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	name, ok := of.(*ast.Ident)
	return ok && ast.IsExported(name.Name)
}

// standard methods explain themselves.
var standard = map[string]bool{"Error": true, "String": true, "Is": true, "Unwrap": true, "ServeHTTP": true,
	"GoString": true, "Format": true, "MarshalJSON": true, "MarshalText": true, "LogValue": true, "UnmarshalJSON": true, "UnmarshalText": true}

func begins(doc *ast.CommentGroup, name string) bool {
	if standard[name] {
		return true
	}
	text := doc.Text()
	for _, article := range []string{"", "A ", "An ", "The "} {
		if strings.HasPrefix(text, article+name) {
			return true
		}
	}
	return false
}
