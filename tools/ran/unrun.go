package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A source is a file with tests, or of the rig.
type source struct {
	pkg  string // "" for the rig, which rooms share
	path string
	fset *token.FileSet
	tree *ast.File
}

// sources reads all that is built for this machine.
func sources() (all []source, err error) {
	const tests = `{{range .TestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}`
	list, err := exec.Command("go", "list", "-f", tests, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	rig, _ := filepath.Glob("e2e/rig/*.go")
	shared, _ := filepath.Glob("e2e/rig/*/*.go")
	checks, _ := filepath.Glob("internal/tests/*/*.go")
	for _, line := range slices.Concat(strings.Split(string(list), "\n"), rig, shared, checks) {
		pkg, path, ok := strings.Cut(line, " ")
		if !ok {
			pkg, path = "", line
		}
		if path == "" {
			continue // go list ends each package's lines with one more line feed
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		all = append(all, source{pkg, path, fset, tree})
	}
	return all, nil
}

// tests are those of a file that go test runs without being asked for them by name.
func (s source) tests() (all []test) {
	for _, decl := range s.tree.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && s.pkg != "" && f.Recv == nil && testName.MatchString(f.Name.Name) && f.Name.Name != "TestMain" {
			all = append(all, test{s.pkg, f.Name.Name})
		}
	}
	return all
}

var testName = regexp.MustCompile(`^(Test|Fuzz)([^a-z]|$)`)

// unrun names what there is and has not run: a test, a row of a table, and a subtest that was skipped without asking
// package need, which makes a skip an error where it is meant to be one. Of rows that are no subtests it names those that may
// not have run: see silent.
func (r *run) unrun(there []source) (bad []string) {
	for of, verdict := range r.verdict {
		if verdict == "skip" && r.why[of] == "" {
			bad = append(bad, fmt.Sprintf("skipped, and not by package need: %s in %s", of.name, short(of.pkg)))
		}
	}
	for _, s := range there {
		for _, of := range s.tests() {
			if r.verdict[of] == "" {
				bad = append(bad, fmt.Sprintf("did not run: %s in %s", of.name, short(of.pkg)))
			}
		}
		for _, t := range s.tables() {
			bad = append(bad, r.unrunRows(t)...)
		}
		bad = append(bad, s.silent()...)
	}
	slices.Sort(bad)
	return bad
}

// A table is one of a test's, or of a package: the names of its rows.
type table struct {
	pkg  string // "" for one that rooms share
	test string // "" for a package's
	at   string
	rows []string
}

// unrunRows names the rows of which no subtest has the name, if others of the table have one: not every table is of
// subtests.
func (r *run) unrunRows(of table) (bad []string) {
	var lacks []string
	for _, row := range of.rows {
		// A name stands for itself in the path of a subtest: between slashes, commas or colons.
		part := regexp.MustCompile(`(^|/|[,:]_?)` + regexp.QuoteMeta(subtest(row)) + `([/,#:]|$)`)
		ran := false
		for t, verdict := range r.verdict {
			top, path, _ := strings.Cut(t.name, "/")
			ran = ran || (of.pkg == "" || of.pkg == t.pkg) && (of.test == "" || of.test == top) &&
				!(verdict == "skip" && r.why[t] == "") && part.MatchString(path)
		}
		if !ran {
			lacks = append(lacks, row)
		}
	}
	if ran := len(of.rows) - len(lacks); ran == 0 || ran < len(of.rows)/4 {
		return nil
	}
	for _, row := range lacks {
		bad = append(bad, fmt.Sprintf("did not run: %q, which is a row of the table in %s", row, of.at))
	}
	return bad
}

// subtest is what package testing makes of a name.
func subtest(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case unicode.IsSpace(r):
			b.WriteByte('_')
		case !strconv.IsPrint(r):
			s := strconv.QuoteRune(r)
			b.WriteString(s[1 : len(s)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// tables finds those of a file.
func (s source) tables() (all []table) {
	for _, decl := range s.tree.Decls {
		in := ""
		if f, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
			in = f.Name.Name
		}
		if v, ok := decl.(*ast.GenDecl); s.pkg == "" && !(ok && v.Tok == token.VAR && v.Specs[0].(*ast.ValueSpec).Names[0].IsExported()) {
			continue // of the rig, rooms share the tables that are exported
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok {
				if rows := rowsOf(lit); len(rows) > 1 {
					at := s.fset.Position(lit.Pos())
					all = append(all, table{s.pkg, in, fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line), rows})
				}
			}
			return true
		})
	}
	return all
}

// rowsOf is the names of a literal's rows; nil if not all have one that is a constant.
func rowsOf(lit *ast.CompositeLit) (rows []string) {
	var of ast.Expr
	switch kind := lit.Type.(type) {
	case *ast.MapType:
		of = kind.Value
	case *ast.ArrayType:
		if of = kind.Elt; strings.HasPrefix(types.ExprString(of), "[") {
			return nil
		}
	}
	if _, ok := of.(*ast.SelectorExpr); of == nil || ok || slices.Contains([]string{"string", "int", "bool"}, types.ExprString(of)) {
		return nil // a table of words
	}
	for _, elt := range lit.Elts {
		text, ok := nameOf(elt).(*ast.BasicLit)
		if !ok || text.Kind != token.STRING {
			return nil
		}
		row, _ := strconv.Unquote(text.Value)
		if row == "" {
			return nil
		}
		rows = append(rows, row)
	}
	return rows
}

// nameOf is the key of a map's row, or what a struct has as its name or its first field.
func nameOf(row ast.Expr) ast.Expr {
	switch row := row.(type) {
	case *ast.KeyValueExpr:
		return row.Key
	case *ast.CompositeLit:
		for _, field := range row.Elts {
			pair, ok := field.(*ast.KeyValueExpr)
			if !ok {
				return field
			}
			if key, ok := pair.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "name") {
				return pair.Value
			}
		}
	}
	return nil
}
