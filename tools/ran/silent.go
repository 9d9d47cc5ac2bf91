package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
)

// Where the rows of a table are no subtests, go test says nothing of a row, and nobody sees that it did not run. So silent
// names what may leave out such a row without an error: a continue, break or return in the loop over the table, or a return
// before it. A comment in the same line says why that is right.
func (s source) silent() (bad []string) {
	tables := s.literals()
	for _, decl := range s.tree.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil || f.Type.Results != nil || !takesT(f.Type) {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			name, named := loop.X.(*ast.Ident)
			if !isTable(loop.X) && !(named && tables[name.Name]) || hasSubtests(loop.Body) {
				return true
			}
			for _, leave := range leaves(f.Body) {
				if _, ok := leave.(*ast.ReturnStmt); ok && leave.End() < loop.Pos() {
					bad = append(bad, s.unsaid(leave)...)
				}
			}
			for _, leave := range leaves(loop.Body) {
				bad = append(bad, s.unsaid(leave)...)
			}
			return true
		})
	}
	return bad
}

// literals are the names of a file's variables that are tables.
func (s source) literals() map[string]bool {
	names := map[string]bool{}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		var to, values []ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			to, values = n.Lhs, n.Rhs
		case *ast.ValueSpec:
			for _, name := range n.Names {
				to = append(to, name)
			}
			values = n.Values
		}
		for i, value := range values {
			if name, ok := to[i].(*ast.Ident); ok && isTable(value) {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}

// unsaid is the line about a statement that has no comment.
func (s source) unsaid(leave ast.Stmt) []string {
	at := s.fset.Position(leave.Pos())
	for _, comment := range s.tree.Comments {
		if s.fset.Position(comment.Pos()).Line == at.Line {
			return nil
		}
	}
	return []string{fmt.Sprintf("may leave out rows of a table, which are no subtests, and no comment says why: %s:%d", filepath.Base(at.Filename), at.Line)}
}

// leaves are the statements by which a body is left early: not those that come with an error, and not those of a quick run.
func leaves(body *ast.BlockStmt) (all []ast.Stmt) {
	ast.PreorderStack(body, nil, func(n ast.Node, around []ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.IfStmt:
			return !asksForQuick.MatchString(types.ExprString(n.Cond))
		case *ast.ReturnStmt:
			if !afterError(n, around) {
				all = append(all, n)
			}
		case *ast.BranchStmt:
			if !afterError(n, around) && !leavesLess(n, around) {
				all = append(all, n)
			}
		}
		return true
	})
	return all
}

var (
	asksForQuick = regexp.MustCompile(`\b(Quick|Short)\b`)
	fails        = regexp.MustCompile(`\.(Error|Fatal)\w*$`)
)

// leavesLess reports whether a break, continue or the like leaves a loop or switch within the body alone.
func leavesLess(branch *ast.BranchStmt, around []ast.Node) bool {
	for _, n := range around {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			if branch.Tok == token.BREAK || branch.Tok == token.FALLTHROUGH {
				return true
			}
		}
	}
	return false
}

// afterError reports whether a call before a statement, in the same list, makes the test fail.
func afterError(leave ast.Stmt, around []ast.Node) bool {
	var list []ast.Stmt
	switch n := around[len(around)-1].(type) {
	case *ast.BlockStmt:
		list = n.List
	case *ast.CaseClause:
		list = n.Body
	case *ast.CommClause:
		list = n.Body
	}
	for _, one := range list {
		if one, ok := one.(*ast.ExprStmt); ok && one.Pos() < leave.Pos() {
			if call, ok := one.X.(*ast.CallExpr); ok && fails.MatchString(types.ExprString(call.Fun)) {
				return true
			}
		}
	}
	return false
}

// isTable reports whether a literal has several rows.
func isTable(of ast.Expr) bool {
	lit, ok := of.(*ast.CompositeLit)
	if !ok || len(lit.Elts) < 2 {
		return false
	}
	switch lit.Type.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	}
	return false
}

// hasSubtests reports whether a body has a function for a subtest.
func hasSubtests(body ast.Node) (has bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		f, ok := n.(*ast.FuncLit)
		has = has || ok && takesT(f.Type)
		return !has
	})
	return has
}

// takesT reports whether a function has a parameter of package testing.
func takesT(f *ast.FuncType) bool {
	for _, field := range f.Params.List {
		if strings.HasPrefix(strings.TrimPrefix(types.ExprString(field.Type), "*"), "testing.") {
			return true
		}
	}
	return false
}
