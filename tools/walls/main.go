// Command walls checks what each package of fini imports, and that package life, which decides, calls nothing that could
// read a clock or a file, or make a system call.
//
//	go run ./tools/walls
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	module = "github.com/seed-126c5d8a/fini"
	unix   = "golang.org/x/sys/unix"
	kong   = "github.com/alecthomas/kong"
	rooms  = "e2e/"            // any package there: they test the built binary
	checks = "internal/tests/" // any package there: what the tests of a package may import besides
	any    = "*"
)

// may lists what each package may import, besides the standard library.
var may = map[string][]string{
	"main":             {"internal/cli", "internal/entry", "internal/files", "internal/host", "internal/life", "signals"},
	"internal/cli":     {"internal/life", "signals", kong},
	"internal/entry":   {"internal/calls", "internal/proc", "signals", unix},
	"internal/files":   {"internal/calls", "internal/proc", unix},
	"internal/handler": {"internal/calls", "internal/proc", unix},
	"internal/host":    {"internal/calls", "internal/cgroup", "internal/cli", "internal/entry", "internal/files", "internal/handler", "internal/life", "internal/orphans", "internal/proc", "internal/report", "pdeath", "reaper", "signals", unix},
	"internal/life":    {"internal/orphans", "reaper", "signals"},
	"internal/orphans": {"internal/calls", "internal/proc", unix},
	"internal/calls":   {unix},
	"internal/cgroup":  {"internal/proc", unix},
	"internal/proc":    {"internal/calls", unix},
	"internal/report":  {"internal/calls", "internal/files", "internal/orphans", "internal/proc", "reaper", "signals", unix},
	"orphans":          {"internal/calls", "internal/orphans", "internal/proc", unix},
	"pdeath":           {"internal/calls", "internal/proc", unix},
	"reaper":           {"internal/calls", "internal/proc", unix},
	"signals":          {"internal/calls", "internal/handler", "internal/proc", unix},
}

// testsMay lists what the tests of a package may import on top of that. The tests of every package may import
// internal/tests and make system calls of their own.
var testsMay = map[string][]string{
	"internal/host": {"internal/life"},
	"reaper":        {"signals"},        // an Example of both
	"internal/life": {"internal/entry"}, // the explorer runs the outer fini's decisions, too
}

// calls lists the packages that package life may use, and the functions that it may call in them. Constants, types and
// fields are always allowed, and so are the methods of the standard library's types.
var calls = map[string][]string{
	module + "/internal/orphans": {"Held", "May"}, // methods of Holding
	module + "/reaper":           {"Ended"},       // a method of Exit
	module + "/signals":          {"Name"},

	"cmp":     {any},
	"fmt":     {"Errorf", "Sprint", "Sprintf"},
	"maps":    {any},
	"slices":  {any},
	"strings": {any},
	"syscall": {},
	"time":    {},
}

// A pkg is what go list tells of a package.
type pkg struct {
	ImportPath, Dir                             string
	GoFiles, Imports, TestImports, XTestImports []string
}

func main() {
	found, err := check()
	if err != nil {
		found = append(found, fmt.Sprintf("walls: %v", err))
	}
	for _, f := range found {
		fmt.Fprintln(os.Stderr, f)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

func check() (found []string, err error) {
	pkgs, err := list(".", "./internal/...", "./orphans", "./pdeath", "./reaper", "./signals")
	if err != nil {
		return nil, err
	}
	found = append(imports(pkgs), unknown(pkgs)...)
	for _, p := range pkgs {
		names, _ := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			found = append(found, tooLong(name, string(text))...)
		}
	}
	life := slices.IndexFunc(pkgs, func(p pkg) bool { return p.ImportPath == "internal/life" })
	if life < 0 {
		return found, errors.New("there is no package internal/life")
	}
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, name := range pkgs[life].GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(pkgs[life].Dir, name), nil, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	source, err := sourceImporter(fset)
	if err != nil {
		return nil, err
	}
	impure, err := outside(source, fset, files)
	return append(found, impure...), err
}

// columns is how long a line may be. A tab counts as one.
const columns = 120

var isTagged = regexp.MustCompile("`\\w+:\"")

// tooLong returns a line for each line of a file that is too long, unless it has the tags of a struct, or the file is a
// test's.
func tooLong(name, text string) (found []string) {
	if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/internal/tests/") {
		return nil
	}
	for i, line := range strings.Split(text, "\n") {
		if utf8.RuneCountInString(line) > columns && !isTagged.MatchString(line) {
			found = append(found, fmt.Sprintf("%s:%d: longer than %d columns", name, i+1, columns))
		}
	}
	return found
}

// list asks go list, and shortens the names of the packages to their folders; the module's own is main.
func list(patterns ...string) (all []pkg, err error) {
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	short := func(path string) string {
		if path == module {
			return "main"
		}
		return strings.TrimPrefix(path, module+"/")
	}
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := in.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		p.ImportPath = short(p.ImportPath)
		for _, names := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for i := range names {
				names[i] = short(names[i])
			}
		}
		all = append(all, p)
	}
}

// imports returns a line for each import that is not allowed.
func imports(pkgs []pkg) (found []string) {
	for _, p := range pkgs {
		if strings.HasPrefix(p.ImportPath, checks) {
			found = append(found, ofRooms(p)...)
			continue
		}
		allowed, known := may[p.ImportPath]
		if !known {
			found = append(found, "walls does not list the package "+p.ImportPath)
			continue
		}
		for _, name := range p.Imports {
			if guarded(name) && !slices.Contains(allowed, name) {
				found = append(found, p.ImportPath+" must not import "+name)
			}
		}
		allowed = slices.Concat(allowed, testsMay[p.ImportPath], []string{unix})
		for _, name := range slices.Concat(p.TestImports, p.XTestImports) {
			if guarded(name) && name != p.ImportPath && !strings.HasPrefix(name, checks) && !slices.Contains(allowed, name) {
				found = append(found, "the tests of "+p.ImportPath+" must not import "+name)
			}
		}
	}
	return found
}

// ofRooms returns a line for each room that a package of the unit tests' own imports.
func ofRooms(p pkg) (found []string) {
	for _, name := range p.Imports {
		if strings.HasPrefix(name, rooms) {
			found = append(found, p.ImportPath+" must not import "+name)
		}
	}
	return found
}

// guarded reports whether a package is one of ours, or of another module: the standard library's have no dot in their
// first element.
func guarded(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	_, ours := may[name]
	return ours || strings.Contains(first, ".") || first == "internal" || strings.HasPrefix(name, rooms) || first == "tools"
}

// unknown returns a line for each package of the list that does not exist.
func unknown(pkgs []pkg) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(may)) {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return p.ImportPath == name }) {
			found = append(found, "walls lists "+name+", and there is no such package")
		}
	}
	return found
}

// sourceImporter returns an importer that reads the source of a package. It finds the standard library by the go command,
// because a program that was built with -trimpath doesn't know where it is.
func sourceImporter(fset *token.FileSet) (types.Importer, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	build.Default.GOROOT = strings.TrimSpace(string(root))
	return importer.ForCompiler(fset, "source", nil), err
}

// outside returns a line for each use of another package in package life that calls does not allow.
func outside(source types.Importer, fset *token.FileSet, files []*ast.File) (found []string, err error) {
	uses := map[*ast.Ident]types.Object{}
	if _, err := (&types.Config{Importer: source}).Check("internal/life", fset, files, &types.Info{Uses: uses}); err != nil {
		return nil, err
	}
	for _, file := range files {
		for _, spec := range file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if _, ok := calls[path]; !ok {
				found = append(found, fmt.Sprintf("%s: life must not import %s", fset.Position(spec.Pos()), path))
			}
		}
	}
	for ident, object := range uses {
		if object.Pkg() == nil {
			continue
		}
		allowed, listed := calls[object.Pkg().Path()]
		if !listed || slices.Contains(allowed, any) || slices.Contains(allowed, object.Name()) || isFact(object) {
			continue
		}
		found = append(found, fmt.Sprintf("%s: life must not use %s.%s", fset.Position(ident.Pos()), object.Pkg().Name(), object.Name()))
	}
	slices.Sort(found)
	return found, nil
}

// isFact reports whether an object is a constant, a type, a field, or a method of one of the standard library's types.
func isFact(object types.Object) bool {
	switch o := object.(type) {
	case *types.Const, *types.TypeName, *types.PkgName:
		return true
	case *types.Var:
		return o.IsField()
	case *types.Func:
		return o.Signature().Recv() != nil && !strings.HasPrefix(o.Pkg().Path(), module)
	}
	return false
}
