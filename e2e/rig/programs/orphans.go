package programs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// runOrphans makes as many orphans as it is told, each of them by a child that ends
// first, says "made" and waits for a line on stdin.
func runOrphans(args []string) int {
	n, _ := strconv.Atoi(args[0])
	for range n {
		// The shell ends at once and leaves the background process to the subreaper.
		if err := exec.Command("/bin/sh", "-c", "true &").Run(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("made")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if more, err := strconv.Atoi(in.Text()); err == nil {
			return runOrphans([]string{strconv.Itoa(more)})
		}
	}
	return 0
}
