package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// packaging/NOTICES, which is in the binary, has the licenses of what is linked in.
func TestNotices(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	cmd := exec.Command("go", "run", "./packaging", "notices")
	cmd.Dir = ".."
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := rig.ReadFile(t, "../packaging/NOTICES"); got != string(want) {
		t.Error("packaging/NOTICES is not what `go run ./packaging notices` prints")
	}
}

// The man page has the flags of --help, with the same names, arguments and defaults.
func TestManOptions(t *testing.T) {
	need.Program(t, "mandoc")
	t.Parallel()
	help := rig.OptionsOf(t, rig.Run(t, rig.Fini, "--help"), regexp.MustCompile(`\(default: ([^()]+)\)$`))
	page := regexp.MustCompile(`.\x08`).ReplaceAllString(rig.Run(t, "mandoc", "-T", "ascii", "-O", "width=90", "../docs/fini.1"), "")
	_, page, _ = strings.Cut(page, "\nOPTIONS\n")
	page, _, _ = strings.Cut(page, "\nENVIRONMENT\n")
	man := rig.OptionsOf(t, page, regexp.MustCompile(`The default is ([^.]+)\.$`))
	if len(help) < 20 {
		t.Fatalf("only %d flags found in --help: %q", len(help), help)
	}
	for i := range max(len(help), len(man)) {
		var here, there rig.Option
		if i < len(help) {
			here = help[i]
		}
		if i < len(man) {
			there = man[i]
		}
		if here != there {
			t.Fatalf("--help has %q and the man page %q", here, there)
		}
	}
}

func TestManLint(t *testing.T) {
	need.Program(t, "mandoc")
	t.Parallel()
	// Below a warning it says which of the manuals that are referred to are not installed.
	if out, err := exec.Command("mandoc", "-T", "lint", "-W", "warning", "../docs/fini.1").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// What the man page's examples print is what stands there.
func TestManExamples(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, example := range rig.ManExamples(t) {
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
	h := rig.NewCgroup(t)
	argv := h.Wrap("/bin/sh", "-c", command+"\n:") // whose status is no matter
	cmd := exec.Command(argv[0], argv[1:]...)
	// A leftover is named by what it becomes, for which it may need longer than the default.
	cmd.Env = append(os.Environ(), "FINI_LINGER=5s", "PATH="+filepath.Dir(rig.Fini)+":"+os.Getenv("PATH"))
	// At a terminal it is not a pipe either that both streams go to.
	name := filepath.Join(t.TempDir(), "out")
	out, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	l := rig.StartCmd(t, cmd)
	l.MustEnd(0)
	got := regexp.MustCompile(`leftover \d+`).ReplaceAllString(string(rig.Ageless([]byte(rig.ReadFile(t, name)))), "leftover 4242")
	// Two processes write, each when it is given the processor.
	if rig.SortedLines(got) != rig.SortedLines(want) {
		t.Errorf("%s\nprints %q\nthe page says %q", command, got, want)
	}
	if left := h.Names(); len(left) > 0 {
		t.Errorf("%s\nleaves %q", command, left)
	}
}
