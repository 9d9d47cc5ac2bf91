package programs

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// runBystander has the given number of descendants, each the child of the one before. Each writes "bystander PID" in
// order, then each signal that it receives, and "end" when its stdin ends.
func runBystander(args []string) int {
	c := make(chan os.Signal, 1000)
	signal.Notify(c)
	fmt.Println("bystander", os.Getpid())
	if below, _ := strconv.Atoi(args[0]); below > 0 {
		argv := CommandLine("bystander", strconv.Itoa(below-1))
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		must(cmd.Start())
	}
	ended := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(ended)
	}()
	for {
		select {
		case sig := <-c:
			if sig != syscall.SIGURG && sig != syscall.SIGCHLD { // of its own runtime and child
				fmt.Println("signal", int(sig.(syscall.Signal)))
			}
		case <-ended:
			fmt.Println("end")
			return 0
		}
	}
}
