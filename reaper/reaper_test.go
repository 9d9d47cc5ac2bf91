package reaper

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/surroundings"
	"github.com/seed-126c5d8a/fini/internal/proc"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	// Under the race detector a program sleeps for a second when it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") && os.Args[1] != "@alone" {
		os.Exit(program(os.Args[1], os.Args[2:]))
	}
	surroundings.Own()
	if len(os.Args) > 1 && os.Args[1] == "@alone" {
		isAlone = true
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	os.Exit(m.Run())
}

// program is what this binary is as a process that a test starts.
func program(name string, args []string) int {
	switch name {
	case "@stay": // until the end of the descriptor that it is told
		fd, _ := strconv.Atoi(args[0])
		_, _ = io.Copy(io.Discard, os.NewFile(uintptr(fd), "until"))
		return 0
	case "@orphans": // leaves so many to its parent, which stay until the end of a descriptor
		n, _ := strconv.Atoi(args[0])
		fd, _ := strconv.Atoi(args[1])
		for range n {
			cmd := exec.Command("/bin/sh", "-c", "read line")
			cmd.Stdin = os.NewFile(uintptr(fd), "until")
			if cmd.Start() != nil {
				return 1
			}
		}
		return 7
	}
	return 99
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	check(t, err)
	return path
}

// isAlone says that this process was started by alone.
var isAlone bool

// alone runs body in a process of its own: it becomes a subreaper and reaps every
// child there is, neither of which can be had from the test's own process.
func alone(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if isAlone {
		body(t)
		return
	}
	cmd := exec.Command(self(t), "@alone", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=3m")
	text, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, text)
	case strings.Contains(string(text), "--- SKIP: "):
		t.Skip("SKIPPED, in the process of its own:\n" + string(text))
	case !strings.Contains(string(text), "--- PASS: "+t.Name()):
		t.Errorf("the test did not run:\n%s", text)
	}
}

// inheritedEnd is a pipe whose reading end children inherit, and lasts until the
// writing end is closed.
func inheritedEnd(t *testing.T) (fd string, w *os.File) {
	t.Helper()
	r, w := rig.Pipe(t)
	end, err := unix.Dup(int(r.Fd())) // without close-on-exec
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(end) })
	return strconv.Itoa(end), w
}

func spawnSelf(t *testing.T, args ...string) Child {
	t.Helper()
	child, err := Spawn(Command{Args: append([]string{self(t)}, args...), Env: os.Environ(), Terminal: -1})
	check(t, err)
	return child
}

// hasEnded waits until a child can be reaped.
func hasEnded(t *testing.T) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			check(t, err)
			return
		}
	}
}

func TestReapCommandAndOrphans(t *testing.T) {
	alone(t, func(t *testing.T) {
		const orphans = 50
		check(t, Subreaper())
		until, end := inheritedEnd(t)
		child := spawnSelf(t, "@orphans", strconv.Itoa(orphans), until)
		// Who has ended is asked for while its pid and its name are still its own.
		var asked []int
		ask := func(pid int) string {
			asked = append(asked, pid)
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || !strings.Contains(string(stat), ") Z ") {
				t.Errorf("asked for the name of %d, which is no zombie: %q, %v", pid, stat, err)
			}
			return strconv.Itoa(pid)
		}

		hasEnded(t)
		exits, none, _ := Reap(nil)
		if len(exits) != 1 || exits[0].Pid != child.Pid || exits[0].Status.ExitStatus() != 7 || exits[0].Name != "" {
			t.Errorf("the command has ended, and Reap says %v; want %d with status 7", exits, child.Pid)
		}
		if none {
			t.Error("orphans are alive, and Reap says that there is none")
		}
		if exits, none, _ := Reap(ask); len(exits) != 0 || none || len(asked) > 0 {
			t.Errorf("nobody else has ended, and Reap says %v, %t, and asks for %v", exits, none, asked)
		}

		_ = end.Close()
		var reaped []int
		for none = false; !none; {
			hasEnded(t)
			exits, none, _ = Reap(ask)
			for _, x := range exits {
				reaped = append(reaped, x.Pid)
				if !x.Status.Exited() || x.Status.ExitStatus() != 1 || x.Name != strconv.Itoa(x.Pid) {
					t.Errorf("%d ended with %v, and has the name %q; want status 1 for the end of its input", x.Pid, x.Status, x.Name)
				}
			}
		}
		if !slices.Equal(reaped, asked) {
			t.Errorf("reaped %v, and was asked for the names of %v", reaped, asked)
		}
		slices.Sort(reaped)
		if len(slices.Compact(reaped)) != orphans {
			t.Errorf("reaped %v, want %d orphans", reaped, orphans)
		}
		if exits, none, _ := Reap(nil); len(exits) != 0 || !none {
			t.Errorf("no child is left, and Reap says %v, %t", exits, none)
		}
	})
}

func TestReapTellsOfAStop(t *testing.T) {
	for how, name := range map[string]func(int) string{"wait4": nil, "with names": func(int) string { return "name" }} {
		t.Run(how, func(t *testing.T) {
			alone(t, func(t *testing.T) {
				until, end := inheritedEnd(t)
				defer func() { _ = end.Close() }()
				child := spawnSelf(t, "@stay", until)
				check(t, unix.Kill(child.Pid, unix.SIGSTOP))
				defer func() { check(t, unix.Kill(child.Pid, unix.SIGKILL)) }()
				for {
					err := unix.Waitid(unix.P_PID, child.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
					if err != unix.EINTR {
						check(t, err)
						break
					}
				}
				exits, none, _ := Reap(name)
				if len(exits) != 1 || exits[0].Pid != child.Pid || exits[0].Status.StopSignal() != unix.SIGSTOP || none {
					t.Errorf("Reap = %v, %t; want %d, stopped by SIGSTOP, and still there", exits, none, child.Pid)
				}
				check(t, unix.Kill(child.Pid, unix.SIGCONT)) // the continuation is there at once: see wait(2)
				if exits, _, _ := Reap(name); len(exits) != 1 || !exits[0].Status.Continued() {
					t.Errorf("Reap = %v; want %d, continued", exits, child.Pid)
				}
			})
		})
	}
}

// A group that has ended can't be joined. The child then stays in this process's group, and loses nothing else.
func TestSpawnIntoAGroupThatHasEnded(t *testing.T) {
	alone(t, func(t *testing.T) {
		const none = 1<<22 - 1 // PID_MAX_LIMIT in proc_sys_kernel(5) is one more
		child, err := Spawn(Command{Args: []string{"/bin/true"}, Group: none, Deathsig: unix.SIGTERM, Terminal: -1})
		if err != nil || child.Ungrouped {
			t.Errorf("Spawn = %+v, %v; want a child that has its parent death signal", child, err)
		}
	})
}

// waitid(2), which serves if a filter refuses wait4(2), says the same of each child: how it ended, that it dumped core, and
// that it was suspended or continued.
func TestWaitIDSaysTheSame(t *testing.T) {
	alone(t, func(t *testing.T) {
		until, end := inheritedEnd(t)
		defer func() { _ = end.Close() }()
		says := func(what string, pid int) syscall.WaitStatus {
			t.Helper()
			var byID syscall.WaitStatus
			rig.Until(t, what, func() bool {
				got, status, errno := proc.WaitID(unix.P_PID, pid, changes|unix.WEXITED|unix.WNOWAIT)
				if errno != 0 {
					t.Fatal(errno)
				}
				byID = status
				return got == pid
			})
			got, by4, _ := proc.Wait(pid, changes)
			if got != pid || byID != by4 {
				t.Errorf("%s: waitid says %#x, and wait4 %#x of %d", what, byID, by4, got)
			}
			return by4
		}
		says("exited with 7", spawnSelf(t, "@orphans", "0", until).Pid)
		stays := spawnSelf(t, "@stay", until).Pid
		check(t, unix.Kill(stays, unix.SIGSTOP))
		says("suspended", stays)
		check(t, unix.Kill(stays, unix.SIGCONT))
		says("continued", stays)
		check(t, unix.Kill(stays, unix.SIGKILL))
		says("killed", stays)
		t.Chdir(t.TempDir()) // for the core
		var limit unix.Rlimit
		check(t, unix.Getrlimit(unix.RLIMIT_CORE, &limit))
		limit.Cur = min(limit.Max, 1<<20)
		check(t, unix.Setrlimit(unix.RLIMIT_CORE, &limit))
		dumps, err := Spawn(Command{Args: []string{"/bin/sh", "-c", "kill -SEGV $$"}, Terminal: -1})
		check(t, err)
		dumped := says("killed by SIGSEGV", dumps.Pid).CoreDump()
		if _, _, errno := proc.WaitID(unix.P_ALL, 0, unix.WEXITED); errno != unix.ECHILD {
			t.Errorf("without a child waitid says %v, want ECHILD", errno)
		}
		need.Kernel(t, dumped, "core dumps in the working directory")
	})
}
