package programs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// healthy is a process that needs a while for its clean-up.
func healthy(name string) *exec.Cmd {
	// What it waits for ends with it: it is its own child.
	const script = `trap 'echo "$0 asked"; sleep 0.1; echo "$0 done"; exit' TERM; echo ready; while :; do sleep 0.1; done`
	cmd := exec.Command("/bin/sh", "-c", script, name)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, "witness")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// runInExec mounts the file system and starts a healthy process and those that get stuck, of which the
// first one has a child. It ends with 5 after a line, or gets stuck itself.
func runInExec(args []string) int {
	runtime.LockOSThread() // which alone gets the mount namespace, and all that it starts
	dir, way, count := args[0], args[1], 0
	_, _ = fmt.Sscan(args[2], &count)
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "@in-exec:", err)
			os.Exit(1)
		}
	}
	unix.CloseOnExec(4) // the server alone keeps the connection
	must(unix.Unshare(unix.CLONE_NEWNS))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("fini-e2e", dir, "fuse", 0, "fd=4,rootmode=40000,user_id=0,group_id=0"))
	must(unix.Close(4))
	switch way {
	case "earlier":
		return runExecutes([]string{dir, ""})
	case "the main child is stuck":
		must(healthy("beside").Start())
		return runExecutes([]string{dir, "below"})
	}
	must(healthy("beside").Start())
	for i := range count {
		argv := CommandLine("executes", dir, []string{"below", ""}[min(i, 1)])
		stuck := exec.Command(argv[0], argv[1:]...)
		stuck.Stdout, stuck.Stderr, stuck.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, "witness")}
		stuck.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(stuck.Start())
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 5
}

// runExecutes gets stuck, and has a child if that is given a name.
func runExecutes(args []string) int {
	dir, below := args[0], args[1]
	var err error
	if below != "" {
		err = healthy(below).Start() // before there is what would make it stuck too
	}
	if err == nil {
		_, err = unix.Open(dir+"/program", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		err = unix.Exec("/bin/sleep", []string{"sleep", "1000"}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "@executes:", err)
	return 1
}
