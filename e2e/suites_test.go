package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// What the Go project tests of processes and signals, with every one of its test programs behind fini.
func TestSuitesOfGo(t *testing.T) {
	t.Parallel()
	need.That(t, asInCI(), "FINI_MUST_RUN=1, without which they are not compiled, for that takes ten seconds")
	goCommand := need.Program(t, "go")
	_, err := user.Current()
	need.That(t, err == nil, "a name for this user in /etc/passwd, which a test of os/exec looks for")
	cmd := exec.Command(goCommand, "test", "-count=1", "-short", "-exec", finiPath+" --", "os/exec", "os/signal", "syscall")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// wrapsInNode is a program of Node that runs its arguments by the package foreground-child, which is what
// npm's own tools wrap commands in: it passes signals on, and ends as its child did.
const wrapsInNode = `
const { foregroundChild } = require("./node_modules/foreground-child");
foregroundChild(process.argv[1], process.argv.slice(2));
require("fs").writeSync(2, "forwards\n");
`

// Below another wrapper a command is asked once, and its status and its signal arrive, as without fini.
func TestForegroundChild(t *testing.T) {
	t.Parallel()
	node := need.Program(t, "node")
	_, err := os.Stat("node_modules/foreground-child")
	need.That(t, err == nil, "e2e/node_modules/foreground-child")
	// Until it is sleep, the shell's child has the shell's handlers: it would lose the signal and go on, and without
	// fini it would hold the output for ever.
	const traps = `for s in HUP INT TERM USR2; do trap "kill \$!; echo $s; exit 3" $s; done
		sleep 1000 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done; echo ready; wait`
	for _, wrapper := range [][]string{nil, {finiPath, "--"}, {finiPath, "--no-shield", "-c", "--"}} {
		run := func(t *testing.T, script string) *life {
			argv := slices.Concat([]string{"-e", wrapsInNode}, wrapper, []string{"/bin/sh", "-c", script})
			cmd := exec.Command(node, argv...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return startCmd(t, cmd)
		}
		name := "without"
		if wrapper != nil {
			name = strings.Join(wrapper[1:], " ")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{0, 1, 3, 255} {
				if got := run(t, fmt.Sprintf("exit %d", status)).status(); got != status {
					t.Errorf("status %d, want %d", got, status)
				}
			}
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR2} {
				l := run(t, traps)
				l.Out.want("ready")
				l.Err.want("forwards")
				if err := syscall.Kill(l.pid(), sig); err != nil {
					t.Fatal(err)
				}
				if said, want := l.Out.whole(), "ready\n"+strings.TrimPrefix(unix.SignalName(sig), "SIG")+"\n"; said != want {
					t.Errorf("%v: %q, want %q", sig, said, want)
				}
				if got := l.status(); got != 3 {
					t.Errorf("%v: status %d, want 3", sig, got)
				}
			}
			l := run(t, "kill -TERM $$")
			if got := l.status(); got != 128+15 {
				t.Errorf("a command that SIGTERM ends: %d", got)
			}
		})
	}
}
