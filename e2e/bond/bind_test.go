package bond

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/kills"
	"github.com/seed-126c5d8a/fini/e2e/rig/refusals"
	"github.com/seed-126c5d8a/fini/e2e/rig/reports"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// endOf kills it. It is a zombie until the test reaps it, which is an end too.
func endOf(t testing.TB, cmd *exec.Cmd, reap bool) {
	t.Helper()
	rig.NoError(t, cmd.Process.Kill())
	if reap {
		_ = cmd.Wait()
	}
}

// The kill matrix of a process that a tree is bound to, which is neither its launcher nor a
// descendant: the client behind npm or uv.
func TestBindKillMatrix(t *testing.T) {
	t.Parallel()
	const grace, linger = 300 * time.Millisecond, 50 * time.Millisecond
	for _, p := range rig.AloneOrPair(t, rig.Pair) {
		for _, moment := range kills.Moments {
			for _, tree := range kills.Trees {
				t.Run(p.Name+"/"+moment.Name+"/"+tree.Name, func(t *testing.T) {
					t.Parallel()
					client, other := rig.Bystander(t), rig.Bystander(t)
					l := rig.Launch(t, p, "-v", "-i", "--grace="+grace.String(), "--linger="+linger.String(), fmt.Sprintf("--bind=%d", other.Process.Pid),
						fmt.Sprintf("--bind=%d", client.Process.Pid), "--", "/bin/sh", "-c", moment.First+tree.Script)
					moment.Come(l)
					endOf(t, client, false)
					l.MustVanish()
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
	for name, flags := range map[string]string{
		"flag":                      "--bind=PID",
		"unbound from the launcher": "-p none --bind=PID",
		"policy":                    "--orphans=leave --bind=PID",
		"variable":                  "",
	} {
		for _, p := range rig.AloneOrPair(t, rig.Alone) {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				client, report := rig.Bystander(t), reports.Path(t)
				args := strings.Fields(strings.Replace(flags, "PID", strconv.Itoa(client.Process.Pid), 1))
				cmd := p.Command(append(args, "--grace=1h", "--report="+report, "--", "/bin/sh", "-c",
					`setsid sleep 1000 & `+strings.Join(rig.Mode("signals", "15"), " "))...)
				if flags == "" {
					cmd.Env = append(os.Environ(), fmt.Sprintf("FINI_BIND=%d %d", os.Getpid(), client.Process.Pid))
				}
				l := rig.StartCmd(t, cmd)
				l.Out.Want("ready")
				l.Signal(syscall.SIGWINCH)
				l.Out.Want("signal 28") // so fini watches, and knows the name
				endOf(t, client, true)
				rig.MustRecord(t, "the command says", l.Out.Rest(), "signal 15")
				l.Status()
				rig.Until(t, "the end of the tree", func() bool { return rig.HungUp(l.Witness) })
				rig.WantOnce(t, l.Err.Whole(), fmt.Sprintf("fini: stopping the command: a process of --bind (sleep, %d) exited", client.Process.Pid))
				if r := reports.MustHave(t, report); r.Stopped != "bind" {
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
	rig.Until(t, "a zombie", func() bool { return strings.HasPrefix(procfs.Status(zombie.Process.Pid, "State"), "Z") })
	tasks, _ := filepath.Glob("/proc/self/task/*")
	tasks = slices.DeleteFunc(tasks, func(dir string) bool { return filepath.Base(dir) == strconv.Itoa(os.Getpid()) })
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for name, tt := range map[string]struct{ pid, says string }{
			"gone":          {strconv.Itoa(gone.Process.Pid), "it has ended already"},
			"a zombie":      {strconv.Itoa(zombie.Process.Pid), "it has ended already"},
			"past all pids": {"2147483647", "it has ended already"},
			"a thread":      {filepath.Base(tasks[0]), "cannot"},
			"none":          {"0", "want the pid of a process"},
		} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				status, stdout, stderr := rig.Ask(t, p.Command("--bind="+tt.pid, "--", "echo", "started"))
				if status != 125 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.says) || !strings.Contains(stderr, tt.pid) {
					t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
				}
			})
		}
	}
}

// What takes pidfds and has no other way says so, and does not start the command.
func TestBindWithoutPidfds(t *testing.T) {
	t.Parallel()
	pid := strconv.Itoa(rig.Bystander(t).Process.Pid)
	for kind, why := range map[string]string{
		"ENOSYS": "this kernel or sandbox has no pidfd_open(2)",
		"EPERM":  "cannot open a pidfd: operation not permitted",
	} {
		t.Run(kind, func(t *testing.T) {
			argv := rig.Mode("refuse", refusals.BeforePidfds+",CLONE_PIDFD:"+kind, rig.Fini, "--bind="+pid, "--", "echo", "started")
			status, stdout, stderr := rig.Ask(t, rig.CommandOf(argv))
			if status != 125 || stdout != "" || stderr != "fini: cannot bind the command to process "+pid+": "+why+"\n" {
				t.Errorf("%d, %q, %q", status, stdout, stderr)
			}
		})
	}
}

// as is a command line of another user.
func as(t *testing.T, uid string, argv ...string) []string {
	t.Helper()
	need.Root(t)
	return append([]string{need.Program(t, "setpriv"), "--reuid=" + uid, "--regid=" + uid, "--clear-groups"}, argv...)
}

// A process of another user can be watched as well.
func TestBindToAnothersProcess(t *testing.T) {
	t.Parallel()
	for _, p := range rig.AloneOrPair(t, rig.Alone) {
		for _, client := range []*exec.Cmd{rig.Bystander(t), rig.Bystander(t, as(t, "12346", "sleep", "1000")...)} {
			argv := p.Command("-p", "none", fmt.Sprintf("--bind=%d", client.Process.Pid), "--", "sh", "-c", "echo ready; exec sleep 1000").Args
			cmd := rig.CommandOf(as(t, "12345", argv...))
			l := rig.StartCmd(t, cmd)
			l.Out.Want("ready")
			if text := l.Err.Text(); text != "" {
				t.Errorf("says %q of one that lives", text)
			}
			endOf(t, client, true)
			l.MustEnd(143)
		}
	}
}

// PID 1 is bound to nobody of itself, and to whom it is told: here to a child that it had before it became fini.
func TestBindAsPID1(t *testing.T) {
	t.Parallel()
	rig.NeedPidNamespace(t)
	const script = `sleep 1000 3>&- & until test "$(cat /proc/$!/comm)" = sleep; do :; done
		exec "$0" --bind=$! -- sh -c 'echo "bound $1"; kill -9 $1; exec sleep 1000' sh $!`
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/sh", "-c", script, rig.Fini)
	rig.AsPID1(cmd)
	l := rig.StartCmd(t, cmd)
	pid := l.Out.WantPID("bound ")
	l.MustEnd(143)
	if want := fmt.Sprintf("process of --bind (sleep, %d) exited", pid); !strings.Contains(l.Err.Whole(), want) {
		t.Errorf("says %q, want %q", l.Err.Text(), want)
	}
}
