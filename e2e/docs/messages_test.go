package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Each text that a life says is on the page of messages: the fixed parts of each string in a call of Sayf or notStarted, in a
// say of package life, and in what says why fini stops a command.
func TestPagesMessages(t *testing.T) {
	t.Parallel()
	page := rig.ReadFile(t, "../docs/messages.md")
	verb := regexp.MustCompile(`%[-+#]?[a-z]`)
	seen := 0
	check := func(at token.Position, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			value, _ := strconv.Unquote(text.Value)
			for _, part := range verb.Split(value, -1) {
				if part = strings.Trim(part, " :;,()"); strings.Count(part, " ") < 1 {
					continue
				}
				if seen++; !strings.Contains(page, part) {
					t.Errorf("docs/messages.md has no line with %q, which is said in %s:%d", part, at.Filename, at.Line)
				}
			}
			return true
		})
	}
	sources, _ := filepath.Glob("../internal/*/*.go")
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, source, nil, 0)
		rig.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "Sayf" || f.Sel.Name == "notStarted") {
					check(set.Position(n.Pos()), n)
					return false
				}
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && name.Name == "say" {
					check(set.Position(n.Pos()), n)
				}
			case *ast.FuncDecl:
				if n.Name.Name == "because" || n.Name.Name == "bind" {
					check(set.Position(n.Pos()), n)
				}
			}
			return true
		})
	}
	if seen < 30 {
		t.Errorf("found only %d texts", seen)
	}
}

// saidLines asserts that each line of a block is one that fini says: its longest fixed part is in the text of a string of the
// product, in which anything may stand for a verb.
func saidLines(t *testing.T, block string) {
	t.Helper()
	var said strings.Builder
	sources, _ := filepath.Glob("../internal/*/*.go")
	libraries, _ := filepath.Glob("../*/*.go")
	for _, source := range append(sources, libraries...) {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		rig.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if n, ok := n.(ast.Expr); ok {
				said.WriteString(literal(n) + "\n")
			}
			return true
		})
	}
	filled := regexp.MustCompile(`\b[A-Z]{3,}\b|  +\(-.\)$`)
	for line := range strings.Lines(block) {
		parts := filled.Split(strings.TrimSpace(line), -1)
		longest := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
		if longest = strings.Trim(longest, " :;,()"); !strings.Contains(said.String(), longest) {
			t.Errorf("nothing says %q", longest)
		}
	}
}

// literal returns the text of a string in the source, which may be written in several parts, and "" for other expressions.
func literal(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		value, _ := strconv.Unquote(n.Value)
		return value
	case *ast.BinaryExpr:
		return literal(n.X) + literal(n.Y)
	}
	return ""
}
