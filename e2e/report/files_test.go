package report

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/pty"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// shell is a script in a directory of its own, where "$@" is fini in this place. Nobody else sees what a script of root's mounts.
func shell(t *testing.T, p rig.Place, script string) *exec.Cmd {
	t.Helper()
	isRoot, fini := need.IsRoot(), p.Command().Args
	if p.PID1 {
		fini = []string{"unshare", map[bool]string{true: "-pf", false: "-rpf"}[isRoot], "--mount-proc", rig.Fini}
	}
	argv := append([]string{"/bin/bash", "-c", script, "bash"}, fini...)
	if strings.Contains(script, "strace ") {
		need.Program(t, "strace")
	}
	if regexp.MustCompile(`\b(chown|losetup|mount|setpriv) `).MatchString(script) {
		need.Root(t)
	}
	if isRoot {
		argv = append([]string{need.Program(t, "unshare"), "-m"}, argv...)
	}
	cmd := rig.CommandOf(argv)
	cmd.Dir = rig.ShortTempDir(t) // another user may look into its parent
	return cmd
}

// try runs such a script to its end, asserts its status and all that it says, and returns where its report is.
func try(t *testing.T, cmd *exec.Cmd, status int, says string) (report string) {
	t.Helper()
	l := rig.StartCmd(t, cmd)
	l.MustEnd(status)
	if said := l.Out.Whole() + l.Err.Whole(); said != says {
		t.Errorf("says %q, want %q", said, says)
	}
	return filepath.Join(cmd.Dir, "report.json")
}

// cannotWrite is what fini says of a place to which it can't write the report.
func cannotWrite(path, why string) string {
	return fmt.Sprintf("fini: --report: cannot write %q: %s\n", path, why)
}

// Where the report goes, and whose the file is then. One that is there keeps its owner, group and mode, also if the command
// changes them; a new one gets what the umask gives, and what the command makes of it.
func TestReportFile(t *testing.T) {
	t.Parallel()
	const (
		exits5 = `"$@" --report=report.json -- sh -c 'exit 5'`
		old    = `umask 0; >report.json; `
		hidden = `mount -t tmpfs none /proc; mkfifo pipe; cat pipe >report.json & set -- %s "$@"; ` +
			`"$@" --report=/dev/fd/4 -- sh -c 'exit 5' "$(printf %%100000s)" 4>pipe; status=$?; wait; rm pipe; exit $status`
		// A stream by its name in /dev is a descriptor too. Here root has a /dev of its own, for a link that is taken for a
		// file's would be replaced.
		stream = `mount -t tmpfs none /dev && ln -s /proc/self/fd /dev/fd && ln -s fd/1 /dev/stdout && ln -s fd/2 /dev/stderr
			"$@" --report=%s -- sh -c 'exit 5' >report.json 2>&1; status=$?; test -L /dev/stdout && test -L /dev/stderr && exit $status`
	)
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name, script string
			is           string // its owner, group and mode
		}{
			{"relative path", `FINI_REPORT=/none/such "$@" --report=report.json -- sh -c 'cd /; exit 5'`, ""},
			{"FINI_REPORT", `FINI_REPORT=report.json "$@" -q -- sh -c 'cd /; exit 5'`, ""},
			{"empty until the end", `"$@" --report=report.json -- sh -c 'test -f report.json && test ! -s report.json && exit 5'`, ""},
			{"-", fmt.Sprintf(stream, "-"), ""},
			{"dev/stdout", fmt.Sprintf(stream, "/dev/stdout"), ""},
			{"dev/stderr", fmt.Sprintf(stream, "/dev/stderr"), ""},
			{"proc/self/fd/1", fmt.Sprintf(stream, "/proc/self/fd/1"), ""},
			{"descriptor of a file", `"$@" --report=/dev/fd/4 -- sh -c 'exit 5' 4>report.json`, ""},
			// A pipe that can't be opened again is written without waiting all the same, also by a kernel before 6.4.
			{"pipe, without /proc", fmt.Sprintf(hidden, ""), ""},
			{"pipe, without /proc and pwritev2", fmt.Sprintf(hidden, strings.Join(rig.Mode("refuse", "pwritev2"), " ")), ""},
			{"group", old + `chown :54321 report.json; chmod 640 report.json; umask 022; ` + exits5, "0 54321 0640"},
			{"more than the umask gives", old + `umask 077; ` + exits5, "0 0 0666"},
			{"another user's", old + `chown 12345:54321 report.json; chmod 600 report.json; ` + exits5, "12345 54321 0600"},
			{"new", `umask 027; ` + exits5, "0 0 0640"},
			{"made private meanwhile", old + `umask 022; "$@" --report=report.json -- sh -c 'chmod 600 report.json; exit 5'`, "0 0 0600"},
			{"new, and made private meanwhile", `umask 0; "$@" --report=report.json -- sh -c 'chmod 600 report.json; exit 5'`, "0 0 0600"},
			// An old report is written over, and not emptied before: ext4 then flushes the new one to the disk, which made the
			// start of a short command half as slow again.
			{"over a longer one", `"$@" --report=report.json -- true $(seq 10000)
				strace -f -qq -o trace -e trace=ftruncate ` + exits5 + `; status=$?
				test "$(grep -c 'ftruncate(' trace)" = 1 && ! grep ', 0)' trace && rm trace && exit $status`, ""},
			// fini keeps neither its working directory nor anything else busy, unless the report goes there.
			{"not in the working directory", `mkdir busy; mount -t tmpfs none busy; report=$PWD/report.json; cd busy
				exec "$@" -t 1h --report="$report" -- sh -c '
				dir=$PWD; cd /; until umount "$dir" 2>/dev/null; do sleep 0.01; done; rmdir "$dir"; exit 5'`, ""},
		} {
			if p.PID1 && strings.Contains(tt.script, "mount ") {
				continue // as PID 1 it has mounts of its own
			}
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				if tt.is != "" {
					need.Root(t)
				}
				report := try(t, shell(t, p, tt.script), 5, "")
				if got := strings.TrimSpace(rig.Run(t, "stat", "-c", "%u %g %#a", report)); tt.is != "" && got != tt.is {
					t.Errorf("it has %s, want %s", got, tt.is)
				}
				reports.MustHave(t, report)
			})
		}
	})
}

// killsInner kills the inner fini when the outer one knows of the command: only then it relays a signal.
const killsInner = `read -r a b c outer d </proc/$PPID/stat; trap "kill -KILL $PPID" USR1; kill -USR1 $outer; while :; do sleep 1000 & wait; done`

// A file that holds anything but a report is the user's, by a mistake or because the command writes it too: fini leaves it
// as it is.
func TestReportSparesWhatIsNoReport(t *testing.T) {
	t.Parallel()
	const (
		other  = "it holds something other than a report of fini: remove it, or name another file"
		stream = "it is the command's %s: name another file, or /dev/%[1]s to append the report"
		long   = `"$@" --report=out -- echo started`
	)
	stdout, stderr := fmt.Sprintf(stream, "stdout"), fmt.Sprintf(stream, "stderr")
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name, holds, script string
			status              int
			why                 string
		}{
			{"stdout, a new file", "", long + ` >out`, 125, stdout},
			{"stdout, by another name", "", `"$@" --report=../"${PWD##*/}"/out -- echo started >out`, 125, stdout},
			{"stdout, appended", "precious\n", long + ` >>out`, 125, stdout},
			{"stdout, an earlier report", "{\n  \"version\": 2,\n  \"fini\": \"1\"}", long + ` >>out`, 125, stdout},
			{"stderr", "", `exec 3>&2; ` + long + ` 2>out; status=$?; cat out >&3; >out; exit $status`, 125, stderr},
			{"stdin", "precious\n", `"$@" --report=out -- cat <out`, 125, "the command reads it as stdin: name another file"},
			{"FILE forgotten", "#!/bin/sh\n", `chmod +x out; "$@" --report ./out echo started`, 125, other},
			{"JSON", "{\n  \"version\": 2,\n  \"name\": \"a package\"\n}\n", long, 125, other},
			{"XML", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<project/>\n", long, 125, other},
			{"one byte", "{", long, 125, other},
			{"the variable", "precious\n", `FINI_REPORT=out "$@" -- echo started`, 125, other},
			{"written by the command", "mine\n", `>out; "$@" --report=out -- sh -c 'echo mine >out; exit 5'`, 5, other},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				cmd := shell(t, p, tt.script)
				out := filepath.Join(cmd.Dir, "out")
				rig.NoError(t, os.WriteFile(out, []byte(tt.holds), 0o600))
				path := regexp.MustCompile(`(?i:report)[= ](\S+)`).FindStringSubmatch(tt.script)[1]
				path = strings.ReplaceAll(path, `"${PWD##*/}"`, filepath.Base(cmd.Dir))
				try(t, cmd, tt.status, cannotWrite(path, tt.why))
				rig.Equal(t, "the file", string(must(os.ReadFile(out))), tt.holds)
			})
		}
	})
	// The outer fini, which writes the report if the inner one was killed, is as careful.
	t.Run("inner fini killed", func(t *testing.T) {
		cmd := shell(t, rig.Pair, `exec "$@" -q --report=report.json -- sh -c 'echo mine >report.json; `+killsInner+`'`)
		report := try(t, cmd, 137, cannotWrite("report.json", other))
		rig.Equal(t, "the file", string(must(os.ReadFile(report))), "mine\n")
	})
}

// What is no place for a report, or can't be written, is bad input: it is refused before the command starts, in one line.
func TestReportIsRefused(t *testing.T) {
	t.Parallel()
	const (
		want  = ": want a regular file, - or /dev/fd/N"
		block = `mkdir devices; mount -t tmpfs none devices; truncate -s 1M blocks
			loop=$(losetup --find --show blocks) && trap "losetup --detach $loop" EXIT; cp -a $loop devices/loop; `
	)
	rig.InPlaces(t, rig.PID1, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct{ path, before, why string }{
			{"socket", `perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "socket", Listen => 1) or die'`, "it is a socket" + want},
			{"./.", "", "it is a directory" + want},
			{"another", ">name; ln name another", "it has 2 names (hard links)"},
			{"link", "ln -s none link", "it is a symbolic link" + want},
			{"fifo", "mkfifo fifo", "it is a FIFO" + want},
			{"none/report.json", "", "no such file or directory; mkdir -p none makes the directory"},
			{"/dev/fd/4", "", "bad file descriptor"}, // Go's runtime and fini have some of their own by then
			{"/dev/fd/0", "", "bad file descriptor"}, // which can't be written
			{"devices/loop", block, "it is a block device" + want},
			{"/dev/fd/5", block + "exec 5<>devices/loop", "it is a block device" + want},
			{"read-only/report", "mkdir read-only; mount -t tmpfs -o ro none read-only", "read-only file system"},
			// Of which access(2) knows nothing.
			{"full/report", "mkdir full; mount -t tmpfs -o nr_inodes=1 none full", "no space left on device"},
			{"closed/report", `mkdir -m 500 closed; set -- setpriv --bounding-set=-dac_override "$@"`, "permission denied"},
		} {
			t.Run(tt.path, func(t *testing.T) {
				if strings.HasPrefix(tt.before, block) { // one at a time: a machine may have few
					need.That(t, exec.Command(need.Program(t, "losetup"), "--find").Run() == nil, "a loop device")
				} else {
					t.Parallel()
				}
				script := fmt.Sprintf(`%s
					"$@" --report=%[2]s -- echo started; test $? = 125 && FINI_REPORT=%[2]s "$@" -- echo started`, tt.before, tt.path)
				try(t, shell(t, p, script), 125, strings.Repeat(cannotWrite(tt.path, tt.why), 2))
			})
		}
	})
}

// If one of two reports can't be written, the other has the error, and nothing of an earlier run.
func TestReportHasTheErrorOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "report")
	rig.Complete(t, rig.Pair.Command("--report="+path, "--", "true"))
	for _, paths := range [][]string{{path, dir}, {dir, path}} {
		status, stdout, _ := rig.Ask(t, rig.Pair.Command("--report="+paths[0], "--report="+paths[1], "--", "echo", "started"))
		if text := rig.ReadFile(t, path); status != 125 || stdout != "" || !strings.Contains(text, "it is a directory") {
			t.Errorf("%q: status %d, stdout %q, the report %s", paths, status, stdout, text)
		}
	}
}

// A terminal is written without waiting, wherever it is.
func TestReportToATerminal(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for name, script := range map[string]string{
			"the controlling one, without /proc": `mount -t tmpfs none /proc; "$@" --report=- -- sh -c 'exit 5'; echo "status $?"; read end`,
			// Under stty tostop who writes in the background is stopped: not fini, and not its job.
			"in the background": `set -m; stty tostop; "$@" --report=- -- sh -c 'exit 5' & wait $!; status=$?
				stty -tostop; echo "status $status"; read end`,
		} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				l, screen, keys := pty.Start(t, shell(t, p, script))
				screen.Want("status 5")
				reports.MustBeAmong(t, screen.Text())
				_, _ = io.WriteString(keys, "\n")
				l.MustEnd(0)
			})
		}
		t.Run("another one, without /proc/"+p.Name, func(t *testing.T) {
			theirs, _ := pty.Open(t)
			cmd := shell(t, p, `mount -t tmpfs none /proc; "$@" --report=/dev/fd/4 -- echo started`)
			cmd.ExtraFiles = []*os.File{theirs}
			const why = "it can't be opened again, to be written without waiting: no such file or directory"
			try(t, cmd, 125, cannotWrite("/dev/fd/4", why))
		})
		// Whoever opens the master of a terminal once more gets another terminal, of which nobody knows: fini writes its lines
		// and its report to the one that it has inherited.
		t.Run("a master/"+p.Name, func(t *testing.T) {
			theirs, ours := pty.Open(t)
			defer func() { _ = theirs.Close() }()
			cmd := p.Command("-v", "--report=/dev/fd/4", "--", "/bin/sh", "-c", "exit 5")
			cmd.Stderr, cmd.ExtraFiles = ours, []*os.File{ours}
			rig.StartCmd(t, cmd).MustEnd(5)
			_, err := ours.WriteString("\nthe end\n")
			rig.NoError(t, err)
			screen := rig.NewLines(t, theirs)
			screen.Want("the end")
			reports.MustBeAmong(t, screen.Text())
			if !strings.Contains(screen.Text(), " exited with status 5\n") {
				t.Errorf("says %q", screen.Text())
			}
		})
	}
}

// A reader has all of the report, more than a pipe takes at once, and then EOF, though a leftover has inherited the
// descriptor. Who reads too little keeps fini for five seconds. What is too long is cut.
func TestReportDescriptor(t *testing.T) {
	t.Parallel()
	device := func(path string) func(testing.TB) (ours, theirs *os.File) {
		return func(t testing.TB) (_, theirs *os.File) { return nil, rig.Device(t, path) }
	}
	const slow = "nobody read it within 5s"
	rig.InPlaces(t, rig.Alone, func(t *testing.T, p rig.Place) {
		for _, tt := range []struct {
			name string
			open func(t testing.TB) (ours, theirs *os.File) // no ours where nobody reads
			says string
			pace time.Duration // between one page and the next
		}{
			{"/dev/null", device("/dev/null"), "", 0},
			{"/dev/full", device("/dev/full"), "no space left on device", 0},
			{"pipe", rig.Pipe, "", 0},
			{"socket", rig.Socketpair, "", 0},
			// It takes what it can at once.
			{"socket of messages", func(t testing.TB) (ours, theirs *os.File) {
				ends := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))
				ours = os.NewFile(uintptr(ends[0]), "reader")
				t.Cleanup(func() { _ = ours.Close() })
				return ours, os.NewFile(uintptr(ends[1]), "writer")
			}, "", 0},
			{"pipe whose reader is gone", func(t testing.TB) (_, theirs *os.File) {
				ours, theirs := rig.Pipe(t)
				_ = ours.Close()
				return nil, theirs
			}, "broken pipe", 0},
			{"pipe that nobody reads", func(t testing.TB) (_, theirs *os.File) {
				_, theirs = rig.Pipe(t)
				rig.FillPipe(t, theirs)
				return nil, theirs
			}, slow, 0},
			// It has room, and says so, but for less than a page: who writes one waits.
			{"terminal that nobody reads", func(t testing.TB) (_, theirs *os.File) {
				theirs, ours := pty.Open(t)
				rig.FillPipe(t, theirs)
				room := []unix.PollFd{{Fd: int32(theirs.Fd()), Events: unix.POLLOUT}}
				for room[0].Revents&unix.POLLOUT == 0 {
					must(ours.Read(make([]byte, 64)))
					must(unix.Poll(room, 0))
				}
				return nil, theirs
			}, slow, 0},
			// It always takes a little.
			{"slow reader", rig.Pipe, slow, time.Second},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				ours, theirs := tt.open(t)
				long := strings.Repeat("x", 100_000)
				cmd := p.Command("-q", "--linger=0", "--report=/dev/fd/4", "--", "/bin/sh", "-c",
					`setsid sh -c 'sleep 1000 & echo ready; wait' "$@" & read go; exit 5`, long, long, long)
				cmd.ExtraFiles = []*os.File{theirs}
				l := rig.StartCmd(t, cmd)
				_ = theirs.Close()
				read := make(chan []byte, 1)
				if ours != nil {
					go func() { read <- allOf(ours, tt.pace) }()
				}
				l.Out.Want("ready")
				rig.Write(t, l, "go\n")
				l.MustEnd(5)
				said := l.Err.Whole()
				if tt.says != "" && said != cannotWrite("/dev/fd/4", tt.says) || tt.says == "" && said != "" {
					t.Errorf("says %q, want %q", said, tt.says)
				}
				if ours == nil || tt.says != "" {
					return
				}
				r := reports.MustBe(t, <-read)
				if n := len(strings.Join(r.Command, "")); !r.CommandCut || n < 250<<10 || n > 256<<10 {
					t.Errorf("%d bytes of the command, cut is %v", n, r.CommandCut)
				}
				// That shell starts nothing by vfork(2): while it waited for the execve, fini would not read its command line.
				if !slices.ContainsFunc(r.Leftovers, func(l reports.Leftover) bool { return l.CommandCut && len(l.Command) == 4000 }) {
					t.Errorf("%.300v", r.Leftovers)
				}
			})
		}
	})
}

// The inner fini is killed while it writes to a stream: the reader has only that part, and the command's status stands.
func TestReportToAStreamIsCut(t *testing.T) {
	t.Parallel()
	ours, theirs := rig.Pipe(t)
	long := strings.Repeat("x", 100_000) // more than a pipe takes
	cmd := rig.Pair.Command("--report=/dev/fd/4", "--", "/bin/sh", "-c", "echo inner $PPID; read go; exit 5", long, long)
	cmd.ExtraFiles = []*os.File{theirs}
	l := rig.StartCmd(t, cmd)
	_ = theirs.Close()
	inner := l.Out.WantPID("inner ")
	rig.Write(t, l, "go\n")
	begin := make([]byte, 10)
	must(io.ReadFull(ours, begin))
	rig.MustKill(t, inner, syscall.SIGKILL)
	text := string(begin) + string(allOf(ours, 0))
	l.MustEnd(5)
	if n := strings.Count(text, `"version"`); n != 1 {
		t.Errorf("%d reports in %d bytes", n, len(text))
	}
}

// allOf reads to EOF, a page in each of these times.
func allOf(r io.Reader, pace time.Duration) (text []byte) {
	page := make([]byte, 1<<16)
	if pace > 0 {
		page = page[:4096]
	}
	for {
		<-time.After(pace)
		n, err := r.Read(page)
		if text = append(text, page[:max(n, 0)]...); n <= 0 || err != nil {
			return text
		}
	}
}

// The host knows the pid that it got from its spawn, whoever writes the report.
func TestReportNamesFini(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for name, script := range map[string]string{"the command ends": "exit 5", "inner fini killed": killsInner} {
			if p.Alone && name != "the command ends" {
				continue // there is none
			}
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				report := reports.Path(t)
				l := rig.Start(t, p, "-q", "--report="+report, "--", "/bin/sh", "-c", script)
				l.MustEnd(map[string]int{"exit 5": 5}[script] + map[bool]int{true: 137}[script != "exit 5"])
				rig.Equal(t, "finiPid", reports.MustHave(t, report).FiniPid, l.PID())
			})
		}
	}
}
