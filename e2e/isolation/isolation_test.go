package isolation

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

func TestMain(m *testing.M) { rig.Main(m) }

// busy is a tree that starts, runs and stops all the time, in sessions of its own and deaf to TERM,
// whose command ends after a while and leaves the rest to be stopped.
const busy = `trap "" TERM HUP INT
	setsid sh -c 'trap "" TERM; while :; do (sleep 0.01; :) & sleep 0.01; done' &
	(setsid sh -c 'trap "" TERM; echo leftover; exec sleep 1000' &)
	echo ready; sleep 0.15`

// Nothing survives the end of both finis at one moment, whenever that comes. Under FINI_FULL there
// are more than 1,000 moments for each user. Without --isolate something does: see TestBothOfThePairKilledAtOnce.
func TestBothKilledAtOnce(t *testing.T) {
	t.Parallel()
	rounds := rig.QuickOrFull(15, 350)
	ways := map[string]func(outer, inner int) []int{
		"outer first": func(outer, inner int) []int { return []int{outer, inner} },
		"inner first": func(outer, inner int) []int { return []int{inner, outer} },
		"by group":    func(outer, inner int) []int { return []int{-outer, -inner} },
	}
	rig.EachUser(t, func(t *testing.T, u rig.Account) {
		for name, victims := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for range rounds {
					instant := time.Duration(rand.Int64N(int64(300 * time.Millisecond)))
					cmd := u.Command("--isolate", "-q", "--linger=20ms", "--grace=100ms", "--", "sh", "-c", busy)
					cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
					l := rig.StartCmd(t, cmd)
					time.Sleep(instant) // the moment is what varies: nothing is waited for
					all := []int{l.PID()}
					if children := rig.ChildrenOf(t, l.PID()); len(children) > 0 {
						all = victims(l.PID(), children[0])
					}
					for _, pid := range all {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
					if !rig.Poll(rig.Patience, func() bool { return rig.HungUp(l.Witness) }) {
						t.Fatalf("killed after %v, something has survived", instant)
					}
					l.Wait()
				}
			})
		}
	})
}

// The death of the outer one alone is followed by the ladder with its grace, that of the inner one by
// the kernel's.
func TestOneOfAnIsolatedPairKilled(t *testing.T) {
	rig.EachUser(t, func(t *testing.T, u rig.Account) {
		t.Run("outer", func(t *testing.T) {
			l := rig.StartCmd(t, u.Command("--isolate", "--", "sh", "-c", `trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.1; done`))
			l.Out.Want("ready")
			rig.MustKill(t, l.PID(), syscall.SIGKILL)
			l.Out.Want("asked")
			l.Err.Want(fmt.Sprintf("fini: stopping the command: the outer fini (%.15s, %d) was killed", filepath.Base(rig.Fini), l.PID()))
			rig.Until(t, "the end of all", func() bool { return rig.HungUp(l.Witness) })
		})
		t.Run("inner", func(t *testing.T) {
			l := rig.StartCmd(t, u.Command("--isolate", "--", "sh", "-c", `trap "" TERM; echo ready; sleep 1000; :`))
			l.Out.Want("ready")
			rig.MustKill(t, l.Worker(), syscall.SIGKILL)
			l.MustEnd(128 + 9)
		})
	})
}

// A user for whom the kernel queues no signal has a start like any other: nothing waits for a signal from thread to thread.
// See RLIMIT_SIGPENDING in getrlimit(2).
func TestIsolationWithoutQueuedSignals(t *testing.T) {
	rig.EachUser(t, func(t *testing.T, u rig.Account) {
		u.As = slices.Concat([]string{need.Program(t, "prlimit"), "--sigpending=0:0"}, u.As)
		rig.StartCmd(t, u.Command("--isolate", "--", "sh", "-c", "exit 5")).MustEnd(5)
	})
}

// Nothing that the command may do, and nothing that is mounted but /proc, is other than without.
func TestIsolationWidensNothing(t *testing.T) {
	cases := map[string]rig.Account{}
	for _, u := range rig.Users(t) {
		cases[u.Name] = u
		if os.Geteuid() != 0 {
			continue
		}
		setpriv := []string{need.Program(t, "setpriv")}
		rest := u.As[min(len(u.As), 1):]
		for name, more := range map[string][]string{
			"with no_new_privs":          {"--no-new-privs"},
			"with a lesser bounding set": {"--bounding-set=-sys_time,-net_raw"},
		} {
			cases[u.Name+" "+name] = rig.Account{Name: u.Name, As: slices.Concat(setpriv, more, rest)}
		}
		switch u.Name {
		case "root":
			cases["root without CAP_SYS_ADMIN"] = rig.Account{Name: "root", As: slices.Concat(setpriv, []string{"--bounding-set=-sys_admin"})}
		default:
			cases["user with nothing in the bounding set"] = rig.Account{Name: "user", As: slices.Concat(setpriv, []string{"--bounding-set=-all"}, rest)}
		}
	}
	for name, u := range cases {
		t.Run(name, func(t *testing.T) {
			rig.NeedIsolation(t, u)
			without, with := facts(t, u), facts(t, u, "--isolate")
			for fact, want := range without {
				if got := with[fact]; got != want {
					t.Errorf("%s: %q without, %q with --isolate", fact, want, got)
				}
			}
		})
	}
}

// facts are what may not differ, by name.
func facts(t *testing.T, u rig.Account, flags ...string) map[string]string {
	t.Helper()
	out, err := u.Command(append(flags, "--", "sh", "-c", `
		grep -E "^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Umask|SigBlk|SigIgn|SigCgt)" /proc/self/status
		cat /proc/self/mountinfo
		echo "cwd $(pwd)"; echo "limits $(ulimit -a | md5sum)"`)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if fields := strings.Fields(line); strings.Contains(line, " - ") && len(fields) > 6 {
			// The ids of mounts are others. In a user namespace what was shared is only received.
			if fields[4] == "/proc" || passing(fields[4]) {
				continue
			}
			name = "mount " + fields[4] + " " + line[strings.Index(line, " - "):]
			value = strings.Join(fields[2:6], " ")
		} else if value == "" {
			name, value, _ = strings.Cut(name, " ")
		}
		facts[name] = value
	}
	return facts
}

// passing reports whether a mount comes and goes with what else runs: an engine's containers, a unit, a login, or another test.
func passing(dir string) bool {
	parents := []string{"/var/lib/docker/", "/run/docker/", "/var/lib/containers/", "/run/containers/", "/run/credentials/", "/run/user/", os.TempDir() + "/"}
	return slices.ContainsFunc(parents, func(parent string) bool { return strings.HasPrefix(dir, parent) })
}

// A mount that is made outside arrives, and one that root makes inside is seen outside, as without.
func TestMountsCrossTheBorder(t *testing.T) {
	need.Root(t)
	rig.NeedIsolation(t, rig.Users(t)[0])
	dir := t.TempDir()
	if err := unix.Mount("fini", dir, "tmpfs", 0, ""); err != nil {
		need.That(t, false, "the right to mount: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := errors.Join(unix.Mount("", dir, "", unix.MS_SHARED, ""), os.Mkdir(dir+"/in", 0o755), os.Mkdir(dir+"/out", 0o755)); err != nil {
		t.Fatal(err)
	}
	l := rig.Start(t, rig.Pair, "--isolate", "--", "sh", "-c", `mount -t tmpfs made-inside "$0"/in && echo ready && read x && cat "$0"/out/text`, dir)
	l.Out.Want("ready")
	text, _ := os.ReadFile("/proc/self/mountinfo")
	if !strings.Contains(string(text), "made-inside") {
		t.Error("what was mounted inside is not to be seen outside")
	}
	if err := unix.Mount("made-outside", dir+"/out", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/out/text", []byte("from outside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(l.Stdin, "\n")
	l.Out.Want("from outside")
	l.MustEnd(0)
}

// Nothing that fini mounts, copies or moves is seen outside, whatever is mounted below /proc and on that,
// and whoever would be told of it.
func TestIsolationLeaksNoMount(t *testing.T) {
	need.Root(t)
	unshare := need.Program(t, "unshare")
	below := map[string]string{
		// As systemd's ProtectKernelTunables= and containers do.
		"masked": `mount --bind /proc/sys /proc/sys && mount --bind /proc/sys/kernel /proc/sys/kernel &&
			mount -t tmpfs two-levels /proc/sys/fs && mkdir /proc/sys/fs/a && mount -t tmpfs three-levels /proc/sys/fs/a`,
		// As binfmt_misc, on a directory of /proc that is always empty: it hides nothing.
		"empty": `mount -t tmpfs one-level /proc/sys/fs/binfmt_misc && mkdir /proc/sys/fs/binfmt_misc/a &&
			mount -t tmpfs two-levels /proc/sys/fs/binfmt_misc/a`,
	}
	surroundings := map[string]string{
		"private": `exec sh -c "$RUN" sh "$@"`,
		"shared":  `mount --make-rshared / && exec sh -c "$RUN" sh "$@"`,
		"slave":   `mount --make-rshared / && exec unshare -m --propagation slave sh -c "$RUN" sh "$@"`,
		"both":    `mount --make-rshared / && unshare -m --propagation slave sh -c 'mount --make-rshared / && exec sh -c "$RUN" sh "$@"' sh "$@"`,
		"inner":   `mount --make-rshared / && exec unshare -m --propagation unchanged sh -c "$RUN" sh "$@"`,
	}
	for kind, mounts := range below {
		for name, enter := range surroundings {
			for _, u := range rig.Users(t) {
				for depth, nested := range []string{"", rig.Fini + " --isolate "} {
					if !rig.All() && (len(kind)+len(name)+depth)%4 != 0 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%s/%d", kind, name, u.Name, depth), func(t *testing.T) {
						rig.NeedIsolation(t, u)
						// Mounts outside are counted where fini runs, and in the namespace around that.
						script := `OUTSIDE=/proc/$$/mountinfo; export OUTSIDE; ` + mounts + ` && echo mounted || exit 99
							count() { wc -l <$OUTSIDE; }
							before=$(count); (` + enter + `); status=$?
							test $before = $(count) || echo "outside: $before mounts became $(count)"
							exit $status`
						run := `before=$(wc -l </proc/self/mountinfo); status=0
							for i in 1 2 3; do "$@" || { status=$?; break; }; done
							after=$(wc -l </proc/self/mountinfo)
							test $before = $after || echo "here: $before mounts became $after"
							exit $status`
						command := u.Command(append([]string{"--isolate"}, append(strings.Fields(nested),
							"grep", "-c", "two-levels", "/proc/self/mountinfo")...)...).Args
						cmd := exec.Command(unshare, slices.Concat([]string{"-m", "--propagation", "private", "sh", "-c", script, "sh"}, command)...)
						cmd.Env = append(os.Environ(), "RUN="+run)
						status, out, said := rig.Ask(t, cmd)
						need.That(t, status != 99, "a place for mounts below /proc: "+said)
						if strings.Contains(out, " became ") {
							t.Errorf("%s", out)
						}
						if kind == "masked" && u.Name != "root" {
							// A fresh one would show what is hidden, and the reason says so.
							if status != 125 || !strings.Contains(said, "mount(proc, /proc): operation not permitted: parts of /proc are masked, as in a container or by systemd's ProtectKernelTunables=") {
								t.Errorf("status %d: %s%s", status, out, said)
							}
						} else if status != 0 || strings.Count(out+said, "\n") != 4 {
							t.Errorf("status %d: %s%s", status, out, said)
						}
					})
				}
			}
		}
	}
}

// What hides a part of /proc goes on hiding it.
func TestMasksOfProcStay(t *testing.T) {
	need.Root(t)
	unshare := need.Program(t, "unshare")
	rig.NeedIsolation(t, rig.Users(t)[0])
	// /proc/sys read-only and /proc/interrupts nothing, as in a container.
	script := `mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && mount --bind /dev/null /proc/interrupts && mount --make-unbindable /proc/interrupts &&
		"$0" --isolate -- sh -c 'test ! -s /proc/interrupts && ! sh -c "echo x >/proc/sys/kernel/domainname" && ls -d /proc/1/task/1 && echo masked'`
	out, err := exec.Command(unshare, "-m", "sh", "-c", script, rig.Fini).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "masked") {
		t.Errorf("%v: %s", err, out)
	}
}

// A /proc that hides the processes of other users hides them inside too.
func TestHidepidStays(t *testing.T) {
	need.Root(t)
	rig.NeedIsolation(t, rig.Users(t)[0])
	// A PID namespace of its own: before Linux 5.8 the option is one of the namespace.
	script := `mount -o remount,hidepid=2 /proc && "$0" --isolate -- grep " /proc " /proc/self/mountinfo`
	out, err := exec.Command(need.Program(t, "unshare"), "-fpm", "--mount-proc", "sh", "-c", script, rig.Fini).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) < 3 || !strings.Contains(lines[len(lines)-1], "hidepid=") {
		t.Errorf("%v: %s", err, out)
	}
}

// If there can be no namespace, one line says so, or fini goes on without.
func TestIsolationRefused(t *testing.T) {
	for _, u := range rig.Users(t) {
		t.Run(u.Name, func(t *testing.T) {
			// A user namespace of the test's own, with no room for more.
			unshare := need.Program(t, "unshare")
			limited := func(args ...string) *exec.Cmd {
				script := `echo 0 >/proc/sys/user/max_user_namespaces && echo 0 >/proc/sys/user/max_pid_namespaces && exec "$@"`
				words := slices.Concat(u.As, []string{unshare, "-Ur", "sh", "-c", script, "sh", rig.Fini}, args)
				return exec.Command(words[0], words[1:]...)
			}
			status, _, said := rig.Ask(t, limited("true"))
			need.That(t, status == 0, "a user namespace: "+said)
			status, out, said := rig.Ask(t, limited("--isolate", "--", "echo", "started"))
			want := "fini: --isolate: clone(CLONE_NEWPID | CLONE_NEWNS): no space left on device: no such namespace is allowed here; raise the sysctl user.max_"
			if status != 125 || !strings.HasPrefix(said, want) || strings.Count(out+said, "\n") != 1 {
				t.Errorf("status %d: %s%s", status, out, said)
			}
			try := limited("--", "sh", "-c", "echo started; exit 4")
			try.Env = append(os.Environ(), "FINI_ISOLATE=try")
			for _, cmd := range []*exec.Cmd{limited("--isolate=try", "--", "sh", "-c", "echo started; exit 4"), try} {
				if status, out, said := rig.Ask(t, cmd); status != 4 || !strings.Contains(said, ": going on without\n") || out != "started\n" {
					t.Errorf("%q: status %d: %s%s", cmd.Args, status, out, said)
				}
			}
		})
	}
}

// What is refused to the isolated fini alone is told by the other one, with the call and the likely reason.
func TestIsolationRefusedInside(t *testing.T) {
	need.Root(t)
	rig.NeedIsolation(t, rig.Users(t)[0])
	argv := rig.Mode("refuse", "mount:EPERM", rig.Fini, "--isolate", "--", "echo", "started")
	status, out, said := rig.Ask(t, exec.Command(argv[0], argv[1:]...))
	const want = "fini: --isolate: mount(/proc, MS_SLAVE | MS_REC): operation not permitted: a security module, "
	if status != 125 || out != "" || !strings.HasPrefix(said, want) {
		t.Errorf("status %d: %s%s", status, out, said)
	}
}

// The tree, its pids and its /proc are those of a namespace, and so are the pids in what fini says of it.
func TestIsolatedReport(t *testing.T) {
	rig.EachUser(t, func(t *testing.T, u rig.Account) {
		file := rig.ReportPath(t)
		if err := errors.Join(os.Chmod(filepath.Dir(file), 0o777), os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755)); err != nil {
			t.Fatal(err)
		}
		l := rig.StartCmd(t, u.Command("--isolate", "-v", "--linger=0", "--report="+file, "--", "sh", "-c",
			`setsid sleep 1000 & `+rig.UntilSleeps+`; echo $$ ready; read x`))
		inside := l.Out.Want("")
		if inside == "" || strings.HasPrefix(inside, strconv.Itoa(l.PID())) {
			t.Errorf("the command says %q", inside)
		}
		command := rig.ChildrenOf(t, l.Worker())[0]
		leftover := pidInside(t, rig.ChildrenOf(t, command)[0])
		command = pidInside(t, command)
		_ = l.Stdin.Close()
		l.Err.Want(fmt.Sprintf("fini: started %d (sh); pids are those of its own PID namespace", command))
		l.Err.Want(fmt.Sprintf("fini: stopping leftover %d (sleep 1000)", leftover))
		l.MustEnd(1)
		report := rig.MustHaveReport(t, file)
		if !report.Isolated || report.Pid != command || len(report.Leftovers) != 1 || report.Leftovers[0].Pid != leftover || report.Leftovers[0].Session != leftover {
			t.Errorf("command %d, leftover %d, and the report says %+v", command, leftover, report)
		}
	})
}

// pidInside is the pid of a process in the innermost of its PID namespaces. See proc_pid_status(5).
func pidInside(t *testing.T, pid int) int {
	t.Helper()
	ids := strings.Fields(rig.ProcStatus(pid, "NSpid"))
	if len(ids) < 2 {
		t.Fatalf("process %d is in no namespace of its own: %q", pid, ids)
	}
	inside, err := strconv.Atoi(ids[len(ids)-1])
	if err != nil {
		t.Fatal(err)
	}
	return inside
}

// Whatever the policy is, all that is left ends with the namespace, as it does for PID 1.
func TestIsolatedPolicies(t *testing.T) {
	rig.EachUser(t, func(t *testing.T, u rig.Account) {
		for name, flags := range map[string][]string{
			"leave": {"--orphans=leave"}, "pipes": {"--orphans=pipes", "--linger=0"}, "allowed": {"--allow-orphan=sleep", "--linger=0"},
			"leave, and a report on stdout": {"--orphans=leave", "--report=-"},
		} {
			t.Run(name, func(t *testing.T) {
				l := rig.StartCmd(t, u.Command(slices.Concat([]string{"--isolate"}, flags, []string{"--", "sh", "-c",
					`sleep 1000 </dev/null >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; echo ready; read x; exit 3`})...))
				l.Out.Want("ready")
				_ = l.Stdin.Close()
				if got := l.Status(); got != 3 {
					t.Errorf("status %d", got)
				}
				out, said := l.Out.Whole(), l.Err.Whole()
				if reports := strings.Contains(out, `"leftovers": [`); reports != slices.Contains(flags, "--report=-") {
					t.Errorf("a report is on stdout: %v, which has %q; stderr has %q", reports, out, said)
				}
				if !rig.HungUp(l.Witness) {
					t.Error("a process of the tree is alive")
				}
			})
		}
	})
}

// --bind names a process outside.
func TestIsolatedNames(t *testing.T) {
	rig.EachUser(t, func(t *testing.T, u rig.Account) {
		bound := rig.Bystander(t).Process.Pid
		l := rig.StartCmd(t, u.Command("--isolate", "--bind="+strconv.Itoa(bound), "--", "sh", "-c", "echo ready; exec sleep 1000"))
		l.Out.Want("ready")
		rig.MustKill(t, bound, syscall.SIGKILL)
		l.Err.Want(fmt.Sprintf("fini: stopping the command: a process of --bind (sleep, %d) exited", bound))
		l.MustEnd(128 + 15)
	})
}

// PID 1 of the PID namespace outside may stop an isolated command: its pid is the inner fini's own there.
func TestIsolatedIsStoppedByPID1(t *testing.T) {
	rig.NeedPidNamespace(t)
	cmd := exec.Command("/proc/self/exe", "@pid1", "/bin/sh", "-c", `"$0" --isolate -p none -- sh -c 'trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.1; done' &
		read go; kill -TERM $!; wait $!; echo "status $?"; :`, rig.Fini)
	rig.AsPID1(cmd)
	l := rig.StartCmd(t, cmd)
	l.Out.Want("ready")
	_, _ = io.WriteString(l.Stdin, "\n")
	l.Out.Want("asked")
	l.Out.Want("status 0")
	l.MustEnd(0)
}
