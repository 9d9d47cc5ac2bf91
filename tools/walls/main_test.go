package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	for _, c := range []struct {
		name string
		pkg  pkg
		want string // "" if it is allowed
	}{
		{"allowed", pkg{ImportPath: "internal/host", Imports: []string{"os", "internal/life", unix}}, ""},
		{"host in life", pkg{ImportPath: "internal/life", Imports: []string{"internal/host"}}, "internal/life must not import internal/host"},
		{"entry in life", pkg{ImportPath: "internal/life", Imports: []string{"internal/entry"}}, "internal/life must not import internal/entry"},
		{"entry in life's tests", pkg{ImportPath: "internal/life", TestImports: []string{"internal/entry"}}, ""},
		{"unix in life", pkg{ImportPath: "internal/life", Imports: []string{unix}}, "internal/life must not import " + unix},
		{"host in the tests of orphans", pkg{ImportPath: "internal/orphans", XTestImports: []string{"internal/host"}}, "the tests of internal/orphans must not import internal/host"},
		{"itself in its tests", pkg{ImportPath: "internal/orphans", XTestImports: []string{"internal/orphans", "internal/tests/self"}}, ""},
		{"a room in its tests", pkg{ImportPath: "internal/orphans", TestImports: []string{"e2e/rig"}}, "the tests of internal/orphans must not import e2e/rig"},
		{"a room in what they share", pkg{ImportPath: "internal/tests/check", Imports: []string{"e2e/rig"}}, "internal/tests/check must not import e2e/rig"},
		{"the rig in the product", pkg{ImportPath: "reaper", Imports: []string{"e2e/rig"}}, "reaper must not import e2e/rig"},
		{"another module", pkg{ImportPath: "reaper", Imports: []string{"example.com/m"}}, "reaper must not import example.com/m"},
		{"kong in main", pkg{ImportPath: "main", Imports: []string{kong}}, "main must not import " + kong},
		{"a new package", pkg{ImportPath: "internal/new"}, "walls does not list the package internal/new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(imports([]pkg{c.pkg}), "\n"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestMissingPackage(t *testing.T) {
	all := []pkg{}
	for name := range may {
		if name != "pdeath" {
			all = append(all, pkg{ImportPath: name})
		}
	}
	if got := strings.Join(unknown(all), "\n"); got != "walls lists pdeath, and there is no such package" {
		t.Errorf("got %q", got)
	}
}

func TestLifeIsPure(t *testing.T) {
	t.Chdir("../..") // for the packages of this module
	fset := token.NewFileSet()
	source, err := sourceImporter(fset)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, imports, body, want string }{
		{"constants, types and methods", "syscall;time", "var s syscall.WaitStatus; _ = s.Exited() && time.Second.Minutes() > 0; _ = syscall.SIGTERM", ""},
		{"Sprintf", "fmt", `_ = fmt.Sprintf("x")`, ""},
		{"a system call", "syscall", "_ = syscall.Kill(1, 0)", "life must not use syscall.Kill"},
		{"the function as a value", "syscall", "_ = syscall.Kill", "life must not use syscall.Kill"},
		{"a variable", "syscall", "_ = syscall.Stdin", "life must not use syscall.Stdin"},
		{"the clock", "time", "_ = time.Now()", "life must not use time.Now"},
		{"a timer", "time", "_ = time.After(1)", "life must not use time.After"},
		{"standard output", "fmt", `fmt.Println("x")`, "life must not use fmt.Println"},
		{"a file", "os", `_, _ = os.ReadFile("x")`, "life must not import os"},
		{"another name for a package", `k "syscall"`, "_ = k.Kill(1, 0)", "life must not use syscall.Kill"},
		{"our own facts", module + "/internal/orphans", "var p orphans.Process; _ = p.Pid", ""},
		{"our own calls", module + "/internal/orphans", "_ = orphans.New()", "life must not use orphans.New"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "package life\n"
			for _, name := range strings.Split(c.imports, ";") {
				if !strings.Contains(name, `"`) {
					name = `"` + name + `"`
				}
				text += "import " + name + "\n"
			}
			file, err := parser.ParseFile(fset, "life.go", text+"func f() {\n"+c.body+"\n}\n", 0)
			if err != nil {
				t.Fatal(err)
			}
			found, err := outside(source, fset, []*ast.File{file})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" && len(found) > 0 || c.want != "" && (len(found) == 0 || !strings.Contains(found[0], c.want)) {
				t.Errorf("got %q, want %q", found, c.want)
			}
		})
	}
}

func TestTooLong(t *testing.T) {
	long := strings.Repeat("ä", columns+1)
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"a.go", long[2:] + "\n" + long + "\n\t" + long, 2},
		{"a_test.go", long, 0},
		{"a.go", long + " `common:\"\" short:\"t\"`", 0},
	} {
		if got := tooLong(c.name, c.text); len(got) != c.want {
			t.Errorf("in %q it finds %q, want %d", c.text, got, c.want)
		}
	}
}
