// Package programs contains what the test binary does when its first argument is a name such as "@script". These are
// commands, leftovers and launchers that can't be written as shell scripts, with one file for each. A test starts one
// with check.Mode("script", ...).
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Run runs the program with this name and exits.
func Run(name string, args []string) {
	program, ok := Programs[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such program:", name)
		os.Exit(99)
	}
	os.Exit(program(args))
}

// CommandLine returns the command line that starts a program of this test binary.
func CommandLine(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "@" + name}, args...)
}

// Programs maps names to what this test binary can do. A room may add its own.
var Programs = map[string]func(args []string) int{
	"@adopter":     runAdopter,
	"@agent":       runAgent,
	"@allow":       runAllow,
	"@at-dead-end": runAtDeadEnd,
	"@autoreap":    runAutoreap,
	"@bystander":   runBystander,
	"@dead-end":    runDeadEnd,
	"@executes":    runExecutes,
	"@forge":       runForge,
	"@fuse":        runFuse,
	"@in-dead-end": runInDeadEnd,
	"@in-exec":     runInExec,
	"@launcher":    runLauncher,
	"@leaderless":  runLeaderless,
	"@listen":      runListen,
	"@pid1":        runPID1,
	"@pidReuse":    runPidReuse,
	"@refuse":      runRefuse,
	"@script":      runScript,
	"@secretive":   runSecretive,
	"@signals":     runSignals,
	"@tracer":      runTracer,
}

// Only a lock in an init function makes the main goroutine keep the main thread. Some programs need that: where other threads
// end, because the runtime keeps the main thread for ever; where a filter or a mount namespace is this thread's alone; and
// where a command is executed, because execve(2) keeps the parent death signal of the thread that calls it, and setpriv(1)
// has set the main thread's.
func init() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		runtime.LockOSThread()
	}
}

// must ends a program that can't continue.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
}

// witness is a pipe that every process of the tree inherits.
var witness = sync.OnceValue(func() *os.File { return os.NewFile(3, "witness") })

// leftover returns a command in a new session that inherits the witness and all standard streams except stdin.
func leftover(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{witness()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// forever ends a program that keeps running. Without cgo, for example without a C compiler, the runtime would take an
// empty select for a deadlock.
func forever() int {
	for {
		time.Sleep(time.Hour)
	}
}
