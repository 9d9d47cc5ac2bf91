package bond

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// endOf kills it. It is a zombie until the test reaps it, which is an end too.
func endOf(t testing.TB, cmd *exec.Cmd, reap bool) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if reap {
		_ = cmd.Wait()
	}
}

// The kill matrix of a process that a tree is bound to, which is neither its launcher nor a
// descendant: the client behind npm or uv.
func TestBindKillMatrix(t *testing.T) {
	t.Parallel()
	const grace, linger = 300 * time.Millisecond, 50 * time.Millisecond
	for _, p := range rig.AloneOrPair(t) {
		for _, moment := range rig.Moments {
			for _, tree := range rig.Trees {
				t.Run(p.Name+"/"+moment.Name+"/"+tree.Name, func(t *testing.T) {
					t.Parallel()
					client, other := rig.Bystander(t), rig.Bystander(t)
					script := tree.Script
					if moment.Name == "stopping leftovers" {
						script = rig.StubbornLeftover + script
					}
					l := rig.Launch(t, p, "-v", "-i", "--grace="+grace.String(), "--linger="+linger.String(), fmt.Sprintf("--bind=%d", other.Process.Pid),
						fmt.Sprintf("--bind=%d", client.Process.Pid), "--", "/bin/sh", "-c", script)
					moment.Come(l)
					endOf(t, client, false)
					l.MustVanish(linger + 2*grace)
					_ = l.Stdin.Close()
					l.Wait()
					if other.Process.Signal(syscall.Signal(0)) != nil {
						t.Error("another process that it was bound to was hit")
					}
				})
			}
		}
	}
}

// One of those that the command is bound to ends: it is stopped as at its launcher's death, and the line names who.
func TestBind(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t) {
		for _, tt := range []struct {
			name  string
			flags func(pid int) []string
			env   func(pid int) string
		}{
			{"flag", func(pid int) []string { return []string{fmt.Sprintf("--bind=%d", pid)} }, nil},
			{"unbound from the launcher", func(pid int) []string { return []string{"-p", "none", fmt.Sprintf("--bind=%d", pid)} }, nil},
			{"variable", nil, func(pid int) string { return fmt.Sprintf("FINI_BIND=%d %d", os.Getpid(), pid) }},
			{"policy", func(pid int) []string { return []string{"--orphans=leave", fmt.Sprintf("--bind=%d", pid)} }, nil},
		} {
			t.Run(tt.name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				client := rig.Bystander(t)
				var flags []string
				if tt.flags != nil {
					flags = tt.flags(client.Process.Pid)
				}
				report := rig.ReportPath(t)
				cmd := p.Command(append(flags, "--grace=5s", "--report="+report, "--", "/bin/sh", "-c",
					`setsid sleep 1000 & `+strings.Join(rig.Mode("signals", "15"), " "))...)
				if tt.env != nil {
					cmd.Env = append(os.Environ(), tt.env(client.Process.Pid))
				}
				l := rig.StartCmd(t, cmd)
				l.Out.Want("ready")
				l.Signal(syscall.SIGWINCH)
				l.Out.Want("signal 28") // so fini watches, and knows the name
				endOf(t, client, true)
				if line, _ := l.Out.Next(); line != "signal 15" {
					t.Errorf("the command got %q", line)
				}
				l.Status()
				rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
				want := fmt.Sprintf("stopping the command: a process of --bind (sleep, %d) exited", client.Process.Pid)
				if said := l.Err.Whole(); strings.Count(said, want) != 1 {
					t.Errorf("says %q, want %q", said, want)
				}
				if r := rig.MustHaveReport(t, report); r.Stopped != "bind" {
					t.Errorf("stopped for %v", r.Stopped)
				}
			})
		}
	}
}

// Who is gone already, or is none, is one clear line and 125, and the command is not started.
func TestBindToNobody(t *testing.T) {
	t.Parallel()
	zombie, gone := rig.Bystander(t), rig.Bystander(t)
	endOf(t, gone, true)
	endOf(t, zombie, false)
	rig.Until(t, "a zombie", func() bool { return strings.HasPrefix(rig.ProcStatus(zombie.Process.Pid, "State"), "Z") })
	for _, p := range rig.AloneOrPair(t) {
		for _, tt := range []struct {
			name string
			pid  string
			says string
		}{
			{"gone", strconv.Itoa(gone.Process.Pid), "it has ended already"},
			{"a zombie", strconv.Itoa(zombie.Process.Pid), "it has ended already"},
			{"past all pids", "2147483647", "it has ended already"},
			{"a thread", strconv.Itoa(anotherThread(t)), "cannot"},
			{"none", "0", "want the pid of a process"},
			{"an empty word", "", `--bind: cannot use "": want the pid of a process`},
		} {
			t.Run(tt.name+"/"+p.Name, func(t *testing.T) {
				status, stdout, stderr := rig.Ask(t, p.Command("--bind="+tt.pid, "--", "echo", "started"))
				if status != 125 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.says) || !strings.Contains(stderr, tt.pid) {
					t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
				}
			})
		}
	}
}

// What takes pidfds and has no other way says so, and does not start the command. A namespace takes none.
func TestBindAndIsolateWithoutPidfds(t *testing.T) {
	t.Parallel()
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	pid := strconv.Itoa(other.Process.Pid)
	for kind, why := range map[string]string{
		"ENOSYS": "this kernel or sandbox has no pidfd_open(2)",
		"EPERM":  "cannot open a pidfd: operation not permitted",
	} {
		for flag, want := range map[string]answer{
			"--bind=" + pid: {125, "", "fini: cannot bind the command to process " + pid + ": " + why + "\n"},
			"--isolate":     {0, "started\n", ""},
		} {
			t.Run(kind+", "+flag, func(t *testing.T) {
				if flag == "--isolate" {
					rig.NeedIsolation(t, rig.Account{Name: "this user"})
				}
				argv := append(rig.Mode("refuse", rig.BeforePidfds+",CLONE_PIDFD:"+kind), rig.Fini, flag, "--", "echo", "started")
				status, stdout, stderr := rig.Ask(t, exec.Command(argv[0], argv[1:]...))
				if got := (answer{status, stdout, stderr}); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			})
		}
	}
}

// An answer is what a command ends with, and has written.
type answer struct {
	status         int
	stdout, stderr string
}

// anotherThread is the id of a thread of this process that is not its first.
func anotherThread(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if id, _ := strconv.Atoi(e.Name()); id != os.Getpid() {
			return id
		}
	}
	t.Fatal("there is one thread")
	return 0
}

// A process of another user can be watched as well.
func TestBindToAnothersProcess(t *testing.T) {
	t.Parallel()
	need.Root(t)
	need.Program(t, "setpriv")
	roots := rig.Bystander(t)
	others := rig.Bystander(t, "setpriv", "--reuid=12346", "--regid=12346", "--clear-groups", "sleep", "1000")
	for _, client := range []*exec.Cmd{roots, others} {
		for _, shield := range []string{"--shield", "--no-shield"} {
			l := rig.StartCmd(t, exec.Command("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", rig.Fini, shield, "-p", "none",
				fmt.Sprintf("--bind=%d", client.Process.Pid), "--", "sh", "-c", "echo ready; exec sleep 1000"))
			l.Out.Want("ready")
			if shield == "--no-shield" {
				endOf(t, client, true)
				l.MustEnd(143)
			} else {
				l.Signal(syscall.SIGTERM) // not yet: it lives
				l.MustEnd(143)
				if said := l.Err.Whole(); strings.Contains(said, "bound") {
					t.Errorf("says %q of one that lives", said)
				}
			}
		}
	}
}

// PID 1 is bound to nobody of itself, and to whom it is told: here to a child that it had before it became fini.
func TestBindAsPID1(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/sh", "-c",
		`sleep 1000 3>&- & until test "$(cat /proc/$!/comm)" = sleep; do :; done; exec "$0" --bind=$! -- sh -c 'echo "bound $1"; exec sleep 1000' sh $!`, rig.Fini)
	rig.AsPID1(cmd)
	l := rig.StartCmd(t, cmd)
	pid := l.Out.WantPID("bound ")
	// From outside: who enters the namespace ends with it.
	for _, child := range rig.ChildrenOf(t, l.PID()) {
		if ids := strings.Fields(rig.ProcStatus(child, "NSpid")); len(ids) > 0 && ids[len(ids)-1] == strconv.Itoa(pid) {
			if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	l.MustEnd(143)
	if want := fmt.Sprintf("process of --bind (sleep, %d) exited", pid); !strings.Contains(l.Err.Whole(), want) {
		t.Errorf("says %q, want %q", l.Err.Text(), want)
	}
}
