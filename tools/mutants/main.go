// Command mutants shows that the tests of the machines can fail: it makes one fault after another
// in a copy of a file, and runs what has to notice it.
//
//	go run ./tools/mutants [-check] [-jobs N] [-only TEXT] [-soon]
//	go run ./tools/mutants -draw N [-seed S]
//
// The faults are in faults.txt. Those of package life and of the sleeper in package entry are for the unit tests and
// the quick explorer. The other faults are for the tests that stand before them there, such as a room's, which show that
// whoever runs all tests would notice. A fault that its tests don't notice is an error, and so is an invariant that no
// fault breaks.
//
// With -draw it makes no fault, and prints new ones of the packages around life, which nobody has chosen.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed faults.txt
var list string

// A fault is one line of the list.
type fault struct {
	number          int
	file, old, new  string
	equivalent, why string
	tests           string // packages and -run, if they are not those of the machines
}

// A verdict is who has noticed a fault.
type verdict struct {
	by        []string
	invariant string // that the explorer saw broken
	err       error
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	jobs := flag.Int("jobs", 1, "faults at a time")
	only := flag.String("only", "", "the faults whose line contains this")
	check := flag.Bool("check", false, "try none, and see that the text of each is there and that what replaces it compiles")
	soon := flag.Bool("soon", false, "let the explorer try only what the unit tests don't notice")
	n := flag.Int("draw", 0, "draw so many faults of the packages around life, instead, and print them")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()), "for -draw")
	flag.Parse()
	if *n > 0 {
		return draw(*n, *seed)
	}
	faults, err := parse(*only)
	if err != nil {
		return err
	}
	if *check {
		return compile(faults)
	}
	dir, err := os.MkdirTemp("", "fini-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // other users run what is built
		return err
	}
	for _, none := range soundness(faults) {
		if v := none.try(dir, false); v.err != nil || len(v.by) > 0 {
			return fmt.Errorf("the tests fail without a fault: %q %v %v", none.tests, v.by, v.err)
		}
	}
	verdicts := make([]verdict, len(faults))
	var group sync.WaitGroup
	turn := make(chan int)
	for range *jobs {
		group.Go(func() {
			for i := range turn {
				verdicts[i] = faults[i].try(dir, *soon)
				report(faults[i], verdicts[i])
			}
		})
	}
	for i := range faults {
		turn <- i
	}
	close(turn)
	group.Wait()
	if !sum(faults, verdicts, *only == "" && !*soon) {
		return errors.New("the tests are not good enough")
	}
	return nil
}

var unescape = strings.NewReplacer(`\n`, "\n", `\t`, "\t")

func parse(only string) (faults []fault, err error) {
	var missing []error
	tests := ""
	for i, line := range strings.Split(list, "\n") {
		if rest, ok := strings.CutPrefix(line, "@ "); ok {
			tests = rest
		}
		if line == "" || line[0] == '#' || line[0] == '@' || !strings.Contains(line, only) {
			continue
		}
		f := fault{number: i + 1, tests: tests}
		if rest, ok := strings.CutPrefix(line, "= "); ok {
			line, f.why, ok = strings.Cut(rest, " -- ")
			if f.equivalent = "equivalent"; !ok {
				return nil, fmt.Errorf("line %d: no reason why it is equivalent", i+1)
			}
		}
		file, rest, ok1 := strings.Cut(line, ": ")
		old, changed, ok2 := strings.Cut(rest, " => ")
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("line %d: want FILE: TEXT => OTHER TEXT", i+1)
		}
		f.file, f.old, f.new = file, unescape.Replace(old), unescape.Replace(changed)
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if n := strings.Count(string(text), f.old); n != 1 {
			missing = append(missing, fmt.Errorf("line %d: it occurs %d times in %s: %q", i+1, n, file, f.old))
		}
		faults = append(faults, f)
	}
	return faults, errors.Join(missing...)
}

// compile returns the faults that no compiler takes.
func compile(faults []fault) error {
	var bad []error
	c := newCompiler()
	for _, f := range faults {
		if err := c.compile(f); err != nil {
			bad = append(bad, fmt.Errorf("line %d: %w", f.number, err))
		}
	}
	return errors.Join(bad...)
}

// A compiler checks the types of packages.
type compiler struct {
	fset    *token.FileSet
	imports known
	names   map[string][]string // of the files of a package
}

func newCompiler() compiler {
	fset := token.NewFileSet()
	return compiler{fset, known{importer.ForCompiler(fset, "source", nil), map[string]*types.Package{}}, map[string][]string{}}
}

func (c compiler) compile(f fault) error {
	dir := filepath.Dir(f.file)
	if c.names[dir] == nil {
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			return err
		}
		c.names[dir] = pkg.GoFiles
	}
	var files []*ast.File
	for _, name := range c.names[dir] {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if path == f.file {
			text = []byte(strings.Replace(string(text), f.old, f.new, 1))
		}
		file, err := parser.ParseFile(c.fset, path, text, 0)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: c.imports}).Check(dir, c.fset, files, nil)
	return err
}

// known imports each package once. The source importer asks the go command about every import of every file.
type known struct {
	types.Importer
	packages map[string]*types.Package
}

func (k known) Import(path string) (pkg *types.Package, err error) {
	if pkg = k.packages[path]; pkg == nil {
		pkg, err = k.Importer.Import(path)
		k.packages[path] = pkg
	}
	return pkg, err
}

// soundness is a fault for each kind of tests that changes nothing.
func soundness(faults []fault) (all []fault) {
	for _, f := range faults {
		if !slices.ContainsFunc(all, func(g fault) bool { return g.tests == f.tests }) {
			f.old, f.new = "", ""
			all = append(all, f)
		}
	}
	return all
}

var broken = regexp.MustCompile(`(?m)explore_test\.go:\d+: ([^:\n]+): `)

// try makes the fault and runs the tests, or only until one has noticed it.
func (f fault) try(dir string, soon bool) (v verdict) {
	root, err := os.Getwd()
	if err != nil {
		return verdict{err: err}
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return verdict{err: err}
	}
	own := filepath.Join(dir, fmt.Sprint(f.number))
	overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, f.file): own + ".go"}})
	err = os.WriteFile(own+".go", []byte(strings.Replace(string(text), f.old, f.new, 1)), 0o644)
	if err == nil {
		err = os.WriteFile(own+".json", overlay, 0o644)
	}
	if err != nil {
		return verdict{err: err}
	}
	if f.tests != "" {
		words := strings.Fields(f.tests) // packages, and what runs of them
		last := len(words) - 1
		args := append([]string{"test", "-short", "-count=1", "-timeout=3m", "-overlay", own + ".json", "-run", words[last]}, words[:last]...)
		if strings.HasPrefix(words[0], "./e2e/") {
			command := exec.Command("go", "build", "-overlay", own+".json", "-o", own+".fini",
				"-ldflags=-E github.com/seed-126c5d8a/fini/internal/entry.entry", ".") // as the Makefile does it
			command.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := command.CombinedOutput(); err != nil {
				return verdict{err: fmt.Errorf("%s", out)}
			}
			args = append(args, "-fini", own+".fini")
		}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			v.by = []string{"tests"}
			if strings.Contains(string(out), "[build failed]") {
				v.err = fmt.Errorf("%s", out)
			}
		}
		return v
	}
	command := exec.Command("go", "test", "-c", "-vet=off", "-overlay", own+".json", "-o", own+".test", "./internal/life")
	if out, err := command.CombinedOutput(); err != nil {
		return verdict{err: fmt.Errorf("%s", out)}
	}
	defer func() { _ = os.Remove(own + ".test") }()
	for _, test := range []struct{ name, which string }{
		{"units", "-test.skip=^TestExplore$"},
		{"explorer", "-test.run=^TestExplore$"},
	} {
		// A fault may also never come to an end.
		cmd := exec.Command(own+".test", test.which, "-test.timeout=2m")
		cmd.Dir = "internal/life" // as go test does it
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		v.by = append(v.by, test.name)
		if soon {
			return v
		}
		if found := broken.FindSubmatch(out); found != nil {
			v.invariant = string(found[1])
		}
	}
	return v
}

func report(f fault, v verdict) {
	what := "survived"
	switch {
	case v.err != nil:
		what = fmt.Sprintf("could not be tried: %v", v.err)
	case len(v.by) > 0:
		what = "killed by " + strings.Join(v.by, " and ")
		if v.invariant != "" {
			what += ": " + v.invariant
		}
	case f.equivalent != "":
		what = "equivalent: " + f.why
	}
	fmt.Printf("%4d  %-9s %s\n", f.number, f.file, what)
}

// sum reports whether the tests are good enough: they notice every fault that is not equivalent, and if these are all faults
// and the explorer has tried them, each invariant is broken by one of them.
func sum(faults []fault, verdicts []verdict, whole bool) (good bool) {
	var machines, others, equivalent, survived int
	noticed, seen := map[string]int{}, map[string]int{}
	good = true
	for i, f := range faults {
		v := verdicts[i]
		switch {
		case v.err != nil:
			good = false
			continue
		case f.equivalent != "" && len(v.by) == 0:
			equivalent++
			continue
		case f.equivalent != "":
			fmt.Printf("%4d  is not equivalent\n", f.number)
			good = false
		case len(v.by) == 0:
			fmt.Printf("%4d  survived: %s: %q => %q\n", f.number, f.file, f.old, f.new)
			survived++
		}
		if f.tests != "" {
			others++
			continue
		}
		machines++
		for _, who := range v.by {
			noticed[who]++
		}
		seen[v.invariant]++
	}
	fmt.Printf("\n%d faults of the machines, of which the unit tests notice %d and the explorer %d; %d others; %d equivalent; %d survived\n",
		machines, noticed["units"], noticed["explorer"], others, equivalent, survived)
	if !whole {
		return good && survived == 0
	}
	text, _ := os.ReadFile("internal/life/invariants_test.go")
	_, names, _ := strings.Cut(string(text), "var invariants = ")
	names, _, _ = strings.Cut(names, "\n}")
	for _, found := range regexp.MustCompile(`\n\t\{"([^"]+)"`).FindAllStringSubmatch(names, -1) {
		fmt.Printf("%4d broke %s\n", seen[found[1]], found[1])
		good = good && seen[found[1]] > 0
	}
	return good && survived == 0
}
