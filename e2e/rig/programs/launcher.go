package programs

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"golang.org/x/sys/unix"
)

// runSetsidLauncher forks, moves to a session of its own, and lets the child execute fini
// only then.
func runSetsidLauncher(args []string) int {
	cmd := exec.Command("/bin/sh", append([]string{"-c", `read moved <&4; exec "$@" 4<&-`, "sh"}, args...)...)
	r, w, err := os.Pipe()
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness"), r}
		err = cmd.Start()
	}
	if err == nil {
		_ = unix.Close(3)
		_, err = unix.Setsid()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = w.WriteString("moved\n")
	_ = cmd.Wait()
	return procfs.ShellStatus(cmd.ProcessState)
}

// runHupLauncher leads a session and runs a command that is started with SIGHUP ignored, or
// with its default, while it itself ignores it, or does not. It goes on as @launcher.
func runHupLauncher(args []string) int {
	signal.Ignore(syscall.SIGHUP)
	if args[0] == "heeds" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return runLauncher(args[1:])
}

// runLauncher leads a session, starts a command with its own streams and the witness, lets go of the
// witness, says "fini PID", and waits for the command's end.
func runLauncher(args []string) int {
	_, _ = unix.Setsid() // see launch; it may lead one already
	cmd := exec.Command(args[0], args[1:]...)
	witness := os.NewFile(3, "witness")
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{witness}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	_ = witness.Close()
	fmt.Println("fini", cmd.Process.Pid)
	_ = cmd.Wait()
	return procfs.ShellStatus(cmd.ProcessState)
}
