package report

import (
	"bytes"
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
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// The user whose commands a privileged fini runs here.
const nobodyElse = 12345

// theirs is a directory of that user's.
func theirs(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fini-theirs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, nobodyElse, nobodyElse); err != nil {
		t.Fatal(err)
	}
	return dir
}

const secret = "nobody else reads or writes this\n"

// secretFile is a file that only root may read and write, and unchanged reports whether it is as it was.
func secretFile(t testing.TB) (path string, unchanged func() bool) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == secret
	}
}

// blockDevice is a block device without anything on it, and untouched reports whether that is so.
func blockDevice(t testing.TB) (path string, untouched func() bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "blocks")
	zeros := make([]byte, 1<<20)
	if err := os.WriteFile(file, zeros, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(need.Program(t, "losetup"), "--find", "--show", file).CombinedOutput()
	need.That(t, err == nil, fmt.Sprintf("a loop device (%s)", out))
	path = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", path).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return path, func() bool {
		text, err := os.ReadFile(path)
		if err == nil && bytes.Equal(text, zeros) {
			return true
		}
		_ = os.WriteFile(path, zeros, 0) // for the next one to ask
		return false
	}
}

// fifoWithReader makes a fifo and opens it for reading. text reads to EOF.
func fifoWithReader(t testing.TB, path string) (text func() []byte) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { _ = file.Close() })
	return func() []byte {
		t.Helper()
		text, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

// An unprivileged command that owns the report's directory can't turn a privileged fini on
// anything: neither by what it puts in the report's place nor by what was there before.
func TestReportAmongLinks(t *testing.T) {
	t.Parallel()
	need.Root(t)
	setpriv := need.Program(t, "setpriv")
	tests := []struct {
		name   string
		before string // done by root
		script string // of the command, which runs in the directory
		refuse string // why there is no command
		says   string // of fini at the end, none if "": what was opened has the report
	}{
		{"link to a file", "", `mv report opened; ln -s "$SECRET" report`, "", ""},
		{"link to a block device", "", `mv report opened; ln -s "$DEVICE" report`, "", ""},
		{"fifo", "", `mv report opened; mkfifo report`, "", ""},
		{"directory", "", `mv report opened; mkdir report`, "", ""},
		{"file, then a link", `echo old >report; chown 12345 report`, `mv report opened; ln -s "$DEVICE" report`, "", ""},
		{"removed, then a link", "", `rm report; ln -s "$SECRET" report`, "", "it was removed meanwhile"},
		{"directory, then a link", "", `cd .. && mv dir real && ln -s "$ROOTS" dir; mv real/report real/opened`, "", ""},
		{"link to a file from the start", `ln -s "$SECRET" report`, "", "it is a symbolic link: want a regular file, - or /dev/fd/N", ""},
		{"link to a block device from the start", `ln -s "$DEVICE" report`, "", "it is a symbolic link: want a regular file, - or /dev/fd/N", ""},
		{"link to nothing from the start", `ln -s "$ROOTS/report" report`, "", "it is a symbolic link: want a regular file, - or /dev/fd/N", ""},
		{"another name of a file from the start", `ln "$SECRET" report`, "", "it has 2 names", ""},
	}
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		device, untouched := blockDevice(t)
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				secret, unchanged := secretFile(t)
				parent, roots := theirs(t), t.TempDir()
				dir := filepath.Join(parent, "dir")
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				env := append(os.Environ(), "SECRET="+secret, "DEVICE="+device, "ROOTS="+roots)
				path := filepath.Join(dir, "report")
				sh := exec.Command("sh", "-ec", tt.before)
				sh.Dir, sh.Env = dir, env
				if out, err := sh.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if err := os.Chown(dir, nobodyElse, nobodyElse); err != nil {
					t.Fatal(err)
				}
				id := strconv.Itoa(nobodyElse)
				cmd := p.Command("--report="+path, "--", setpriv, "--reuid="+id, "--regid="+id, "--clear-groups",
					"sh", "-ec", "cd "+dir+"; "+tt.script+"; exit 5")
				cmd.Env = env
				l := rig.StartCmd(t, cmd)
				want, says := 5, tt.says
				if tt.refuse != "" {
					want, says = 125, tt.refuse
				}
				l.MustEnd(want)
				if file, blocks := unchanged(), untouched(); !file || !blocks {
					t.Fatalf("root's file is unchanged: %v, the device is untouched: %v", file, blocks)
				}
				if entries, err := os.ReadDir(roots); err != nil || len(entries) > 0 {
					t.Errorf("in root's directory there is %v, %v", entries, err)
				}
				if says != "" {
					says = fmt.Sprintf("fini: --report: cannot write %q: %s\n", path, says)
				}
				if said := l.Err.Whole(); said != says {
					t.Errorf("says %q, want %q", said, says)
				}
				if says == "" {
					if strings.HasPrefix(tt.name, "directory,") {
						dir = filepath.Join(parent, "real")
					}
					rig.MustBeReport(t, []byte(rig.ReadFile(t, filepath.Join(dir, "opened"))))
				}
			})
		}
	})
}

// What is no place for a report is refused before the command starts.
func TestReportIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses := func(t *testing.T, p rig.Place, path, why string, files ...*os.File) {
		t.Helper()
		cmd := p.Command("--report="+path, "--", "/bin/echo", "started")
		cmd.ExtraFiles = files
		mustRefuse(t, cmd, fmt.Sprintf("fini: --report: cannot write %q: %s\n", path, why))
	}
	rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
		const want = ": want a regular file, - or /dev/fd/N"
		t.Run("socket", func(t *testing.T) { refuses(t, p, socket, "it is a socket"+want) })
		t.Run("FIFO", func(t *testing.T) { refuses(t, p, fifo, "it is a FIFO"+want) })
		t.Run("device", func(t *testing.T) { refuses(t, p, "/dev/null", "it is a device"+want) })
		t.Run("terminal", func(t *testing.T) { refuses(t, p, "/dev/tty", "it is a device"+want) })
		t.Run("directory by a dot", func(t *testing.T) { refuses(t, p, dir+"/.", "it is a directory"+want) })
		t.Run("/dev/stdin", func(t *testing.T) { refuses(t, p, "/dev/stdin", "it is a symbolic link"+want) })
		t.Run("block device", func(t *testing.T) {
			need.Root(t)
			device, untouched := blockDevice(t)
			refuses(t, p, device, "it is a block device"+want)
			file, err := os.OpenFile(device, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			refuses(t, p, "/dev/fd/4", "it is a block device"+want, file)
			if !untouched() {
				t.Error("the device was written")
			}
		})
		if p.PID1 {
			return // in the other two places a shell can make a file system first
		}
		for options, why := range map[string]string{
			"ro":          "read-only file system",
			"nr_inodes=1": "no space left on device", // which access(2) knows nothing of
		} {
			t.Run(options, func(t *testing.T) {
				need.Root(t)
				cmd := exec.Command(need.Program(t, "unshare"), append([]string{"-m", "sh", "-c", `mount -t tmpfs -o "$0" none . && cd "$PWD" && "$@"`, options},
					p.Command("--report=report", "--", "/bin/echo", "started").Args...)...)
				cmd.Dir = t.TempDir()
				mustRefuse(t, cmd, "fini: --report: cannot write \"report\": "+why+"\n")
			})
		}
	})
}

// Somebody who changes what the path names while a privileged fini starts, lives and writes gets
// it to write nothing of root's. On the first version one life in four did.
func TestReportRacesAgainstLinks(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	need.Root(t)
	lives := rig.QuickOrFull(40, 120)
	flips := 15 * lives
	secret, unchanged := secretFile(t)
	device, untouched := blockDevice(t)
	dir := theirs(t)
	path := filepath.Join(dir, "report")
	flip := exec.Command("/proc/self/exe", "@flip", path, secret, device)
	flip.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyElse, Gid: nobodyElse}}
	flipper := rig.StartCmd(t, flip)
	flipper.Out.Want("ready")
	wrote := 0 // few: what a life has opened is mostly gone by its end
	for i := range lives {
		p := []rig.Place{rig.Pair, rig.Alone}[i%2]
		l := rig.StartCmd(t, p.Command("--report="+path, "--", "/bin/sh", "-c", "exit 5"))
		status, said := l.Status(), l.Err.Whole()
		if said == "" && status == 5 {
			wrote++
		}
		for line := range strings.Lines(said) {
			if !strings.HasPrefix(line, "fini: --report: cannot write ") {
				t.Errorf("status %d, says %q", status, said)
			}
		}
		if file, blocks := unchanged(), untouched(); !file || !blocks {
			t.Fatalf("after life %d root's file is unchanged: %v, the device is untouched: %v", i, file, blocks)
		}
	}
	_ = flipper.Stdin.Close()
	if n := flipper.Out.WantPID("flips "); n < flips {
		t.Errorf("%d flips, %d reports written: the test shows little", n, wrote)
	}
}

// fini keeps neither its working directory nor anything else busy, unless the report goes there.
func TestWorkingDirectoryIsLeft(t *testing.T) {
	t.Parallel()
	need.Root(t)
	unshare := need.Program(t, "unshare")
	for _, p := range rig.AloneOrPair(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			report := rig.ReportPath(t)
			const script = `dir=$PWD; cd /; until umount "$dir" 2>/dev/null; do sleep 0.01; done; exit 5`
			cmd := exec.Command(unshare, append([]string{"-m", "/bin/sh", "-c", `mount -t tmpfs none . && cd "$PWD" && exec "$@"`, "sh"},
				p.Command("-t", "1m", "--report="+report, "--", "/bin/sh", "-c", script).Args...)...)
			cmd.Dir = t.TempDir()
			rig.StartCmd(t, cmd).MustEnd(5)
			rig.MustHaveReport(t, report)
		})
	}
}

// A stream that can't be opened again is written without waiting all the same, or the report is refused.
func TestReportToAStreamThatIsNotOpenedAgain(t *testing.T) {
	t.Parallel()
	need.Root(t)
	const hidden = `mount -t tmpfs none /proc; exec "$@"`
	without := func(t *testing.T, script string, args ...string) *exec.Cmd {
		return exec.Command(need.Program(t, "unshare"), append([]string{"-m", "/bin/sh", "-c", script, "sh"}, args...)...)
	}
	for _, p := range rig.AloneOrPair(t) {
		for _, kernel := range []struct {
			name   string
			before []string
		}{{"", nil}, {" of a kernel before 6.4", rig.Mode("refuse", "pwritev2")}} {
			t.Run("pipe "+p.Name+kernel.name, func(t *testing.T) {
				r, w := rig.Pipe(t)
				cmd := without(t, hidden, slices.Concat(kernel.before,
					p.Command("--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5", strings.Repeat("x", 100_000)).Args)...)
				cmd.ExtraFiles = []*os.File{w}
				l := rig.StartCmd(t, cmd)
				_ = w.Close()
				text, err := io.ReadAll(r)
				l.MustEnd(5)
				if said := l.Err.Whole(); strings.Contains(said, "--report") || err != nil {
					t.Fatalf("says %q, %v", said, err)
				}
				rig.MustBeReport(t, text)
			})
		}
		t.Run("the controlling terminal "+p.Name, func(t *testing.T) {
			l, screen, keys := rig.OnTerminal(t, without(t, `mount -t tmpfs none /proc; "$@"; echo "status $?"; read end; exit 0`,
				p.Command("--report=-", "--", "/bin/sh", "-c", "exit 5").Args...))
			screen.Want("status 5")
			_, text, _ := strings.Cut(screen.Text(), "{\n")
			text, _, _ = strings.Cut(text, "\n}\n")
			rig.MustBeReport(t, []byte("{\n"+text+"\n}\n"))
			_, _ = io.WriteString(keys, "\n")
			l.MustEnd(0)
		})
		t.Run("another terminal "+p.Name, func(t *testing.T) {
			theirs, _ := rig.Terminal(t)
			cmd := without(t, hidden, p.Command("--report=/dev/fd/4", "--", "/bin/echo", "started").Args...)
			cmd.ExtraFiles = []*os.File{theirs}
			mustRefuse(t, cmd, "fini: --report: cannot write \"/dev/fd/4\": it can't be opened again, to be written without waiting: no such file or directory\n")
		})
	}
}

// A terminal that nobody reads has room, and says so, but for less than a page: who writes one waits.
func TestReportToATerminalThatNobodyReads(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			theirs, ours := rig.Terminal(t)
			rig.FillPipe(t, theirs)
			room := []unix.PollFd{{Fd: int32(theirs.Fd()), Events: unix.POLLOUT}}
			for room[0].Revents&unix.POLLOUT == 0 {
				if _, err := ours.Read(make([]byte, 64)); err != nil {
					t.Fatal(err)
				}
				if _, err := unix.Poll(room, 0); err != nil {
					t.Fatal(err)
				}
			}
			cmd := p.Command("--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5", strings.Repeat("x", 100_000))
			cmd.ExtraFiles = []*os.File{theirs}
			l := rig.StartCmd(t, cmd)
			l.MustEnd(5)
			if said := l.Err.Whole(); said != "fini: --report: cannot write \"/dev/fd/4\": it was not taken within 5s\n" {
				t.Errorf("says %q", said)
			}
		})
	}
}

// A reader that always takes a little does not keep fini for longer than one that takes nothing.
func TestReportToASlowReader(t *testing.T) {
	t.Parallel()
	r, w := rig.Pipe(t)
	cmd := rig.Pair.Command("--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5", strings.Repeat("x", 100_000), strings.Repeat("y", 100_000))
	cmd.ExtraFiles = []*os.File{w}
	l := rig.StartCmd(t, cmd)
	_ = w.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.MustEnd(5)
	}()
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for page := make([]byte, 4096); ; {
		select {
		case <-pace.C:
			if _, err := r.Read(page); err != nil {
				t.Errorf("the slow reader has read all: %v", err)
			}
		case <-ended:
			if said := l.Err.Whole(); said != "fini: --report: cannot write \"/dev/fd/4\": it was not taken within 5s\n" {
				t.Errorf("says %q", said)
			}
			return
		}
	}
}

// So many leftovers, and so much of a command line, are in a report. What is left out is counted; that of signals is
// TestReportIsBounded's, in package report.
func TestReportLeavesOut(t *testing.T) {
	t.Parallel()
	t.Run("leftovers", func(t *testing.T) {
		rig.Long(t) // it takes its time to make so many
		path := rig.ReportPath(t)
		l := rig.Start(t, rig.Pair, "-q", "--linger=0", "--report="+path, "--", "/bin/sh", "-c",
			`i=0; while [ $i -lt 260 ]; do sleep 1000 "$0" 2>/dev/null & i=$((i+1)); done; exit 5`, "1000")
		l.MustEnd(5)
		if r := rig.MustHaveReport(t, path); len(r.Leftovers) != 250 || r.LeftoversOmitted != 10 || r.Reaped != 260 {
			t.Errorf("%d leftovers, %d omitted, %d reaped", len(r.Leftovers), r.LeftoversOmitted, r.Reaped)
		}
	})
	rig.InPlaces(t, func(t *testing.T, p rig.Place) {
		path := rig.ReportPath(t)
		long := strings.Repeat("x", 100_000)
		l := rig.Start(t, p, append([]string{"-q", "--linger=0", "--report=" + path}, rig.Leak("", long, long, long)...)...)
		l.Out.Want("ready")
		rig.Write(t, l, "go\n")
		l.MustEnd(0)
		r := rig.MustHaveReport(t, path)
		if n := len(strings.Join(r.Command, "")); !r.CommandCut || n < 250<<10 || n > 256<<10 {
			t.Errorf("%d bytes of the command, cut is %v", n, r.CommandCut)
		}
		if len(r.Leftovers) != 1 || !r.Leftovers[0].CommandCut || len(r.Leftovers[0].Command) != 4000 {
			t.Errorf("%.300v", r.Leftovers)
		}
	})
}

// A terminal under `stty tostop` stops who writes in the background: not fini, and not its job.
func TestReportToATerminalInTheBackground(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t) {
		t.Run(p.Name, func(t *testing.T) {
			script := `set -m; stty tostop; "$@" & wait $!; status=$?; stty -tostop; echo "status $status"; read end; exit 0`
			l, screen, keys := rig.OnTerminal(t, exec.Command("/bin/bash", append([]string{"-c", script, "bash"},
				p.Command("--report=-", "--", "/bin/sh", "-c", "exit 5").Args...)...))
			screen.Want("status 5")
			text, _, _ := strings.Cut(screen.Text(), "\n}\n") // the shell speaks behind it
			rig.MustBeReport(t, []byte(text+"\n}\n"))
			_, _ = io.WriteString(keys, "\n")
			l.MustEnd(0)
		})
	}
}
