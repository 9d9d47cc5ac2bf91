package leftovers

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/kills"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// withAgent is a command that starts an agent, in a session of its own, says what that said, and goes on with a script.
func withAgent(agent, script string) []string {
	return []string{"--", "/bin/sh", "-c", `dir=$(mktemp -d); mkfifo $dir/ready
		setsid ` + agent + ` 4>$dir/ready & cat $dir/ready; rm -r $dir; ` + script}
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
	byFile := rig.Linked(t, "gpg-agent") + " @agent"
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
		{"holds stdout", byFile + " 2>/dev/null <&1", "--linger=1h --allow-orphan=gpg-agent", "read line", 0,
			[]string{"leaving leftover", "until this leftover closes stdout"}, "stopping"},
		{"holds both, and nothing may be said", byFile, "-q --linger=1h --allow-orphan=gpg-agent", "read line", 0, nil, "fini"},
		{"another is stopped", byFile + quiet, "--linger=0 --orphans-exit=9 --allow-orphan=gpg-agent", "setsid sleep 1000 & " + rig.UntilSleeps + "; echo there; read line", 9,
			[]string{"stopping leftover"}, "leaving"},
		{"another is killed", byFile + quiet, "--linger=0 --grace=50ms --allow-orphan=gpg-agent",
			`setsid sh -c 'trap "" TERM; echo there; sleep 1000; sleep 1000' & read line`, 0, []string{"killing leftover"}, "leaving"},
		{"wait", byFile + quiet, "--linger=1h --orphans=wait --allow-orphan=gpg-agent", "sleep 0.2 & read line; exit 5", 5, nil, "leftover"},
		{"pipes", byFile, "--linger=0 --orphans=pipes --allow-orphan=gpg-agent", "setsid sleep 1000 & " + rig.UntilSleeps + "; echo there; read line; exit 5", 5,
			[]string{"stopping leftover", "leaving leftover"}, "killing"},
		{"at a stop", byFile + quiet, "-i --linger=1h --grace=50ms --allow-orphan=gpg-agent", `trap "" TERM; echo there; exec sleep 1000`, 128 + 9,
			[]string{"standard input has closed", "killing the command"}, "leftover"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig.InPlaces(t, rig.Pair, func(t *testing.T, p rig.Place) {
				l := rig.Start(t, p, append(strings.Fields(tt.flags), withAgent(tt.agent, tt.script)...)...)
				pids := []int{l.Out.WantPID("agent "), l.Out.WantPID("child ")}
				if !p.PID1 {
					killAtCleanup(t, pids)
				}
				if strings.Contains(tt.script, "echo there") {
					l.Out.Want("there")
				}
				rig.Write(t, l, "go\n")
				_ = l.Stdin.Close()
				if !p.PID1 {
					l.MustHaveStatus(tt.status)
					mustStayAlone(l, pids)
				}
				l.MustEnd(tt.status) // the end of PID 1 is that of its namespace
				said := l.Err.Whole()
				rest := said
				says := tt.says
				if p.PID1 && !strings.Contains(tt.flags, "-v") { // no reader waits for a process that stays
					says = slices.DeleteFunc(slices.Clone(says), func(text string) bool {
						return strings.Contains(text, "leaving") || strings.Contains(text, "closes stdout")
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
				l := rig.Launch(t, p, append([]string{"--grace=300ms", "--allow-orphan=gpg-agent", "--allow-orphan=sh", "--allow-orphan=dash"},
					withAgent(agent, `trap "" TERM; (exec sleep 1000) & read line; wait; sleep 1000`)...)...)
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

// A command line tells Gradle's daemon from another program of Java's, and a variable tells what Jenkins is to leave
// alone.
func TestAllowOrphanByItsMemory(t *testing.T) {
	t.Parallel()
	java := rig.Linked(t, "java") + " @agent "
	const quiet = " >/dev/null 2>&1 <&1"
	for name, tt := range map[string]struct{ allowed, pattern, other string }{
		"a command line": {
			java + "-Xmx512m -cp /root/.gradle/wrapper/dists/gradle-8.5-bin/x/gradle-8.5/lib/gradle-launcher-8.5.jar org.gradle.launcher.daemon.bootstrap.GradleDaemon 8.5",
			"cmd:*/gradle-launcher-*GradleDaemon*", java + "-cp /opt/tomcat/bin/bootstrap.jar org.apache.catalina.startup.Bootstrap start"},
		"a variable": {"env BUILD_ID=dontKillMe " + java, "env:BUILD_ID=dontKillMe", "env BUILD_ID=17 " + java},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.InEveryPlace(t, func(t *testing.T, p rig.Place) {
				flags := []string{"--linger=0", "--grace=50ms", "--orphans-exit=9", "--allow-orphan=" + tt.pattern}
				l := rig.Start(t, p, append(flags, withAgent(tt.allowed+quiet, "setsid "+tt.other+" 4>&1"+quiet+" & read line")...)...)
				pids := []int{l.Out.WantPID("agent "), l.Out.WantPID("child ")}
				if !p.PID1 {
					killAtCleanup(t, pids)
				}
				l.Out.WantPID("agent ")
				l.Out.WantPID("child ")
				rig.Write(t, l, "go\n")
				if !p.PID1 {
					l.MustHaveStatus(9)
					mustStayAlone(l, pids)
				}
				l.MustEnd(9)
				if said := l.Err.Whole(); strings.Count(said, "killing leftover") != 2 || strings.Contains(said, "cannot read") {
					t.Errorf("says %q", said)
				}
			})
		})
	}
}
