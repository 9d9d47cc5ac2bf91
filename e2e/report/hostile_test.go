package report

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// An unprivileged command that owns the report's directory can't turn a privileged fini on
// anything by what it puts in the report's place. What was there before is TestReportIsRefused's.
func TestReportAmongLinks(t *testing.T) {
	t.Parallel()
	const script = `chmod 755 .; mkdir -p roots theirs/dir; echo root >secret; chmod 600 secret; chown -R 12345 theirs
		"$@" --report="$PWD/theirs/dir/report" -- setpriv --reuid=12345 --regid=12345 --clear-groups sh -ec '
			cd theirs/dir; %s; exit 5'; status=$?
		test "$(cat secret)" = root && test -z "$(ls roots)" && exit $status`
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name   string
			change string // by the command
			opened string // where what fini had opened is at the end, with the report; "" if it is removed
		}{
			{"link to a file", "mv report opened; ln -s ../../secret report", "dir/opened"},
			{"removed, then a link", "rm report; ln -s ../../secret report", ""},
			{"directory, then a link", "cd ..; mv dir real; ln -s ../roots dir; mv real/report real/opened", "real/opened"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				cmd := shell(t, p, fmt.Sprintf(script, tt.change))
				if tt.opened == "" {
					try(t, cmd, 5, cannotWrite(cmd.Dir+"/theirs/dir/report", "it was removed meanwhile"))
					return
				}
				try(t, cmd, 5, "")
				reports.MustBe(t, []byte(rig.ReadFile(t, filepath.Join(cmd.Dir, "theirs", tt.opened))))
			})
		}
	})
}

// A link in the folders of its path leads a privileged fini nowhere if another user may have put the link there. It follows
// root's own.
func TestWrittenThroughAnothersLink(t *testing.T) {
	t.Parallel()
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		cmd := shell(t, p, `
			mkdir roots theirs; echo root >roots/secret; ln -s ../roots theirs/out; chown -hR 12345 theirs
			"$@" --report=theirs/out/secret -- echo started; test $? = 125 || exit
			GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=$PWD/theirs/out/secret "$@" --linger=0 -- sh -c 'setsid sleep 1000 & exit 0' || exit
			"$@" --install=theirs/out/secret; test $? = 125 || exit
			ln -s . own; "$@" --report=own/report.json -- sh -c 'exit 5'; status=$?
			test "$(cat roots/secret)" = root && rm -r roots theirs own && exit $status`)
		l := rig.StartCmd(t, cmd)
		l.MustEnd(5)
		const why = "out is a link that another user may have put there"
		out, said := l.Out.Whole(), l.Err.Whole()
		if out != "" || !strings.HasPrefix(said, cannotWrite("theirs/out/secret", why)) || strings.Count(said, why) != 3 {
			t.Errorf("stdout %q, says %q", out, said)
		}
		reports.MustHave(t, filepath.Join(cmd.Dir, "report.json"))
	})
}

// flipLinks puts in turn a fifo that it reads, a file, and a link to its third argument under the name that is the second,
// until its stdin ends. It says "enough" once it has done so as often as its first argument says. Between bursts it rests for
// as long as a life lasts on an idle machine, or on a busy one, so that some lives find at their end what they have opened.
const flipLinks = `
import os, random, select, sys, time
enough, path, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.mkfifo(path + ".fifo", 0o600)
fifo = os.open(path + ".fifo", os.O_RDWR | os.O_NONBLOCK)
print("ready", flush=True)
ways = [lambda new: os.link(path + ".fifo", new), lambda new: open(new, "w").close(), lambda new: os.symlink(target, new)]
flips = rest = 0
while True:
    readable, _, _ = select.select([0, fifo], [], [], 0)
    if 0 in readable:
        break
    if fifo in readable:
        os.read(fifo, 1 << 20)
    if flips == enough:
        print("enough", flush=True)
    ways[flips % 3](path + ".next")
    os.rename(path + ".next", path)
    flips += 1
    if flips > rest:
        time.sleep(0.001 * 2 ** random.uniform(0, 9))
        rest = flips + 2 ** random.uniform(4, 12)`

// Somebody who changes what the path names while a privileged fini starts, lives and writes gets
// it to write nothing of root's. On the first version one life in four did.
func TestReportRacesAgainstLinks(t *testing.T) {
	t.Parallel()
	need.Root(t)
	lives := rig.QuickOrFull(120, 360)
	const text, nobodyElse = "", 12345 // fini would refuse to replace any other text
	secret := rig.Put(t, filepath.Join(t.TempDir(), "secret"), text, 0o600)
	dir := rig.ShortTempDir(t)
	rig.NoError(t, os.Chown(dir, nobodyElse, nobodyElse))
	path := filepath.Join(dir, "report")
	flip := exec.Command(need.Program(t, "/usr/bin/python3"), "-c", flipLinks, strconv.Itoa(1000*lives), path, secret)
	flip.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyElse, Gid: nobodyElse}}
	flipper := rig.StartCmd(t, flip)
	flipper.Out.Want("ready")
	wrote := false
	enough := func() bool {
		return wrote && strings.Contains(flipper.Out.Text(), "enough\n") || flipper.Err.Text() != "" // it has failed
	}
	for i := range rig.Rounds(t, lives, "a report was written, and the links were changed often enough", enough) {
		p := []rig.Place{rig.Pair, rig.Alone}[i%2]
		l := rig.StartCmd(t, p.Command("--report="+path, "--", "/bin/sh", "-c", "exit 5"))
		status, said := l.Status(), l.Err.Whole()
		if said == "" && status == 5 {
			wrote = true
		}
		if strings.Count("\n"+said, "\nfini: --report: cannot write ") != strings.Count(said, "\n") || rig.ReadFile(t, secret) != text {
			t.Fatalf("status %d, says %q; root's file has %q", status, said, rig.ReadFile(t, secret))
		}
	}
	_ = flipper.Stdin.Close()
	flipper.MustHaveStatus(0)
}
