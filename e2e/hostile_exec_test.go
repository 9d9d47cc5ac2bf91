package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that executes a program closes what is marked close-on-exec, and waits there for a file
// server that leaves that unanswered. Whoever reads its stat on a new kernel waits with it, for no signal
// but SIGKILL. fini does not, and those beside it are asked and get their grace.

func init() {
	moreHelpers["@in-exec"] = helperInExec
	moreHelpers["@executes"] = helperExecutes
}

// ways are all that ends a command, or a fini.
var stuckWays = []struct {
	name  string
	flag  string
	end   func(l *stuckLife)
	not   []place // where there is no such way
	code  int
	count int  // of those that are stuck; 0 is one
	slow  bool // fini waits twice: only CI does
}{
	{name: "the command ends", flag: "--linger=0", end: func(l *stuckLife) { write(l.life.t, l.life, "end\n") }, code: 5},
	{name: "lingering", flag: "--linger=100ms", end: func(l *stuckLife) { write(l.life.t, l.life, "end\n") }, code: 5},
	{name: "four are stuck", flag: "--linger=0", end: func(l *stuckLife) { write(l.life.t, l.life, "end\n") }, code: 5, count: 4},
	{name: "TERM", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.outer, syscall.SIGTERM) }, code: 128 + 15},
	{name: "timeout", end: func(*stuckLife) {}, code: 124, slow: true},
	{name: "the launcher dies", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.pid(), syscall.SIGKILL) }, not: []place{pid1}, code: 128 + 9},
	{name: "the inner one is killed", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.worker, syscall.SIGKILL) }, not: []place{pid1, alone, isolated}, code: 128 + 9},
	{name: "the outer one is killed", flag: "--linger=0", end: func(l *stuckLife) { l.kill(l.outer, syscall.SIGKILL) }, not: []place{pid1, alone, isolated}, code: 128 + 9},
	{name: "the main child is stuck", flag: "--kill-after=1s", end: func(l *stuckLife) { l.kill(l.outer, syscall.SIGTERM) }, code: 128 + 9, slow: true},
}

// A stuckLife is a fini and its command, of which some are stuck.
type stuckLife struct {
	*life
	*deadEnd
	outer, worker int
}

func (l *stuckLife) kill(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }

func TestStuckInExec(t *testing.T) {
	serial(t, "who else reads /proc/*/stat waits too")
	for i, way := range stuckWays {
		if way.slow && !asInCI() {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			where := slices.DeleteFunc(slices.Clone(places), func(p place) bool { return slices.Contains(way.not, p) })
			inPlaces(t, func(t *testing.T, p place) {
				if slices.Contains(way.not, p) || !asInCI() && p != where[i%len(where)] {
					return // fini waits 10 s for each
				}
				t.Parallel()
				l := startStuck(t, p, way.name, way.flag, max(way.count, 1))
				defer l.abort()
				way.end(l)
				l.cleaned(t)
				l.Err.want("fini: gave up on leftovers ")
				if p.pid1 || p.isolated {
					l.abort() // for a PID namespace the kernel waits until all in it have ended
				}
				if got := l.status(); got != way.code {
					t.Errorf("status %d, want %d; stderr: %s", got, way.code, l.Err.text())
				}
				until(t, "the end of fini", func() bool {
					state := procStatus(l.outer, "State") + procStatus(l.worker, "State")
					return strings.Trim(state, "Z (zombie)") == ""
				})
				l.abort()
				until(t, "the end of all", func() bool { return hungUp(l.witness) })
			})
		})
	}
}

// cleaned waits until those that are not stuck have been asked and have done their clean-up.
func (l *stuckLife) cleaned(t *testing.T) {
	t.Helper()
	want := []string{"below asked", "below done", "beside asked", "beside done"}
	var got []string
	for len(got) < len(want) {
		line, ok := l.Out.next()
		if !ok {
			t.Fatalf("EOF after %q; stderr: %s", got, l.Err.text())
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("those that are not stuck say %q, want %q", got, want)
	}
}

// startStuck returns when all are stuck that are to be.
func startStuck(t *testing.T, p place, way, flag string, count int) *stuckLife {
	t.Helper()
	// The shell keeps nothing that the tree has, but for the streams.
	const launcher = `exec 5<&0; "$0" "$@" <&5 5<&- & exec 3>&- 4>&- 5<&-; echo fini $!; wait`
	for timeout := 4 * time.Second; ; timeout *= 4 {
		e := newDeadEnd(t, "execve")
		e.command = mode("in-exec", t.TempDir(), way, fmt.Sprint(count))
		if way == "timeout" {
			flag = "--timeout=" + timeout.String()
		}
		fini := p.command(append([]string{"--grace=2s", flag, "--"}, e.command...)...)
		launched := way == "the launcher dies"
		if launched {
			fini = exec.Command("/bin/sh", append([]string{"-c", launcher}, fini.Args...)...)
		}
		l := &stuckLife{life: e.start(fini), deadEnd: e}
		l.outer = l.pid()
		if launched {
			l.outer = l.Out.launched()
		}
		flushes := 0
		for flushes < count && e.flushed.Scan() {
			flushes++
		}
		for range 2 {
			l.Out.want("ready")
		}
		l.worker = l.outer
		if !p.alone && !p.pid1 {
			l.worker = childrenOf(t, l.outer)[0]
		}
		if way != "timeout" || !strings.Contains(l.Err.text(), "--timeout") || timeout > patience {
			return l
		}
		e.abort()
		_ = l.status()
	}
}

// A child from before, which is stuck, is none of the command's, and holds up neither start nor end.
func TestChildFromBeforeIsStuckInExec(t *testing.T) {
	serial(t, "who else reads /proc/*/stat waits too")
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			e := newDeadEnd(t, "execve")
			stuck := mode("in-exec", t.TempDir(), "earlier", "1")
			args := slices.Concat([]string{"-c", `"$1" "$2" "$3" "$4" "$5" & echo earlier $!; read go; shift 5; exec "$@" 4>&-`, "sh"}, stuck,
				p.command("--linger=0", "--", "/bin/sh", "-c", `setsid sh -c 'trap "echo asked; exit" TERM; echo ready; while :; do sleep 0.1; done' & read end; exit 3`).Args)
			l := e.start(exec.Command("/bin/sh", args...))
			earlier := l.Out.wantPid("earlier ")
			if !e.flushed.Scan() {
				t.Fatalf("nobody is stuck; stderr: %s", l.Err.text())
			}
			write(t, l, "go\n")
			l.Out.want("ready")
			write(t, l, "end\n")
			l.Out.want("asked")
			if got := l.status(); got != 3 {
				t.Errorf("status %d, want 3; stderr: %s", got, l.Err.text())
			}
			if text := l.Err.text(); strings.Contains(text, "in-exec") || strings.Contains(text, "gave up") {
				t.Errorf("it says %q", text)
			}
			if state := procStatus(l.pid(), "State"); state != "" {
				t.Errorf("fini is %q", state)
			}
			if hungUp(l.witness) {
				t.Error("the child from before has ended")
			}
			_ = syscall.Kill(earlier, syscall.SIGKILL)
			e.abort()
			until(t, "the end of all", func() bool { return hungUp(l.witness) })
		})
	}
}

// healthy is a process that needs a while for its clean-up.
func healthy(name string) *exec.Cmd {
	// What it waits for ends with it: it is its own child.
	const script = `trap 'echo "$0 asked"; sleep 0.3; echo "$0 done"; exit' TERM; echo ready; while :; do sleep 0.1; done`
	cmd := exec.Command("/bin/sh", "-c", script, name)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, "witness")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// helperInExec mounts the file system and starts a healthy process and those that get stuck, of which the
// first one has a child. It ends with 5 after a line, or gets stuck itself.
func helperInExec(args []string) int {
	runtime.LockOSThread() // which alone gets the mount namespace, and all that it starts
	dir, way, count := args[0], args[1], 0
	_, _ = fmt.Sscan(args[2], &count)
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "@in-exec:", err)
			os.Exit(1)
		}
	}
	unix.CloseOnExec(4) // the server alone keeps the connection
	must(unix.Unshare(unix.CLONE_NEWNS))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("fini-e2e", dir, "fuse", 0, "fd=4,rootmode=40000,user_id=0,group_id=0"))
	must(unix.Close(4))
	switch way {
	case "earlier":
		return helperExecutes([]string{dir, ""})
	case "the main child is stuck":
		must(healthy("beside").Start())
		return helperExecutes([]string{dir, "below"})
	}
	must(healthy("beside").Start())
	for i := range count {
		argv := mode("executes", dir, []string{"below", ""}[min(i, 1)])
		stuck := exec.Command(argv[0], argv[1:]...)
		stuck.Stdout, stuck.Stderr, stuck.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, "witness")}
		stuck.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(stuck.Start())
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 5
}

// helperExecutes gets stuck, and has a child if that is given a name.
func helperExecutes(args []string) int {
	dir, below := args[0], args[1]
	var err error
	if below != "" {
		err = healthy(below).Start() // before there is what would make it stuck too
	}
	if err == nil {
		_, err = unix.Open(dir+"/program", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		err = unix.Exec("/bin/sleep", []string{"sleep", "1000"}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "@executes:", err)
	return 1
}
