package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms are the packages that others import.
var rooms = []string{"verify", "inbox", "inbox/devdb", "inbox/inboxtest", "consumer", "consumer/nats", "consumer/kafka", "proxy", "migrations"}

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
		}
	}
	if l.room == "verify" && !l.test && tellsBytesByTime(n) {
		l.report(n, "a comparison that is not constant in time: use hmac.Equal")
	}
	return true
}

// secretNames are what a MAC, a signature or a secret is called in verify.
var secretNames = []string{"mac", "sum", "sums", "sig", "digest", "signature", "given", "candidate", "secret"}

// tellsBytesByTime says whether a comparison ends at the first byte that differs: any
// by package bytes, and of values with such a name any but hmac.Equal and subtle.
func tellsBytesByTime(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return (n.Op == token.EQL || n.Op == token.NEQ) && !constant(n.X) && !constant(n.Y) && (secretive(n.X) || secretive(n.Y))
	case *ast.CallExpr:
		callee, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		from, _ := callee.X.(*ast.Ident)
		if from == nil || !slices.Contains([]string{"bytes", "strings", "slices", "reflect", "cmp", "maps"}, from.Name) ||
			!slices.Contains([]string{"Equal", "Compare", "EqualFold", "DeepEqual", "HasPrefix", "HasSuffix", "Contains"}, callee.Sel.Name) {
			return false
		}
		return from.Name == "bytes" && callee.Sel.Name != "HasPrefix" && callee.Sel.Name != "HasSuffix" ||
			slices.ContainsFunc(n.Args, secretive) && !slices.ContainsFunc(n.Args, constant)
	}
	return false
}

// constant says whether an operand is written in the program, or is a truth value.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.ParenExpr:
		return true
	case *ast.Ident:
		return e.Name == "nil"
	}
	return false
}

// secretive finds the name behind conversions, slices and indexes.
func secretive(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return slices.Contains(secretNames, e.Name)
	case *ast.SelectorExpr:
		return slices.Contains(secretNames, e.Sel.Name)
	case *ast.SliceExpr:
		return secretive(e.X)
	case *ast.IndexExpr:
		if of, ok := e.X.(*ast.SelectorExpr); ok && of.Sel.Name == "candidates" {
			return true
		}
		return secretive(e.X)
	case *ast.ParenExpr:
		return secretive(e.X)
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.Ident); ok && f.Name == "len" || len(e.Args) == 0 {
			return false
		}
		f, ok := e.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains([]string{"Sum", "mac", "EncodeToString", "decode"}, f.Sel.Name) || secretive(e.Args[0])
	}
	return false
}

func TestTheLintSeesComparisonsThatTellByTime(t *testing.T) {
	for text, want := range map[string]bool{
		`mac == given`: true,
		`string(c.sums[i][:size]) == c.candidates[j]`:    true,
		`h.Sum(nil) != want`:                             true,
		`hex.EncodeToString(s) == want`:                  true,
		`bytes.Equal(a, b)`:                              true,
		`bytes.Compare(a, b)`:                            true,
		`strings.EqualFold(sig, x)`:                      true,
		`slices.Equal(c.sums[0][:], x)`:                  true,
		`strings.HasPrefix(want, given)`:                 true,
		`hmac.Equal(mac, given)`:                         false,
		`subtle.ConstantTimeCompare(mac, given)`:         false,
		`sig == nil`:                                     false,
		`secret == ""`:                                   false,
		`len(sig) != size`:                               false,
		`name == want`:                                   false,
		`strings.HasPrefix(text, "whsec_")`:              false,
		`c.p.signature.in != placeHeader`:                false,
		`strings.Contains(c.p.recipe.Signature.In, "x")`: false,
	} {
		e, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tellsBytesByTime(e); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
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
