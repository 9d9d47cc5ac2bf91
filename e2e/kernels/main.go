// Command kernels runs the core of the tests on kernels, on an architecture and in a sandbox that this
// machine does not have, and compares what comes of it with docs/kernels.md.
//
//	go run ./e2e/kernels [-only COLUMN,...] [-jobs N] [-dir DIR] [-write] [-again]
//
// A guest is a kernel of one of Debian's suites with some of the same suite's packages as its first file
// system, in QEMU without KVM. Neither disk nor module nor network is in it. The suites are found where
// the machine's own packages come from.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

//go:embed init.sh
var initScript string

// A column is a place where the tests run.
type column struct {
	name   string
	suite  string
	arch   string
	run    func(c *column, g *guest, command ...string) *exec.Cmd
	kernel string // the packages' name, if there is one
	prefix string // what runs the tests
}

var columns = []*column{
	{name: "bullseye", suite: "bullseye", arch: "amd64", run: qemu, kernel: "linux-image-cloud-amd64"},
	{name: "bookworm", suite: "bookworm", arch: "amd64", run: qemu, kernel: "linux-image-cloud-amd64"},
	{name: "trixie", suite: "trixie", arch: "amd64", run: qemu, kernel: "linux-image-cloud-amd64"},
	{name: "sid", suite: "sid", arch: "amd64", run: qemu, kernel: "linux-image-cloud-amd64"},
	{name: "sid arm64", suite: "sid", arch: "arm64", run: qemu, kernel: "linux-image-cloud-arm64"},
	{name: "gVisor", suite: "trixie", arch: "amd64", run: runsc},
	{name: "no pidfds", suite: "sid", arch: "amd64", run: qemu, kernel: "linux-image-cloud-amd64",
		prefix: "/fini/e2e/e2e.test @refuse pidfd_open,pidfd_send_signal,CLONE_PIDFD,clone3,close_range"},
}

// A group of cases is a row: the tests of a package, or those of the names, each of them without "Test" and
// with the parts of it that run, if not all do. What takes a machine long that QEMU makes up is not in it.
type group struct{ name, pkg, tests string }

var groups = []group{
	{"a clean command", "clean", "CleanCommand"},
	{"nothing left", "e2e", "NothingIsLeft LeftoverMayFinishAfterTerm EachLeftoverIsAskedOnce Policies"},
	{"EOF", "e2e", "ReaderGetsEOF FiniLetsGoOfStreams"},
	{"statuses", "e2e", "EveryExitStatusArrives/pair EverySignalThatEndsTheCommandArrives/no_terminal/alone CommandThatCannotBeRun/pair"},
	{"signals", "e2e", "EverySignalArrivesOnce SignalsReachTheGroup/pair IgnoredSignalsStayIgnored SignalsOfTheRuntimeAreForwarded/(alone|pid1)"},
	{"stdin", "e2e", "WatchedStdinLosesNoByte/(pair|pid1)/slow ClosedStdinStopsTheCommand/pair UnwatchedStdinMayEnd"},
	{"bonds", "e2e", "LauncherDies LauncherEndsAtOnce UnboundOutlivesItsLauncher Timeout/.*/pair"},
	{"kill matrix", "e2e", "KillMatrix/.*/(running|stopping_leftovers)/(npx|stubborn) KillMatrixAsPID1 InnerFiniIsKilled"},
	{"kill matrix without pidfds", "e2e", "KillMatrixWithoutPidfds/ENOSYS/.*/running"},
	{"outer one asleep", "e2e", "OuterSleeps"},
	{"bind", "e2e", "Bind BindKillMatrix/pair BindToNobody"},
	{"isolation", "e2e", "OneOfAnIsolatedPairKilled IsolatedPolicies IsolationRefused"},
	{"autoreap", "e2e", "WaitsForOneThatIsNeverAZombie"},
	{"refused calls", "e2e", "Refused/(pidfd_open|all_of_these)/.*/ENOSYS"},
	{"package orphans", "orphans", ""},
	{"package reaper", "reaper", ""},
	{"package signals", "signals", ""},
}

// pattern is the group's for -test.run.
func (g group) pattern() string {
	var tests []string
	for _, test := range strings.Fields(g.tests) {
		top, parts, some := strings.Cut(test, "/")
		test = "^Test" + top + "$"
		if some {
			test += "/" + parts
		}
		tests = append(tests, test)
	}
	return strings.Join(tests, "|")
}

// has reports whether a test is one of the group.
func (g group) has(pkg, name string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(name, "Test"), "/")
	return g.pkg == pkg && (g.tests == "" || slices.ContainsFunc(strings.Fields(g.tests), func(test string) bool {
		own, _, _ := strings.Cut(test, "/")
		return own == top
	}))
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("only", "", "the columns of these names, with commas between")
	jobs := flag.Int("jobs", runtime.NumCPU(), "guests at a time")
	dir := flag.String("dir", "bin/kernels", "the folder for what is downloaded and built")
	page := flag.String("page", "docs/kernels.md", "the page with the table")
	write := flag.Bool("write", false, "put the table into the page")
	again := flag.Bool("again", false, "run nothing, and look once more at what the last run has said")
	flag.Parse()
	chosen := columns
	if *only != "" {
		chosen = nil
		for _, name := range strings.Split(*only, ",") {
			i := slices.IndexFunc(columns, func(c *column) bool { return c.name == name })
			if i < 0 {
				return fmt.Errorf("cannot find a column of the name %q", name)
			}
			chosen = append(chosen, columns[i])
		}
	}
	results := make([]*result, len(chosen))
	for i, c := range chosen {
		if *again {
			results[i] = &result{column: c}
			if err := results[i].look(filepath.Join(folder(*dir, c), "console")); err != nil {
				return err
			}
			results[i].report()
			continue
		}
		guest, err := makeGuest(*dir, c)
		if err != nil {
			return fmt.Errorf("cannot make the guest %s: %w", c.name, err)
		}
		results[i] = &result{column: c, guest: guest}
	}
	var wait sync.WaitGroup
	turn := make(chan *result)
	for range *jobs {
		wait.Go(func() {
			for r := range turn {
				r.err = r.watch()
				r.report()
			}
		})
	}
	for _, r := range results {
		if !*again {
			turn <- r
		}
	}
	close(turn)
	wait.Wait()
	return compare(*page, results, *write)
}
