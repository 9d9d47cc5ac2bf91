package pdeath_test

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/seed-126c5d8a/fini/pdeath"
)

// A program that kills its command when its own parent process exits.
func Example() {
	parent, err := pdeath.Parent()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		if parent.Wait() == nil {
			cancel()
		}
	}()
	out, err := exec.CommandContext(ctx, "echo", "the parent is alive").Output()
	fmt.Print(string(out), err)
	// Output:
	// the parent is alive
	// <nil>
}

func ExampleProcess() {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return
	}
	sleeper, err := pdeath.Process(cmd.Process.Pid)
	fmt.Println("watched:", err)
	_ = cmd.Process.Kill()
	fmt.Println("ended:", sleeper.Wait())
	sleeper.Close()
	_, err = pdeath.Process(cmd.Process.Pid) // cmd.Wait has not reaped it, but it is dead
	fmt.Println("watched again:", err)
	fmt.Println(cmd.Wait())
	// Output:
	// watched: <nil>
	// ended: <nil>
	// watched again: it has ended already
	// signal: killed
}
