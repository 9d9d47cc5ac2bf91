package programs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// healthy returns a process that needs some time to clean up.
func healthy(name string) *exec.Cmd {
	// The script waits for its own child, which ends with it.
	const script = `trap 'echo "$0 asked"; sleep 0.1; echo "$0 done"; exit' TERM; echo ready; while :; do sleep 0.1; done`
	return leftover("/bin/sh", "-c", script, name)
}

// runInExec mounts the file system. It starts a healthy process, and processes that get stuck, the first of which has a
// child. When it has read a line from stdin, runInExec exits with 5 or gets stuck itself.
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

// runExecutes gets stuck in execve(2). It starts a child first if the child has a name.
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
