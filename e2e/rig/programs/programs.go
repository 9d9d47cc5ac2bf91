// Package programs has what the test binary does when it is started with a name such as "@script" for its first
// argument: commands, leftovers and launchers that no shell could be. Each has a file. A test starts one by
// rig.Mode("script", ...).
package programs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Run runs the program of this name and exits.
func Run(name string, args []string) {
	program, ok := Programs[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such program:", name)
		os.Exit(99)
	}
	os.Exit(program(args))
}

// CommandLine is what starts a program of this test binary.
func CommandLine(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "@" + name}, args...)
}

// Programs are what this test binary can be, by what stands behind its name. A room may add its own.
var Programs = map[string]func(args []string) int{
	"@adopter":         runAdopter,
	"@agent":           runAgent,
	"@at-dead-end":     runAtDeadEnd,
	"@autoreap":        runAutoreap,
	"@burn":            runBurn,
	"@bystander":       runBystander,
	"@clean":           runClean,
	"@clock":           runClock,
	"@dead-end":        runDeadEnd,
	"@eat":             runEat,
	"@executes":        runExecutes,
	"@flip":            runFlip,
	"@forker":          runForker,
	"@fuse":            runFuse,
	"@hup-launcher":    runHupLauncher,
	"@in-dead-end":     runInDeadEnd,
	"@in-exec":         runInExec,
	"@launcher":        runLauncher,
	"@leaderless":      runLeaderless,
	"@listen":          runListen,
	"@orphans":         runOrphans,
	"@pid1":            runPID1,
	"@pidReuse":        runPidReuse,
	"@refuse":          runRefuse,
	"@script":          runScript,
	"@setsid-launcher": runSetsidLauncher,
	"@signals":         runSignals,
	"@supervisor":      runSupervisor,
	"@threadforks":     runThreadForks,
	"@threads":         runThreads,
	"@tracer":          runTracer,
}

// Only a lock in an init function makes the main goroutine keep the main thread. Some programs need that: where other threads
// end, because the runtime keeps the main thread for ever; and where a command is executed, because execve(2) keeps the
// parent death signal of the thread that calls it, and setpriv(1) has set the main thread's.
func init() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		runtime.LockOSThread()
	}
}

// forever is the end of a program that stays. Without cgo, as where there is no C compiler, the runtime
// takes an empty select for a deadlock.
func forever() int {
	for {
		time.Sleep(time.Hour)
	}
}

// awaitFact asks for a fact until it is true. Whoever started the program has the patience.
func awaitFact(fact func() bool) {
	for !fact() {
		time.Sleep(time.Millisecond)
	}
}
