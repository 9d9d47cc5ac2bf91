package reaper_test

import (
	"fmt"
	"os"
	"syscall"

	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// An init in short: it passes signals on to the command, and ends when no process of the tree is left.
func Example() {
	caught, err := signals.Catch(0, nil)
	if err != nil {
		fmt.Println(err)
	}
	caught.Children()
	if err := reaper.Subreaper(); err != nil {
		fmt.Println(err)
	}
	// The command passes a signal to the init, and leaves a process behind.
	command := []string{"sh", "-c", "trap 'sleep 0.1 & exit 7' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"}
	child, err := reaper.Spawn(reaper.Command{Args: command, Env: os.Environ(), Terminal: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	lives := true
	for none := false; !none; {
		caught.Wait(0, nil)
		for _, got := range caught.Take() {
			if lives && got.Signal != syscall.SIGCHLD {
				fmt.Println("passing on", signals.Name(got.Signal))
				_ = signals.To(child.Pid, got.Signal)
			}
		}
		var exits []reaper.Exit
		exits, none, err = reaper.Reap(nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, x := range exits {
			if x.Pid == child.Pid && x.Ended() {
				lives = false
				fmt.Println("the command has exited with", x.Status.ExitStatus())
			}
		}
	}
	fmt.Println("nothing is left")
	// Output:
	// passing on SIGUSR1
	// the command has exited with 7
	// nothing is left
}
