// Command kernels runs the core of the tests on kernels, on an architecture and in a sandbox that this
// machine does not have, and compares what comes of it with tools/kernels/results.md.
//
//	go run ./tools/kernels [-only COLUMN,...] [-jobs N] [-dir DIR] [-write] [-again]
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
		prefix: "/fini/e2e/signals/signals.test @refuse pidfd_open,pidfd_send_signal,CLONE_PIDFD,clone3,close_range"},
}

// A group of cases is a row: the tests of a package, or those of the names, each of them as ROOM.NAME without "Test" and
// with the parts of it that run, if not all do. What takes a machine long that QEMU makes up is not in it.
type group struct{ name, pkg, tests string }

var groups = []group{
	{"a clean command", "clean", "CleanCommand"},
	{"nothing left", "e2e", "leftovers.NothingIsLeft/(pair|pid1) leftovers.LeftoverMayFinishAfterTerm/pair leftovers.EachLeftoverIsAskedOnce/pair leftovers.Policies/pair"},
	{"EOF", "e2e", "streams.ReaderGetsEOF/pair streams.FiniLetsGoOfStreams/(pair|pid1)"},
	{"statuses", "e2e", "status.EverySignalThatEndsTheCommandArrives/no_terminal/alone status.CommandThatCannotBeRun/pair"},
	{"signals", "e2e", "signals.EverySignalArrivesOnce/(pair|alone|pid1) signals.SignalsReachTheGroup/pair signals.IgnoredSignalsStayIgnored signals.SignalsOfTheRuntimeAreForwarded/(alone|pid1)"},
	{"stdin", "e2e", "streams.WatchedStdinLosesNoByte/pair/slow bond.ClosedStdinStopsTheCommand/pair streams.UnwatchedStdinMayEnd/pair"},
	{"bonds", "e2e", "bond.LauncherDies bond.LauncherEndsAtOnce bond.UnboundOutlivesItsLauncher bond.Timeout/.*/pair"},
	{"kill matrix", "e2e", "kill9.KillMatrix/.*/(running|stopping_leftovers)/(npx|stubborn) kill9.KillMatrixAsPID1 kill9.InnerFiniIsKilled"},
	{"kill matrix without pidfds", "e2e", "kill9.KillMatrixWithoutPidfds/ENOSYS/.*/running"},
	{"outer one asleep", "e2e", "cost.OuterSleeps"},
	{"bind", "e2e", "bond.Bind bond.BindKillMatrix/pair bond.BindToNobody"},
	{"autoreap", "e2e", "leftovers.WaitsForOneThatIsNeverAZombie/(pair|alone|pid1)"},
	{"refused calls", "e2e", "refused.Refused/(pidfd_open|all_of_these)/.*/ENOSYS"},
	{"package orphans", "internal/orphans", ""},
	{"package reaper", "reaper", ""},
	{"package signals", "signals", ""},
}

// patterns are the group's for -test.run, by package.
func (g group) patterns() map[string]string {
	if g.tests == "" {
		return map[string]string{g.pkg: "."}
	}
	tests := map[string]string{}
	for _, test := range strings.Fields(g.tests) {
		pkg, test := g.room(test)
		top, parts, some := strings.Cut(test, "/")
		test = "^Test" + top + "$"
		if some {
			test += "/" + parts
		}
		if tests[pkg] != "" {
			test = tests[pkg] + "|" + test
		}
		tests[pkg] = test
	}
	return tests
}

// room is the package of a test of the group, and its name.
func (g group) room(test string) (pkg, name string) {
	if room, name, ok := strings.Cut(test, "."); ok && g.pkg == "e2e" {
		return "e2e/" + room, name
	}
	return g.pkg, test
}

// has reports whether a test is one of the group.
func (g group) has(pkg, name string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(name, "Test"), "/")
	if g.tests == "" {
		return g.pkg == pkg
	}
	return slices.ContainsFunc(strings.Fields(g.tests), func(test string) bool {
		room, test := g.room(test)
		own, _, _ := strings.Cut(test, "/")
		return room == pkg && own == top
	})
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
	page := flag.String("page", "tools/kernels/results.md", "the page with the table")
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
