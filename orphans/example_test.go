package orphans_test

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/seed-126c5d8a/fini/orphans"
)

// A command exits, and has left a process behind. The process keeps the command's standard output open, so a reader of the
// pipe would wait for it.
func Example() {
	tree, err := orphans.Adopt()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tree.Close()

	read, write, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer read.Close()
	cmd := exec.Command("sh", "-c", "sleep 1000 &")
	cmd.Stdout = write
	err = cmd.Run()
	write.Close()
	fmt.Println("the command:", err)

	left, err := tree.Look()
	fmt.Println("left:", len(left), err)
	holders, err := tree.Holders(read)
	fmt.Println("of these hold its output:", len(holders), err)

	err = tree.End(5 * time.Second)
	reaped, _ := tree.Reap() // no other command is running
	fmt.Println("ended:", reaped, err)
	// Output:
	// the command: <nil>
	// left: 1 <nil>
	// of these hold its output: 1 <nil>
	// ended: 1 <nil>
}
