package leftovers

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/kills"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// withAgent is a script that starts an agent, in a session of its own, and says what that said.
func withAgent(agent string) string {
	return "dir=$(mktemp -d); mkfifo $dir/ready; setsid " + agent + " 4>$dir/ready & cat $dir/ready; rm -r $dir\n"
}

// killAtCleanup kills processes at the end of a test, whatever it has come to.
func killAtCleanup(t testing.TB, pids []int) {
	t.Helper()
	for _, pid := range pids {
		process, err := os.FindProcess(pid) // by a pidfd
		rig.NoError(t, err)
		t.Cleanup(func() { _ = process.Kill() })
	}
}

func TestAllowOrphan(t *testing.T) {
	t.Parallel()
	const quiet, there = " >/dev/null 2>&1 <&1", "echo there; read line"
	byFile, java := rig.Linked(t, "gpg-agent")+" @agent", rig.Linked(t, "java")+" @agent "
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
		{"alone", byFile + quiet, "--linger=1h --orphans-exit=9 --allow-orphan=gpg-agent", there, 0, nil, "leftover"},
		{"said", byFile + quiet, "-v --linger=1h --allow-orphan=gpg-agent", there, 0, []string{"leaving leftover", "leaving leftover"}, "stopping"},
		{"holds stdout", byFile + " 2>/dev/null <&1", "--linger=1h --allow-orphan=gpg-agent", there, 0,
			[]string{"leaving leftover", "until this leftover closes stdout"}, "stopping"},
		{"holds both, and nothing may be said", byFile, "-q --linger=1h --allow-orphan=gpg-agent", there, 0, nil, "fini"},
		{"another is stopped", byFile + quiet, "--linger=0 --orphans-exit=9 --allow-orphan=gpg-agent", "setsid sleep 1000 & " + rig.UntilSleeps + "; " + there, 9,
			[]string{"stopping leftover"}, "leaving"},
		{"another is killed", byFile + quiet, "--linger=0 --grace=50ms --allow-orphan=gpg-agent",
			`setsid sh -c 'trap "" TERM; echo there; sleep 1000; sleep 1000' & read line`, 0, []string{"killing leftover"}, "leaving"},
		{"wait", byFile + quiet, "--linger=1h --orphans=wait --allow-orphan=gpg-agent", "sleep 0.2 & " + there + "; exit 5", 5, nil, "leftover"},
		{"pipes", byFile, "--linger=0 --orphans=pipes --allow-orphan=gpg-agent", "setsid sleep 1000 & " + rig.UntilSleeps + "; " + there + "; exit 5", 5,
			[]string{"stopping leftover", "leaving leftover"}, "killing"},
		{"at a stop", byFile + quiet, "-i --linger=1h --grace=50ms --allow-orphan=gpg-agent", `trap "" TERM; echo there; exec sleep 1000`, 128 + 9,
			[]string{"standard input has closed", "killing the command"}, "leftover"},
		// A command line tells Gradle's daemon from another program of Java's, and a variable tells what Jenkins is to leave alone.
		{"by a command line", java + "-Xmx512m -cp /root/.gradle/wrapper/dists/gradle-8.5-bin/x/gradle-8.5/lib/gradle-launcher-8.5.jar " +
			"org.gradle.launcher.daemon.bootstrap.GradleDaemon 8.5" + quiet, "--linger=0 --grace=50ms --orphans-exit=9 --allow-orphan=cmd:*/gradle-launcher-*GradleDaemon*",
			withAgent(java+"-cp /opt/tomcat/bin/bootstrap.jar org.apache.catalina.startup.Bootstrap start"+quiet) + there, 9,
			[]string{"killing leftover", "killing leftover"}, "cannot read"},
		{"by a variable", "env BUILD_ID=dontKillMe " + java + quiet, "--linger=0 --grace=50ms --orphans-exit=9 --allow-orphan=env:BUILD_ID=dontKillMe",
			withAgent("env BUILD_ID=17 "+java+quiet) + there, 9, []string{"killing leftover", "killing leftover"}, "cannot read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				l := rig.Start(t, p, append(strings.Fields(tt.flags), "--", "/bin/sh", "-c", withAgent(tt.agent)+tt.script)...)
				pids := []int{l.Out.WantPID("agent "), l.Out.WantPID("child ")}
				if !p.PID1 {
					killAtCleanup(t, pids)
				}
				l.Out.Want("there")
				rig.Write(t, l, "go\n")
				_ = l.Stdin.Close()
				if !p.PID1 {
					l.MustHaveStatus(tt.status)
					mustStayAlone(l, pids)
				}
				l.MustEnd(tt.status) // the end of PID 1 is that of its namespace
				said := l.Err.Whole()
				rest := said
				for _, want := range tt.says {
					if p.PID1 && !strings.Contains(tt.flags, "-v") && (strings.Contains(want, "leaving") || strings.Contains(want, "closes stdout")) {
						continue // no reader waits for a process that stays
					}
					var found bool
					if _, rest, found = strings.Cut(rest, want); !found {
						t.Errorf("%q is not said, or not in its place: %q", want, said)
					}
				}
				if strings.Contains(said, tt.not) {
					t.Errorf("says %q", said)
				}
			})
		})
	}
}

// What is meant to stay does so whoever ends: the launcher, or a fini. But the command is stopped
// also if it has that name.
func TestAllowOrphanThoughOthersDie(t *testing.T) {
	t.Parallel()
	agent := rig.Linked(t, "gpg-agent") + " @agent >/dev/null 2>&1 <&1"
	for _, victim := range kills.Victims[:5] {
		for _, p := range rig.AloneOrPair(t, rig.Alone) {
			t.Run(victim.Name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				if p.Alone && (strings.Contains(victim.Name, "fini") || victim.Name == "launcher's group") {
					return // nobody is left to spare anybody
				}
				l := rig.Launch(t, p, "--grace=300ms", "--allow-orphan=gpg-agent", "--allow-orphan=sh", "--allow-orphan=dash", "--", "/bin/sh", "-c",
					withAgent(agent)+`trap "" TERM; (exec sleep 1000) & read line; wait; sleep 1000`)
				pids := []int{l.Out.WantPID("agent "), l.Out.WantPID("child ")}
				killAtCleanup(t, pids)
				// Until it executes sleep, the leftover is a shell, as which it may stay.
				worker := l.Outer
				if !p.Alone {
					worker = l.Inner()
				}
				rig.Until(t, "the leftover is no shell any more", func() bool {
					return slices.ContainsFunc(procfs.ChildrenOf(t, l.ChildOf(worker)), func(pid int) bool { return procfs.Status(pid, "Name") == "sleep" })
				})
				for _, pid := range victim.Pids(l) {
					if p.Alone && victim.Name == "main child" {
						pid = l.ChildOf(l.Outer)
					}
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				rig.Until(t, "fini's end", func() bool { return procfs.StatOf(l.Outer).Gone() })
				mustStayAlone(l.Life, pids)
			})
		}
	}
}
