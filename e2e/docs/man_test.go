package docs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
)

// internal/NOTICES, which is in the binary, has the licenses of what is linked in.
func TestNotices(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	cmd := exec.Command(recipes.Packaging(t), "notices")
	cmd.Dir = ".."
	want, err := cmd.Output()
	rig.NoError(t, err)
	if got := rig.ReadFile(t, "../internal/NOTICES"); got != string(want) {
		t.Error("internal/NOTICES is not what `packaging notices` prints")
	}
}

// What the man page's examples print is what stands there.
func TestManExamples(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, example := range recipes.ManExamples(t) {
		command, want, _ := strings.Cut(example, "\n")
		command, ok := strings.CutPrefix(command, "$ ")
		if !ok {
			if !strings.HasPrefix(example, "COPY ") { // which TestRelease runs
				t.Errorf("an example without a command: %q", example)
			}
			continue
		}
		ran++
		t.Run(fmt.Sprint(ran), func(t *testing.T) {
			t.Parallel()
			mustPrint(t, command, want)
		})
	}
	if ran == 0 {
		t.Error("no example found")
	}
}

// mustPrint runs a command of a page and asserts that it prints what the page says, pids
// aside, and leaves nothing.
func mustPrint(t *testing.T, command, want string) {
	t.Helper()
	k := recipes.NewDir(t, nil)
	// A leftover is named by what it becomes, for which it may need longer than the default.
	k.Env = append(k.Env, "FINI_LINGER=5s")
	// At a terminal it is not a pipe either that both streams go to. The command's status is no matter.
	k.MustLeaveNothing(k.Start("/bin/sh", "-c", "exec >>out 2>&1\n"+command+"\n:"), 0)
	out := []byte(rig.ReadFile(t, filepath.Join(k.Dir, "out")))
	got := regexp.MustCompile(`leftover \d+`).ReplaceAllString(string(rig.Ageless(out)), "leftover 4242")
	// Two processes write, each when it is given the processor.
	if recipes.SortedLines(got) != recipes.SortedLines(want) {
		t.Errorf("%s\nprints %q\nthe page says %q", command, got, want)
	}
}
