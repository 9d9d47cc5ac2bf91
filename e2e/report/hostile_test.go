package report

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
)

// The user whose commands a privileged fini runs here.
const nobodyElse = 12345

// theirs is a directory of that user's.
func theirs(t *testing.T) string {
	t.Helper()
	dir := rig.ShortTempDir(t)
	rig.NoError(t, os.Chown(dir, nobodyElse, nobodyElse))
	return dir
}

// secretFile is a file that only root may read and write, and unchanged asserts that it is as it was.
func secretFile(t *testing.T) (path string, unchanged func()) {
	t.Helper()
	const secret = "nobody else reads or writes this\n"
	path = rig.Put(t, filepath.Join(t.TempDir(), "secret"), secret, 0o600)
	return path, func() {
		t.Helper()
		if rig.ReadFile(t, path) != secret {
			t.Fatal("root's file has changed")
		}
	}
}

// inMounts executes a script of sh, with these arguments, where nobody else sees what it mounts.
func inMounts(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	need.Root(t)
	return exec.Command(need.Program(t, "unshare"), append([]string{"-m", "/bin/sh", "-c", script, "sh"}, args...)...)
}

// An unprivileged command that owns the report's directory can't turn a privileged fini on
// anything by what it puts in the report's place. What was there before is TestReportIsRefused's.
func TestReportAmongLinks(t *testing.T) {
	t.Parallel()
	need.Root(t)
	setpriv := need.Program(t, "setpriv")
	tests := []struct {
		name   string
		script string // of the command, which runs in the directory
		opened string // where what fini had opened is at the end, with the report; "" if it is removed
	}{
		{"link to a file", `mv report opened; ln -s "$SECRET" report`, "dir/opened"},
		{"removed, then a link", `rm report; ln -s "$SECRET" report`, ""},
		{"directory, then a link", `cd .. && mv dir real && ln -s "$ROOTS" dir; mv real/report real/opened`, "real/opened"},
	}
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				secret, unchanged := secretFile(t)
				parent, roots := theirs(t), t.TempDir()
				dir := filepath.Join(parent, "dir")
				rig.NoError(t, errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, nobodyElse, nobodyElse)))
				path := filepath.Join(dir, "report")
				id := strconv.Itoa(nobodyElse)
				cmd := p.Command("--report="+path, "--", setpriv, "--reuid="+id, "--regid="+id, "--clear-groups",
					"sh", "-ec", "cd "+dir+"; "+tt.script+"; exit 5")
				cmd.Env = append(os.Environ(), "SECRET="+secret, "ROOTS="+roots)
				l := rig.StartCmd(t, cmd)
				l.MustEnd(5)
				unchanged()
				if entries, err := os.ReadDir(roots); err != nil || len(entries) > 0 {
					t.Errorf("in root's directory there is %v, %v", entries, err)
				}
				if tt.opened == "" {
					rig.MustRecord(t, "fini says", l.Err.Rest(), fmt.Sprintf("fini: --report: cannot write %q: it was removed meanwhile", path))
					return
				}
				rig.MustRecord(t, "fini says", l.Err.Rest())
				reports.MustBe(t, []byte(rig.ReadFile(t, filepath.Join(parent, tt.opened))))
			})
		}
	})
}

// A link in the folders of its path leads a privileged fini nowhere if another user may have put the link there. It follows
// root's own.
func TestWrittenThroughAnothersLink(t *testing.T) {
	t.Parallel()
	need.Root(t)
	secret, unchanged := secretFile(t)
	dir := theirs(t)
	out := filepath.Join(dir, "out")
	rig.NoError(t, errors.Join(os.Symlink(filepath.Dir(secret), out), os.Lchown(out, nobodyElse, nobodyElse)))
	path := filepath.Join(out, filepath.Base(secret))
	const why = "out is a link that another user may have put there"
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		mustRefuse(t, p.Command("--report="+path, "--", "/bin/echo", "started"), fmt.Sprintf("fini: --report: cannot write %q: %s\n", path, why))
		cmd := p.Command("--linger=0", "--", "/bin/sh", "-c", "setsid sleep 1000 & exit 0")
		cmd.Env = append(os.Environ(), "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY="+path)
		l := rig.StartCmd(t, cmd)
		l.MustEnd(0)
		if said := l.Err.Whole(); !strings.Contains(said, why) {
			t.Errorf("says %q", said)
		}
		if status, _, said := rig.Ask(t, exec.Command(rig.Fini, "--install="+path)); status != 125 || !strings.Contains(said, why) {
			t.Errorf("--install: status %d, says %q", status, said)
		}
		unchanged()
		report := reports.Path(t)
		link := filepath.Join(t.TempDir(), "link")
		rig.NoError(t, os.Symlink(filepath.Dir(report), link))
		rig.StartCmd(t, p.Command("--report="+filepath.Join(link, filepath.Base(report)), "--", "/bin/sh", "-c", "exit 5")).MustEnd(5)
		reports.MustHave(t, report)
	})
}

// What is no place for a report, or can't be written, is bad input: it is refused before the command starts, in one line.
func TestReportIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", socket)
	rig.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	rig.Run(t, "sh", "-ec", `cd "$0"; >name; ln name another; ln -s none link; mkfifo fifo`, dir)
	refuses := func(t *testing.T, cmd *exec.Cmd, path, why string) {
		t.Helper()
		mustRefuse(t, cmd, fmt.Sprintf("fini: --report: cannot write %q: %s\n", path, why))
	}
	echo := []string{"--", "/bin/echo", "started"}
	const want = ": want a regular file, - or /dev/fd/N"
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for path, why := range map[string]string{
			socket:             "it is a socket" + want,
			dir + "/.":         "it is a directory" + want,
			dir + "/another":   "it has 2 names",
			dir + "/link":      "it is a symbolic link" + want,
			dir + "/fifo":      "it is a FIFO" + want,
			"none/report.json": "no such file or directory; mkdir -p none makes the directory",
			"/dev/fd/4":        "bad file descriptor", // Go's runtime and fini have some of their own by then
			"/dev/fd/0":        "bad file descriptor", // which can't be written
		} {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				refuses(t, p.Command(append([]string{"--report=" + path}, echo...)...), path, why)
				cmd := p.Command(echo...)
				cmd.Env = append(os.Environ(), "FINI_REPORT="+path)
				refuses(t, cmd, path, why)
			})
		}
		t.Run("block device", func(t *testing.T) {
			need.Root(t)
			blocks := rig.Put(t, filepath.Join(t.TempDir(), "blocks"), strings.Repeat("\x00", 1<<20), 0o600)
			out, err := exec.Command(need.Program(t, "losetup"), "--find", "--show", blocks).CombinedOutput()
			need.That(t, err == nil, fmt.Sprintf("a loop device (%s)", out))
			device := strings.TrimSpace(string(out))
			defer func() { rig.Run(t, "losetup", "--detach", device) }()
			refuses(t, p.Command(append([]string{"--report=" + device}, echo...)...), device, "it is a block device"+want)
			cmd := p.Command(append([]string{"--report=/dev/fd/4"}, echo...)...)
			cmd.ExtraFiles = []*os.File{rig.Device(t, device)}
			refuses(t, cmd, "/dev/fd/4", "it is a block device"+want)
		})
	})
	const there = ` none . && cd "$PWD" && "$@"`
	for why, script := range map[string]string{
		"read-only file system":   "mount -t tmpfs -o ro" + there,
		"no space left on device": "mount -t tmpfs -o nr_inodes=1" + there, // which access(2) knows nothing of
		"permission denied":       `setpriv --reuid=12345 --clear-groups "$@"`,
	} {
		t.Run(why, func(t *testing.T) {
			cmd := inMounts(t, script, append([]string{rig.Fini, "--report=report"}, echo...)...)
			cmd.Dir = t.TempDir()
			refuses(t, cmd, "report", why)
		})
	}
}

// flipLinks puts in turn a fifo that it reads, a file, and a link to its third argument under the name that is the second,
// until its stdin ends. It says "enough" once it has done so as often as its first argument says.
const flipLinks = `
import os, select, sys
enough, path, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.mkfifo(path + ".fifo", 0o600)
fifo = os.open(path + ".fifo", os.O_RDWR | os.O_NONBLOCK)
print("ready", flush=True)
ways = [lambda new: os.link(path + ".fifo", new), lambda new: open(new, "w").close(), lambda new: os.symlink(target, new)]
flips = 0
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
    flips += 1`

// Somebody who changes what the path names while a privileged fini starts, lives and writes gets
// it to write nothing of root's. On the first version one life in four did.
func TestReportRacesAgainstLinks(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	need.Root(t)
	lives := rig.QuickOrFull(40, 120)
	secret, unchanged := secretFile(t)
	dir := theirs(t)
	path := filepath.Join(dir, "report")
	flip := exec.Command(need.Program(t, "/usr/bin/python3"), "-c", flipLinks, strconv.Itoa(15*lives), path, secret)
	flip.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyElse, Gid: nobodyElse}}
	flipper := rig.StartCmd(t, flip)
	flipper.Out.Want("ready")
	wrote := false // by few lives: what a life has opened is mostly gone by its end
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
		if strings.Count("\n"+said, "\nfini: --report: cannot write ") != strings.Count(said, "\n") {
			t.Errorf("status %d, says %q", status, said)
		}
		unchanged()
	}
	_ = flipper.Stdin.Close()
	flipper.MustHaveStatus(0)
}

// fini keeps neither its working directory nor anything else busy, unless the report goes there.
func TestWorkingDirectoryIsLeft(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			report := reports.Path(t)
			const script = `dir=$PWD; cd /; until umount "$dir" 2>/dev/null; do sleep 0.01; done; exit 5`
			cmd := inMounts(t, `mount -t tmpfs none . && cd "$PWD" && exec "$@"`,
				p.Command("-t", "1m", "--report="+report, "--", "/bin/sh", "-c", script).Args...)
			cmd.Dir = t.TempDir()
			rig.StartCmd(t, cmd).MustEnd(5)
			reports.MustHave(t, report)
		})
	}
}

// A stream that can't be opened again is written without waiting all the same, or the report is refused.
func TestReportToAStreamThatIsNotOpenedAgain(t *testing.T) {
	t.Parallel()
	const hidden = `mount -t tmpfs none /proc; exec "$@"`
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for _, kernel := range []struct {
			name   string
			before []string
		}{{"", nil}, {" of a kernel before 6.4", rig.Mode("refuse", "pwritev2")}} {
			t.Run("pipe "+p.Name+kernel.name, func(t *testing.T) {
				r, w := rig.Pipe(t)
				cmd := inMounts(t, hidden, slices.Concat(kernel.before,
					p.Command("--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5", strings.Repeat("x", 100_000)).Args)...)
				cmd.ExtraFiles = []*os.File{w}
				l := rig.StartCmd(t, cmd)
				_ = w.Close()
				text, err := io.ReadAll(r)
				l.MustEnd(5)
				if said := l.Err.Whole(); strings.Contains(said, "--report") || err != nil {
					t.Fatalf("says %q, %v", said, err)
				}
				reports.MustBe(t, text)
			})
		}
		t.Run("the controlling terminal "+p.Name, func(t *testing.T) {
			mustReportOnTerminal(t, inMounts(t, `mount -t tmpfs none /proc; "$@"; echo "status $?"; read end; exit 0`,
				p.Command("--report=-", "--", "/bin/sh", "-c", "exit 5").Args...))
		})
		t.Run("another terminal "+p.Name, func(t *testing.T) {
			theirs, _ := pty.Open(t)
			cmd := inMounts(t, hidden, p.Command("--report=/dev/fd/4", "--", "/bin/echo", "started").Args...)
			cmd.ExtraFiles = []*os.File{theirs}
			mustRefuse(t, cmd, "fini: --report: cannot write \"/dev/fd/4\": it can't be opened again, to be written without waiting: no such file or directory\n")
		})
	}
}

// Whoever opens the master of a terminal once more gets another terminal, of which nobody knows: fini writes its lines and
// its report to the one that it has inherited.
func TestReportToATerminalsMaster(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		theirs, ours := pty.Open(t)
		defer func() { _ = theirs.Close() }()
		cmd := p.Command("-v", "--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5")
		cmd.Stderr, cmd.ExtraFiles = ours, []*os.File{ours}
		l := rig.StartCmd(t, cmd)
		l.MustEnd(5)
		_, err := ours.WriteString("\nthe end\n")
		rig.NoError(t, err)
		screen := rig.NewLines(t, theirs)
		screen.Want("the end")
		reports.MustBeAmong(t, screen.Text())
		if !strings.Contains(screen.Text(), " exited with status 5\n") {
			t.Errorf("%s says %q", p.Name, screen.Text())
		}
	}
}

// A terminal under `stty tostop` stops who writes in the background: not fini, and not its job.
func TestReportToATerminalInTheBackground(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		t.Run(p.Name, func(t *testing.T) {
			script := `set -m; stty tostop; "$@" & wait $!; status=$?; stty -tostop; echo "status $status"; read end; exit 0`
			mustReportOnTerminal(t, exec.Command("/bin/bash", append([]string{"-c", script, "bash"},
				p.Command("--report=-", "--", "/bin/sh", "-c", "exit 5").Args...)...))
		})
	}
}

// mustReportOnTerminal asserts that a shell's fini writes its report to the terminal, among what the shell says.
func mustReportOnTerminal(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	l, screen, keys := pty.Start(t, cmd)
	screen.Want("status 5")
	reports.MustBeAmong(t, screen.Text())
	_, _ = io.WriteString(keys, "\n")
	l.MustEnd(0)
}

// A file that is there keeps its owner, group and mode, also if the command changes them; a new one gets what the
// umask gives, and what the command makes of it.
func TestReportKeepsWhatIsPrivate(t *testing.T) {
	t.Parallel()
	need.Root(t)
	const group = 54321
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for _, tt := range []struct {
			name     string
			uid, gid int
			mode     os.FileMode // 0 for no file
			umask    string
			script   string // of the command
			want     string
		}{
			{"group", 0, group, 0o640, "022", "", "0 54321 0640"},
			{"more than the umask gives", 0, 0, 0o666, "077", "", "0 0 0666"},
			{"another user's", nobodyElse, group, 0o600, "0", "", "12345 54321 0600"},
			{"new", 0, 0, 0, "027", "", "0 0 0640"},
			{"made private meanwhile", 0, 0, 0o644, "022", `chmod 600 "$0"`, "0 0 0600"},
			{"new, and made private meanwhile", 0, 0, 0, "0", `chmod 600 "$0"`, "0 0 0600"},
		} {
			t.Run(tt.name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				path := reports.Path(t)
				if tt.mode != 0 {
					rig.NoError(t, errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Chown(path, tt.uid, tt.gid), os.Chmod(path, tt.mode)))
				}
				argv := append([]string{"-c", `umask ` + tt.umask + `; exec "$@"`, "sh"},
					p.Command("--report="+path, "--", "/bin/sh", "-c", tt.script+"\nexit 5", path).Args...)
				rig.StartCmd(t, exec.Command("/bin/sh", argv...)).MustEnd(5)
				if got := strings.TrimSpace(rig.Run(t, "stat", "-c", "%u %g %#a", path)); got != tt.want {
					t.Errorf("it has %s, want %s", got, tt.want)
				}
				reports.MustHave(t, path)
			})
		}
	}
}

// An old report is written over, and not emptied before: ext4 then flushes the new one to the disk, which made the start of a
// short command half as slow again.
func TestReportOverAnotherIsNotFlushed(t *testing.T) {
	t.Parallel()
	strace := need.Program(t, "strace")
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		path, trace := reports.Path(t), filepath.Join(t.TempDir(), "trace")
		rig.NoError(t, os.WriteFile(path, []byte(strings.Repeat("a longer report\n", 10_000)), 0o600))
		argv := append([]string{"-f", "-qq", "-o", trace, "-e", "trace=ftruncate"}, p.Command("--report="+path, "--", "/bin/sh", "-c", "exit 5").Args...)
		rig.StartCmd(t, exec.Command(strace, argv...)).MustEnd(5)
		reports.MustHave(t, path)
		if said := rig.ReadFile(t, trace); strings.Count(said, "ftruncate(") != 1 || strings.Contains(said, ", 0)") {
			t.Errorf("%s: %s", p.Name, said)
		}
	}
}
