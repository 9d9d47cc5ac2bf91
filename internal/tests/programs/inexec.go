package programs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// healthy is a process that needs a while for its clean-up.
func healthy(name string) *exec.Cmd {
	// What it waits for ends with it: it is its own child.
	const script = `trap 'echo "$0 asked"; sleep 0.1; echo "$0 done"; exit' TERM; echo ready; while :; do sleep 0.1; done`
	return leftover("/bin/sh", "-c", script, name)
}

// runInExec mounts the file system and starts a healthy process and those that get stuck, of which the
// first one has a child. It ends with 5 after a line, or gets stuck itself.
func runInExec(args []string) int {
	dir, way, count := args[0], args[1], 0
	_, _ = fmt.Sscan(args[2], &count)
	mountServed(dir)
	if way == "earlier" {
		return runExecutes([]string{dir, ""})
	}
	must(healthy("beside").Start())
	if way == "the main child is stuck" {
		return runExecutes([]string{dir, "below"})
	}
	for i := range count {
		must(leftover(CommandLine("executes", dir, []string{"below", ""}[min(i, 1)])...).Start())
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 5
}

// runExecutes gets stuck, and has a child if that is given a name.
func runExecutes(args []string) int {
	dir, below := args[0], args[1]
	if below != "" {
		must(healthy(below).Start()) // before there is what would make it stuck too
	}
	_, err := unix.Open(dir+"/program", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(err)
	must(unix.Exec("/bin/sleep", []string{"sleep", "1000"}, os.Environ()))
	return 1
}
