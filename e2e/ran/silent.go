package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
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
		var early []ast.Stmt // returns
		leaves(f.Body.List, true, func(leave ast.Stmt) { early = append(early, leave) })
		ast.Inspect(f.Body, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if name, named := loopOver(loop).(*ast.Ident); !ok || !isTable(loop.X) && !(named && tables[name.Name]) || hasSubtests(loop.Body) {
				return true
			}
			for _, leave := range early {
				if leave.End() < loop.Pos() {
					bad = append(bad, s.unsaid(leave)...)
				}
			}
			leaves(loop.Body.List, false, func(leave ast.Stmt) { bad = append(bad, s.unsaid(leave)...) })
			return true
		})
	}
	return bad
}

func loopOver(loop *ast.RangeStmt) ast.Expr {
	if loop == nil {
		return nil
	}
	return loop.X
}

// literals are the names of a file's variables that are tables.
func (s source) literals() map[string]bool {
	names := map[string]bool{}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if name, ok := to.(*ast.Ident); ok && len(n.Rhs) == len(n.Lhs) && isTable(n.Rhs[i]) {
					names[name.Name] = true
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) && isTable(n.Values[i]) {
					names[name.Name] = true
				}
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

// leaves visits the statements by which a list of statements is left early, or if onlyReturns is set, its function: not those
// that come with an error, and not those of a quick run.
func leaves(list []ast.Stmt, onlyReturns bool, visit func(ast.Stmt)) {
	failed := false
	for _, one := range list {
		switch one := one.(type) {
		case *ast.ExprStmt:
			failed = failed || fails(one.X)
		case *ast.ReturnStmt:
			if !failed {
				visit(one)
			}
		case *ast.BranchStmt:
			if !failed && !onlyReturns {
				visit(one)
			}
		case *ast.BlockStmt:
			leaves(one.List, onlyReturns, visit)
		case *ast.LabeledStmt:
			leaves([]ast.Stmt{one.Stmt}, onlyReturns, visit)
		case *ast.IfStmt:
			if isQuick(one.Cond) {
				continue
			}
			leaves(one.Body.List, onlyReturns, visit)
			if one.Else != nil {
				leaves([]ast.Stmt{one.Else}, onlyReturns, visit)
			}
		case *ast.ForStmt:
			leaves(one.Body.List, true, visit)
		case *ast.RangeStmt:
			leaves(one.Body.List, true, visit)
		case *ast.SwitchStmt:
			leavesCases(one.Body, onlyReturns, visit)
		case *ast.TypeSwitchStmt:
			leavesCases(one.Body, onlyReturns, visit)
		case *ast.SelectStmt:
			leavesCases(one.Body, onlyReturns, visit)
		}
	}
}

// leavesCases is the same for the cases of a switch or select, of which a break leaves only the case.
func leavesCases(body *ast.BlockStmt, onlyReturns bool, visit func(ast.Stmt)) {
	for _, one := range body.List {
		var list []ast.Stmt
		switch one := one.(type) {
		case *ast.CaseClause:
			list = one.Body
		case *ast.CommClause:
			list = one.Body
		}
		leaves(list, onlyReturns, func(leave ast.Stmt) {
			if branch, ok := leave.(*ast.BranchStmt); !ok || branch.Tok != token.BREAK && branch.Tok != token.FALLTHROUGH {
				visit(leave)
			}
		})
	}
}

// fails reports whether a call makes the test fail.
func fails(call ast.Expr) bool {
	c, ok := call.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := c.Fun.(*ast.SelectorExpr)
	return ok && (strings.HasPrefix(method.Sel.Name, "Error") || strings.HasPrefix(method.Sel.Name, "Fatal"))
}

// isQuick reports whether a condition asks if the run is a quick one.
func isQuick(condition ast.Expr) (is bool) {
	ast.Inspect(condition, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		is = is || ok && (name.Name == "Quick" || name.Name == "Short")
		return !is
	})
	return is
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
		of := field.Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if sel, ok := of.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "testing" {
				return true
			}
		}
	}
	return false
}
