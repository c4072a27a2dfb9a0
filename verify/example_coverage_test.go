package verify_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// byInterface are methods that no caller names.
const byInterface = " Error Is Unwrap String Format LogValue MarshalJSON MarshalText UnmarshalJSON "

// Whoever reads the package page finds each function at work: a function has an
// example of its name, a method stands in one.
func TestEveryFunctionHasAnExample(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var wanted []*ast.FuncDecl
	examples, called := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		name := file.Name()
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
			case strings.HasSuffix(name, "_test.go"):
				if !strings.HasPrefix(f.Name.Name, "Example") {
					continue
				}
				examples[f.Name.Name] = true
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						called[s.Sel.Name] = true
					}
					return true
				})
			case f.Name.IsExported() && (f.Recv == nil || !strings.Contains(byInterface, " "+f.Name.Name+" ")):
				wanted = append(wanted, f)
			}
		}
	}
	if len(wanted) < 40 {
		t.Fatalf("only %d functions", len(wanted))
	}
	for _, f := range wanted {
		name := f.Name.Name
		switch {
		case f.Recv == nil && !examples["Example"+name]:
			t.Errorf("function %s has no example", name)
		case f.Recv != nil && !called[name] && ast.IsExported(receiver(f)):
			t.Errorf("method %s of %s stands in no example", name, receiver(f))
		}
	}
}

func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
