package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

func init() { moreHelpers["@agent"] = helperAgent }

// helperAgent is a daemon that is meant to stay: it ignores SIGTERM, has a child of another name,
// says "agent PID" and "child PID" on descriptor 4 and stays. With an argument it takes that
// as its name.
func helperAgent(args []string) int {
	signal.Ignore(syscall.SIGTERM)
	if len(args) > 0 {
		if err := os.WriteFile("/proc/self/comm", []byte(args[0]), 0); err != nil {
			return 1
		}
	}
	unix.CloseOnExec(4)
	child := exec.Command("/bin/sleep", "1000")
	child.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
	if err := child.Start(); err != nil {
		return 1
	}
	to := os.NewFile(4, "ready")
	_, _ = fmt.Fprintf(to, "agent %d\nchild %d\n", os.Getpid(), child.Process.Pid)
	_ = to.Close()
	return forever()
}

// linked is this test binary under another name.
func linked(t testing.TB, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if os.Link(self, path) == nil {
		return path
	}
	binary, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(path, binary, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// agents starts fini with a command that starts an agent, in a session of its own, says what
// that said, and waits for a line. Its script goes on with what is given.
func agents(t testing.TB, p place, agent string, flags []string, script string) (l *life, pids []int) {
	t.Helper()
	l = startCmd(t, agentsCommand(t, p, agent, flags, script))
	pids = []int{l.Out.wantPid("agent "), l.Out.wantPid("child ")}
	if !p.pid1 {
		killAtCleanup(t, pids)
	}
	return l, pids
}

// killAtCleanup kills processes at the end of a test, whatever it has come to.
func killAtCleanup(t testing.TB, pids []int) {
	t.Helper()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			_ = unix.Close(fd)
		})
	}
}

func agentsCommand(t testing.TB, p place, agent string, flags []string, script string) *exec.Cmd {
	t.Helper()
	const start = `mkfifo $DIR/ready; eval "setsid $AGENT 4>$DIR/ready &"; cat $DIR/ready; `
	cmd := p.command(append(flags, "--", "/bin/sh", "-c", start+script)...)
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir(), "AGENT="+agent)
	return cmd
}

// mustStay asserts that these processes live, and that of the tree only they do.
func (l *life) mustStay(pids []int) {
	l.t.Helper()
	for _, pid := range pids {
		if state := procStatus(pid, "State"); state == "" || strings.HasPrefix(state, "Z") {
			l.t.Errorf("%d is gone (%q); stderr: %s", pid, state, l.Err.text())
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	until(l.t, "the end of all: more than those has stayed", func() bool { return hungUp(l.witness) })
}

func TestAllowOrphan(t *testing.T) {
	t.Parallel()
	byFile, byName := linked(t, "gpg-agent")+" @agent", linked(t, "other")+" @agent gpg-agent"
	quiet := " >/dev/null 2>&1 <&1"
	for _, tt := range []struct {
		name   string
		agent  string
		flags  string
		script string
		status int
		says   []string // in order
		not    string
	}{
		// An hour of lingering is not waited for: only the agent is left.
		{"alone", byFile + quiet, "--linger=1h --orphans-exit=9 --allow-orphan=gpg-agent", "read line", 0, nil, "leftover"},
		{"said", byFile + quiet, "-v --linger=1h --allow-orphan=gpg-agent", "read line", 0, []string{"leaving leftover", "leaving leftover"}, "stopping"},
		{"by the kernel's name", byName + quiet, "--linger=1h --allow-orphan=gpg-agent", "read line", 0, nil, "leftover"},
		{"by a pattern", byFile + quiet, "--linger=1h --allow-orphan=no --allow-orphan=g*t", "read line", 0, nil, "leftover"},
		{"holds stdout", byFile + " 2>/dev/null <&1", "--linger=1h --allow-orphan=gpg-agent", "read line", 0,
			[]string{"leaving leftover", "alone, which holds stdout"}, "stopping"},
		{"holds both, and nothing may be said", byFile, "-q --linger=1h --allow-orphan=gpg-agent", "read line", 0, nil, "fini"},
		{"another is stopped", byFile + quiet, "--linger=0 --orphans-exit=9 --allow-orphan=gpg-agent", "setsid sh -c 'echo there; exec sleep 1000' & read line", 9,
			[]string{"stopping leftover"}, "leaving"},
		{"another is killed", byFile + quiet, "--linger=0 --grace=50ms --allow-orphan=gpg-agent",
			`setsid sh -c 'trap "" TERM; echo there; sleep 1000; sleep 1000' & read line`, 0, []string{"killing leftover"}, "leaving"},
		{"wait", byFile + quiet, "--linger=1h --orphans=wait --allow-orphan=gpg-agent", "sleep 0.2 & read line; exit 5", 5, nil, "leftover"},
		{"pipes", byFile, "--linger=0 --orphans=pipes --allow-orphan=gpg-agent", "setsid sh -c 'echo there; exec sleep 1000' & read line; exit 5", 5,
			[]string{"stopping leftover", "leaving leftover"}, "killing"},
		{"at a stop", byFile + quiet, "--timeout=2s --grace=50ms --allow-orphan=gpg-agent", `trap "" TERM; sleep 1000; sleep 1000`, 124,
			[]string{"--timeout=2s is over", "killing the command"}, "leftover"},
	} {
		for _, p := range places {
			t.Run(tt.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				if p.pid1 {
					needPidNamespace(t)
				}
				l, pids := agents(t, p, tt.agent, strings.Fields(tt.flags), tt.script)
				if strings.Contains(tt.script, "echo there") {
					l.Out.want("there")
				}
				write(t, l, "go\n")
				if got := l.status(); got != tt.status {
					t.Errorf("status %d, want %d", got, tt.status)
				}
				if p.pid1 {
					l.mustEnd(tt.status) // the end of PID 1 is that of its namespace
				} else {
					l.mustStay(pids)
				}
				said := l.Err.whole()
				rest := said
				says := tt.says
				if p.pid1 && !strings.Contains(tt.flags, "-v") { // no reader waits for a process that stays
					says = slices.DeleteFunc(slices.Clone(says), func(text string) bool {
						return strings.Contains(text, "leaving") || strings.Contains(text, "holds")
					})
				}
				for _, want := range says {
					var found bool
					if _, rest, found = strings.Cut(rest, want); !found {
						t.Errorf("%q is not said, or not in its place: %q", want, said)
					}
				}
				if strings.Contains(said, tt.not) {
					t.Errorf("says %q", said)
				}
			})
		}
	}
}

// What is meant to stay does so whoever ends: the launcher, or a fini. But the command is stopped
// also if it has that name.
func TestAllowOrphanThoughOthersDie(t *testing.T) {
	t.Parallel()
	agent := linked(t, "gpg-agent") + " @agent >/dev/null 2>&1 <&1"
	for _, victim := range victims[:5] {
		for _, p := range []place{pair, alone} {
			t.Run(victim.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				if p.alone && (strings.Contains(victim.name, "fini") || victim.name == "launcher's group") {
					return // nobody is left to spare anybody
				}
				cmd := agentsCommand(t, p, agent, []string{"--grace=300ms", "--allow-orphan=gpg-agent", "--allow-orphan=sh", "--allow-orphan=dash"},
					`trap "" TERM; (exec sleep 1000) & read line; wait; sleep 1000`)
				launcher := exec.Command("/proc/self/exe", append([]string{"@launcher"}, cmd.Args...)...)
				launcher.Env, launcher.SysProcAttr = cmd.Env, &syscall.SysProcAttr{Setsid: true}
				l := &boundLife{life: startCmd(t, launcher)}
				l.launcher, l.outer = l.pid(), l.Out.launched()
				pids := []int{l.Out.wantPid("agent "), l.Out.wantPid("child ")}
				killAtCleanup(t, pids)
				// Until it executes sleep, the leftover is a shell, as which it may stay.
				worker := l.outer
				if !p.alone {
					worker = l.inner()
				}
				until(t, "the leftover is no shell any more", func() bool {
					return slices.ContainsFunc(childrenOf(t, l.childOf(worker)), func(pid int) bool { return procStatus(pid, "Name") == "sleep" })
				})
				for _, pid := range victim.pids(l) {
					if p.alone && victim.name == "main child" {
						pid = l.childOf(l.outer)
					}
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
						t.Fatal(err)
					}
				}
				until(t, "fini's end", func() bool {
					return syscall.Kill(l.outer, 0) != nil || strings.HasPrefix(procStatus(l.outer, "State"), "Z")
				})
				l.mustStay(pids)
			})
		}
	}
}

// The copy is whole or is not there, and is what was copied.
func TestInstall(t *testing.T) {
	t.Parallel()
	binary, err := os.ReadFile(finiPath)
	if err != nil {
		t.Fatal(err)
	}
	installed := func(t *testing.T, path string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, binary) {
			t.Fatalf("%d bytes, %v; want the %d of fini", len(got), err, len(binary))
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		mustHaveOnly(t, path)
		if status, _, stderr := ask(t, exec.Command(path, "--", "sh", "-c", "exit 7")); status != 7 {
			t.Errorf("the copy: status %d, %q", status, stderr)
		}
	}
	install := func(t *testing.T, umask, path string, says string) {
		t.Helper()
		want := 0
		if says != "" {
			want = 125
		}
		status, stdout, stderr := ask(t, exec.Command("/bin/sh", "-c", "umask "+umask+`; exec "$0" --install="$1"`, finiPath, path))
		if status != want || stdout != "" || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != min(want, 1) {
			t.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
	}
	t.Run("new", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a name")
		install(t, "077", path, "")
		installed(t, path)
	})
	t.Run("over another", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fini")
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		install(t, "0", path, "")
		installed(t, path)
	})
	t.Run("over one that is executed", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fini")
		install(t, "022", path, "")
		l := startCmd(t, exec.Command(path, "--", "sh", "-c", "echo ready; read line"))
		l.Out.want("ready")
		if status, _, stderr := ask(t, exec.Command(path, "--install="+path)); status != 0 {
			t.Errorf("over itself: status %d, %q", status, stderr)
		}
		installed(t, path)
		write(t, l, "go\n")
		l.mustEnd(0)
	})
	t.Run("a link is replaced, and not followed", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "other")
		if err := os.WriteFile(other, []byte("other"), 0o644); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "fini")
		if err := os.Symlink(other, path); err != nil {
			t.Fatal(err)
		}
		install(t, "022", path, "")
		installed(t, path)
		if got := readFile(t, other); got != "other" {
			t.Errorf("what it led to was written: %d bytes", len(got))
		}
	})
	t.Run("refused", func(t *testing.T) {
		dir := t.TempDir()
		fifo := filepath.Join(t.TempDir(), "fifo")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		install(t, "022", dir, "it is a directory; want the name of a file")
		install(t, "022", filepath.Join(dir, "none", "fini"), "no such file or directory")
		install(t, "022", fifo, "it is no regular file")
		install(t, "022", "", "want a PATH")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("something was left: %v, %v", entries, err)
		}
		status, _, stderr := ask(t, exec.Command(finiPath, "--install="+filepath.Join(dir, "x"), "true"))
		if status != 125 || !strings.Contains(stderr, "runs no command") {
			t.Errorf("with a command: status %d, %q", status, stderr)
		}
	})
	t.Run("asked to end meanwhile", func(t *testing.T) {
		dir := t.TempDir()
		status, _, stderr := ask(t, exec.Command(need.Program(t, "strace"), "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync",
			"-e", "inject=fsync:signal=TERM", finiPath, "--install="+filepath.Join(dir, "fini")))
		if entries, err := os.ReadDir(dir); status != 0 || err != nil || len(entries) != 1 {
			t.Errorf("status %d, %v, %v; stderr: %s", status, entries, err, stderr)
		}
	})
	t.Run("no room", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
			need.That(t, false, "the right to mount a file system")
		}
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
		install(t, "022", filepath.Join(dir, "fini"), "no space left on device")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("a half was left: %v, %v", entries, err)
		}
	})
	t.Run("a reader sees one or the other", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fini")
		install(t, "022", path, "")
		l := startCmd(t, exec.Command("/bin/sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do "$0" --install="$1" || exit 1; done; echo done`, finiPath, path))
		for ended := false; !ended; {
			select {
			case <-l.Out.c:
				ended = true
			default:
			}
			got, err := os.ReadFile(path)
			if err != nil || len(got) != len(binary) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
		l.mustEnd(0)
	})
}

// An image that holds nothing but fini brings it to a volume, as any user.
func TestInstallFromScratch(t *testing.T) {
	need.That(t, dockerWorks(), "a running Docker engine, which e2e/dockerd.sh starts")
	busybox := need.Program(t, "busybox")
	need.That(t, isStatic(busybox), "a static busybox (busybox-static)")
	image := buildExample(t, busybox).fini
	for _, user := range []string{"0:0", "65532:65532"} {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		docker(t, "run", "--rm", "--read-only", "--cap-drop=ALL", "--network=none", "--user="+user, "-v", dir+":/shared",
			image, "/fini", "--install=/shared/fini")
		got, err := os.Open(filepath.Join(dir, "fini"))
		if err != nil {
			t.Fatal(err)
		}
		size, _ := io.Copy(io.Discard, got)
		_ = got.Close()
		if info, err := os.Stat(finiPath); err != nil || size != info.Size() {
			t.Errorf("as %s: %d bytes, want %d (%v)", user, size, info.Size(), err)
		}
	}
}
