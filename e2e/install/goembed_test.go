package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// A Go program that carries fini writes it to the cache folder once, and again if it was changed, and runs a command under it.
func TestGoEmbed(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	compiler := need.Program(t, "go")
	k := recipes.NewDir(t, nil)
	k.File("go.mod", rig.ReadFile(t, "../docs/goembed/go.mod"), 0o644)
	recipe, err := filepath.Glob("../docs/goembed/*.go")
	if err != nil || len(recipe) != 1 {
		t.Fatalf("%q, %v", recipe, err)
	}
	// The file is for amd64, and says what to change for another architecture.
	k.File("fini_linux.go", rig.ReadFile(t, recipe[0]), 0o644)
	k.File("fini-linux-amd64", rig.ReadFile(t, rig.Fini), 0o644)
	k.File("host/main.go", `package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"example.com/fini"
)

func main() {
	var all sync.WaitGroup
	for i := 0; i < 20; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			path, err := fini.Path()
			cmd := exec.Command(path, "--linger=0", "-q", "--", "sh", "-c", "setsid sleep 1000 & exit 7")
			if err == nil {
				err = cmd.Run()
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 7 {
				fmt.Println(err)
				os.Exit(1)
			}
		}()
	}
	all.Wait()
	fmt.Println(fini.Path())
}
`, 0o644)
	k.Env = append(k.Env, "GOCACHE="+recipes.GoCache(t), "GOFLAGS=-trimpath", "CGO_ENABLED=0", "XDG_CACHE_HOME="+filepath.Join(k.Dir, "cache"))
	k.MustLeaveNothing(k.Start(compiler, "vet", "./..."), 0)
	k.MustLeaveNothing(k.Start(compiler, "build", "-o", "program", "./host"), 0)
	var last os.FileInfo
	run := func() (path string, same bool) {
		t.Helper()
		path, _, _ = strings.Cut(k.MustLeaveNothing(k.Start(filepath.Join(k.Dir, "program")), 0), " ")
		reports.MustHaveOnly(t, path)
		info, err := os.Stat(path)
		if err != nil || rig.ReadFile(t, path) != rig.ReadFile(t, rig.Fini) {
			t.Fatalf("%q is another file than fini: %v", path, err)
		}
		same = last != nil && os.SameFile(last, info)
		last = info
		return path, same
	}
	path, _ := run() // twenty times at once
	if _, same := run(); !same {
		t.Error("the second program writes it again")
	}
	rig.NoError(t, os.Truncate(path, 1000))
	if _, same := run(); same {
		t.Error("a file that was changed is not replaced")
	}
}
