package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// seam are the packages that connect the decisions to the kernel.
var seam = []string{"internal/host", "internal/orphans", "internal/report", "internal/files", "orphans", "reaper", "signals",
	"pdeath"}

// An edit replaces a part of a file.
type edit struct {
	path     string
	text     []byte
	from, to int
	by       string
}

// draw prints n faults of the seam that the compiler takes, as lines for faults.txt.
func draw(n int, seed uint64) error {
	var all []edit
	for _, dir := range seam {
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			return err
		}
		for _, name := range pkg.GoFiles {
			edits, err := editsOf(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			all = append(all, edits...)
		}
	}
	fmt.Printf("# %d of %d faults, drawn with -seed %d.\n", n, len(all), seed)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	c := newCompiler()
	for _, e := range all {
		f, ok := e.fault()
		if n == 0 || !ok || c.compile(f) != nil {
			continue
		}
		n--
		line := bytes.Count(e.text[:e.from], []byte("\n")) + 1
		fmt.Printf("# line %d\n%s: %s => %s\n", line, e.path, escape.Replace(f.old), escape.Replace(f.new))
	}
	return nil
}

// other is what a token becomes.
var other = map[token.Token]string{token.EQL: "!=", token.NEQ: "==", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=",
	token.GEQ: ">", token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+"}

// editsOf returns all one-token edits of a file.
func editsOf(path string) (edits []edit, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, 0)
	if err != nil {
		return nil, err
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	source := func(n ast.Node) string { return string(text[at(n.Pos()):at(n.End())]) }
	add := func(from, to token.Pos, by string) { edits = append(edits, edit{path, text, at(from), at(to), by}) }
	replace := func(n ast.Node, by string) { add(n.Pos(), n.End(), by) }
	negate := func(conditions ...ast.Expr) {
		for _, c := range conditions {
			if b, ok := c.(*ast.BinaryExpr); c != nil && (!ok || other[b.Op] == "" || b.Op == token.LAND || b.Op == token.LOR) {
				replace(c, "!("+source(c)+")")
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			negate(n.Cond)
		case *ast.ForStmt:
			negate(n.Cond)
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				if n.Tag == nil {
					negate(c.(*ast.CaseClause).List...)
				}
			}
		case *ast.BinaryExpr:
			if by := other[n.Op]; by != "" {
				add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), by)
			}
			if n.Op == token.LAND || n.Op == token.LOR {
				replace(n, source(n.X))
				replace(n, source(n.Y))
			}
		case *ast.BasicLit:
			if n.Kind == token.INT {
				replace(n, "("+n.Value+" + 1)")
			}
		case *ast.Ident:
			if by, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
				replace(n, by)
			}
		case *ast.ExprStmt, *ast.DeferStmt, *ast.ReturnStmt, *ast.BranchStmt:
			replace(n, "")
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				replace(n, "")
			}
		case *ast.CallExpr:
			for i := 1; i < len(n.Args); i++ {
				if a, b := source(n.Args[i-1]), source(n.Args[i]); a != b {
					add(n.Args[i-1].Pos(), n.Args[i].End(), b+", "+a)
				}
			}
		}
		return true
	})
	return edits, nil
}

var escape = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// fault returns the edit as a fault, with as much of its line, and of the lines after that, as makes it unique. It returns
// false if the list can't hold that.
func (e edit) fault() (f fault, ok bool) {
	from, to := e.from, e.to
	inWord := func(i int) bool { return e.text[i-1] > ' ' && e.text[i] > ' ' && e.text[i] != ')' }
	for bytes.Count(e.text, e.text[from:to]) > 1 || inWord(to) || inWord(from) || to-from < 12 {
		switch {
		case e.text[from-1] != '\t' && (inWord(from) || e.text[to] == '\n'):
			from--
		case to < len(e.text)-1:
			to++
		default:
			return f, false
		}
	}
	f = fault{file: e.path, old: string(e.text[from:to]),
		new: string(e.text[from:e.from]) + e.by + string(e.text[e.to:to])}
	return f, to-from < 200 && unescape.Replace(escape.Replace(f.old)) == f.old && unescape.Replace(escape.Replace(f.new)) == f.new
}
