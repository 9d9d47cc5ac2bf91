package rig

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
	"github.com/seed-126c5d8a/fini/internal/tests/programs"
	"github.com/seed-126c5d8a/fini/internal/tests/surroundings"
	"golang.org/x/sys/unix"
)

// Fini is the binary under test: built for this run, or named with -fini.
var Fini string

// MainOfOthers is Main for a room whose tests wait for what is not fini's, such as npx, an engine or a shell.
func MainOfOthers(m *testing.M) {
	check.WaitForOthers()
	Main(m)
}

// Main runs the tests of a room, or one of the programs that tests start. The folder e2e is the working directory of
// either, so that the path of a file is the same in each room.
func Main(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		programs.Run(os.Args[1], os.Args[2:])
	}
	if err := toE2E(); err != nil {
		fail(err)
	}
	surroundings.Own()
	withoutShims()
	flag.StringVar(&Fini, "fini", "", "test this binary instead of building one")
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		// Most of the tests wait for others to do something, and go test runs as many rooms at a time as there are processors.
		_ = flag.Set("test.parallel", strconv.Itoa(max(8, 2*runtime.NumCPU())))
	}
	dir, err := os.MkdirTemp("", "fini-e2e-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // another uid runs it too
	}
	if err == nil && Fini == "" {
		Fini = filepath.Join(dir, "fini")
		err = build(Fini)
	}
	status := 1
	if err == nil {
		status = m.Run()
	}
	_ = os.RemoveAll(dir)
	if err != nil {
		fail(err)
	}
	if AtEnd != nil {
		AtEnd()
	}
	os.Exit(max(status, tooLarge()))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// AtEnd is called after the tests of a room.
var AtEnd func()

// Locked runs what no two rooms may do at a time: rooms run beside each other.
func Locked(do func() error) error {
	dir, err := os.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// build makes a copy of bin/fini. make test, which has made bin/fini, says so.
func build(to string) error {
	return Locked(func() error {
		if surroundings.Asked("FINI_BUILT") == "" {
			// The Makefile knows the linker's flags.
			if out, err := exec.Command("make", "-s", "-C", "..", "build").CombinedOutput(); err != nil {
				return fmt.Errorf("cannot build fini: %w\n%s", err, out)
			}
		}
		if out, err := exec.Command("install", "-m", "755", "../bin/fini", to).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot copy fini: %w\n%s", err, out)
		}
		return nil
	})
}

// toE2E goes up from the room's folder.
func toE2E() error {
	dir, _ := os.Getwd()
	at := strings.LastIndex(dir+"/", "/e2e/")
	if at < 0 {
		return errors.New("the tests of a room run in its folder, which is below e2e")
	}
	return os.Chdir(dir[:at] + "/e2e")
}

// withoutShims puts the directory of the true python3 first on PATH if it is not there yet. What stands there in its
// place may be a shell script that looks for it (pyenv's), which takes several times as long as what the tests have
// it do.
func withoutShims() {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	dir := filepath.Dir(strings.TrimSpace(string(path)))
	if err == nil && filepath.IsAbs(dir) && !slices.Contains(filepath.SplitList(os.Getenv("PATH")), dir) {
		_ = os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
}

// tooLarge is 1, and says so, if the tests have ever had more memory than a small machine can spare.
func tooLarge() int {
	const most = 500_000 // kB; it is a tenth of that
	kb, _, _ := strings.Cut(procfs.Status(os.Getpid(), "VmHWM"), " ")
	if n, _ := strconv.Atoi(kb); n > most {
		fmt.Printf("the tests themselves had %d kB of memory, want at most %d: what do they keep?\n", n, most)
		return 1
	}
	return 0
}

// Mode is the command line that starts a program of package programs.
func Mode(name string, args ...string) []string {
	return programs.CommandLine(name, args...)
}

// CommandOf is the command of a command line.
func CommandOf(argv []string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }
