package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// bystander starts a process that lives until it is killed, and is a child of the test.
func bystander(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	if len(argv) == 0 {
		argv = []string{"sleep", "1000"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// execve(2) lets who started it go on before it gives the process its name.
	until(t, "its name", func() bool { return procStatus(cmd.Process.Pid, "Name") != procStatus(os.Getpid(), "Name") })
	return cmd
}

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
	for _, p := range []place{pair, alone} {
		for _, moment := range moments {
			for _, tree := range trees {
				t.Run(p.name+"/"+moment.name+"/"+tree.name, func(t *testing.T) {
					t.Parallel()
					client, other := bystander(t), bystander(t)
					script := tree.script
					if moment.name == "stopping leftovers" {
						script = stubbornLeftover + script
					}
					l := launch(t, p, "-v", "-i", "--grace="+grace.String(), "--linger="+linger.String(), fmt.Sprintf("--bind=%d", other.Process.Pid),
						fmt.Sprintf("--bind=%d", client.Process.Pid), "--", "/bin/sh", "-c", script)
					moment.come(l)
					endOf(t, client, false)
					l.mustVanish(linger + 2*grace)
					_ = l.Stdin.Close()
					l.wait()
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
	for _, p := range []place{pair, alone} {
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
			t.Run(tt.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				client := bystander(t)
				var flags []string
				if tt.flags != nil {
					flags = tt.flags(client.Process.Pid)
				}
				report := reportPath(t)
				cmd := p.command(append(flags, "--grace=5s", "--report="+report, "--", "/bin/sh", "-c",
					`setsid sleep 1000 & `+strings.Join(mode("signals", "15"), " "))...)
				if tt.env != nil {
					cmd.Env = append(os.Environ(), tt.env(client.Process.Pid))
				}
				l := startCmd(t, cmd)
				l.Out.want("ready")
				l.signal(syscall.SIGWINCH)
				l.Out.want("signal 28") // so fini watches, and knows the name
				endOf(t, client, true)
				if line, _ := l.Out.next(); line != "signal 15" {
					t.Errorf("the command got %q", line)
				}
				l.status()
				until(t, "the end of the tree", func() bool { return hungUp(l.witness) })
				want := fmt.Sprintf("stopping the command: a process that it is bound to (sleep, %d) has ended (--bind)", client.Process.Pid)
				if said := l.Err.whole(); strings.Count(said, want) != 1 {
					t.Errorf("says %q, want %q", said, want)
				}
				if r := mustHaveReport(t, report); r.Stopped != "bind" {
					t.Errorf("stopped for %v", r.Stopped)
				}
			})
		}
	}
}

// Who is gone already, or is none, is one clear line and 125, and the command is not started.
func TestBindToNobody(t *testing.T) {
	t.Parallel()
	zombie, gone := bystander(t), bystander(t)
	endOf(t, gone, true)
	endOf(t, zombie, false)
	until(t, "a zombie", func() bool { return strings.HasPrefix(procStatus(zombie.Process.Pid, "State"), "Z") })
	for _, p := range []place{pair, alone} {
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
			{"an empty word", "", "--bind: wants a value"},
		} {
			t.Run(tt.name+"/"+p.name, func(t *testing.T) {
				status, stdout, stderr := ask(t, p.command("--bind="+tt.pid, "--", "echo", "started"))
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
					needIsolation(t, account{name: "this user"})
				}
				argv := append(mode("refuse", beforePidfds+",CLONE_PIDFD:"+kind), finiPath, flag, "--", "echo", "started")
				status, stdout, stderr := ask(t, exec.Command(argv[0], argv[1:]...))
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

// The process ends within microseconds around the start. Either the command is not started, or it is stopped.
func TestBindEndsAroundTheStart(t *testing.T) {
	t.Parallel()
	rounds := quickOrFull(100, 300)
	script := fmt.Sprintf(`
import os, random, select, signal, sys, time
random.seed(1)
seen = {}
for round in range(%d):
    r, w = os.pipe()
    os.set_inheritable(w, True)
    client = os.fork()
    if client == 0:
        signal.pause()
    fini = os.fork()
    if fini == 0:
        os.close(r)
        os.execv(sys.argv[1], [sys.argv[1], "-q", "--grace=5s", "--bind=%%d" %% client] + sys.argv[2:])
    os.close(w)
    end = time.monotonic() + random.uniform(0, 0.012)
    while time.monotonic() < end:
        pass
    os.kill(client, signal.SIGKILL)
    reaped = random.random() < 0.5
    if reaped:
        os.waitpid(client, 0)
    if not select.select([r], [], [], 20)[0]:
        print("alive after round", round, flush=True)
        sys.exit(1)
    os.close(r)
    status = os.waitstatus_to_exitcode(os.waitpid(fini, 0)[1])
    seen[status] = seen.get(status, 0) + 1
    if not reaped:
        os.waitpid(client, 0)
    if status not in (125, -15):
        print("status", status, flush=True)
        sys.exit(1)
    print("round", round, flush=True)
print("none alive", seen)
`, rounds)
	for _, flag := range []string{"--shield", "--no-shield"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			l := startCmd(t, exec.Command(need.Program(t, "python3"), "-c", script, finiPath, flag, "--", "sleep", "1000"))
			line := "round"
			for strings.HasPrefix(line, "round") {
				line, _ = l.Out.next()
			}
			t.Log(line)
			if !strings.HasPrefix(line, "none alive") {
				t.Fatalf("%q; stderr: %s", line, l.Err.text())
			}
			l.mustEnd(0)
		})
	}
}

// A process of another user can be watched as well.
func TestBindToAnothersProcess(t *testing.T) {
	t.Parallel()
	need.Root(t)
	need.Program(t, "setpriv")
	roots := bystander(t)
	others := bystander(t, "setpriv", "--reuid=12346", "--regid=12346", "--clear-groups", "sleep", "1000")
	for _, client := range []*exec.Cmd{roots, others} {
		for _, shield := range []string{"--shield", "--no-shield"} {
			l := startCmd(t, exec.Command("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", finiPath, shield, "-p", "none",
				fmt.Sprintf("--bind=%d", client.Process.Pid), "--", "sh", "-c", "echo ready; exec sleep 1000"))
			l.Out.want("ready")
			if shield == "--no-shield" {
				endOf(t, client, true)
				l.mustEnd(143)
			} else {
				l.signal(syscall.SIGTERM) // not yet: it lives
				l.mustEnd(143)
				if said := l.Err.whole(); strings.Contains(said, "bound") {
					t.Errorf("says %q of one that lives", said)
				}
			}
		}
	}
}

// In a PID namespace where pids come again within milliseconds, who has the pid of the one that ended is
// no life for the command, and is not hit; and while that one lives, ends of others are none of fini's.
func TestBindAmongRecycledPids(t *testing.T) {
	t.Parallel()
	needPidNamespace(t)
	script := `
echo 400 >/proc/sys/kernel/ns_last_pid 2>/dev/null
echo 450 >/proc/sys/kernel/pid_max || exit 77
for round in 1 2 3 4 5 6 7 8 9 10; do
	sleep 1000 & client=$!
	"$0" -q --grace=5s --bind=$client -- sh -c 'echo ready; exec sleep 1000' >/tmp/ready.$$ & fini=$!
	while ! test -s /tmp/ready.$$; do :; done
	i=0; while test $i -lt 500; do (:); i=$((i+1)); done
	kill -0 $fini || { echo "ended too early"; exit 1; }
	kill -9 $client; wait $client 2>/dev/null
	until test "$last" = $client; do sleep 1000 & last=$!; all="$all $last"; test ${#all} -lt 4000 || break; test "$last" = $client || { kill -9 $last; wait $last 2>/dev/null; }; done
	wait $fini; echo "status $?"
	test "$last" != $client || { kill -0 $last && echo "the next with its pid lives"; kill -9 $last; wait $last 2>/dev/null; }
	rm /tmp/ready.$$; all= last=
done
echo done`
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/sh", "-c", script, finiPath)
	asPID1(cmd)
	l := startCmd(t, cmd)
	again := 0
	for ended := false; !ended; {
		line, ok := l.Out.next()
		switch {
		case !ok:
			need.That(t, l.status() != 77, "kernel.pid_max of a PID namespace (Linux 6.14)")
			t.Fatalf("EOF; stderr: %s", l.Err.text())
		case line == "done":
			ended = true
		case line == "the next with its pid lives":
			again++
		case line != "status 143":
			t.Fatalf("%q; stderr: %s", line, l.Err.text())
		}
	}
	t.Logf("%d pids of 10 came again", again)
	if again == 0 {
		t.Error("no pid came again: this says nothing")
	}
	l.mustEnd(0)
}

// PID 1 is bound to nobody of itself, and to whom it is told: here to a child that it had before it became fini.
func TestBindAsPID1(t *testing.T) {
	t.Parallel()
	needPidNamespace(t)
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/sh", "-c",
		`sleep 1000 3>&- & until test "$(cat /proc/$!/comm)" = sleep; do :; done; exec "$0" --bind=$! -- sh -c 'echo "bound $1"; exec sleep 1000' sh $!`, finiPath)
	asPID1(cmd)
	l := startCmd(t, cmd)
	pid := l.Out.wantPid("bound ")
	// From outside: who enters the namespace ends with it.
	for _, child := range childrenOf(t, l.pid()) {
		if ids := strings.Fields(procStatus(child, "NSpid")); len(ids) > 0 && ids[len(ids)-1] == strconv.Itoa(pid) {
			if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	l.mustEnd(143)
	if want := fmt.Sprintf("bound to (sleep, %d) has ended", pid); !strings.Contains(l.Err.whole(), want) {
		t.Errorf("says %q, want %q", l.Err.text(), want)
	}
}

// The second Ctrl-C after the end of the command ends its leftovers at once: the shell has its prompt back.
func TestSecondControlC(t *testing.T) {
	t.Parallel()
	bash := need.Program(t, "bash")
	for _, p := range []place{pair, alone} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(bash, "--norc", "--noediting", "-i")
			fini := strings.Join(p.command("--linger=0", "--grace=1h", "--").Args, " ")
			script := scriptFile(t, `setsid sh -c 'trap "" TERM INT; echo stub""born; sleep 1000; sleep 1000' & sleep 1000`)
			cmd.Env = append(os.Environ(), "PS1=", "HISTFILE=", "NO_COLOR=1", "command="+fini+" sh "+script)
			l, screen, keys := onTerminal(t, cmd)
			enter := func(text string) {
				t.Helper()
				if _, err := io.WriteString(keys, text); err != nil {
					t.Fatal(err)
				}
			}
			enter("stty -echo -echoctl; echo be''gin\n")
			screen.want("begin")
			enter("$command; echo never\n")
			screen.want("stubborn")
			// Nobody types so soon: on a busy machine the shell of the script may be between two commands, or the
			// outer fini may not have had the first one, and two pending ones are one. So it is typed until it is
			// heard.
			heard, typed := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(typed)
				for {
					_, _ = io.WriteString(keys, "\x03")
					select {
					case <-heard:
						return
					case <-time.After(time.Second):
					}
				}
			}()
			screen.want("fini: stopping leftover")
			screen.want("fini: killing the leftovers: a second SIGINT")
			close(heard)
			<-typed
			enter("echo pro''mpt $?\n")
			screen.want("prompt 130")
			enter("exit\n")
			l.mustEnd(0)
		})
	}
}
