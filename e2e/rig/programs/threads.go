package programs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// runThreads starts a command that copies its stdin from a thread that ends, as often
// as it is told, and says "all alive" if each of them outlived that thread.
func runThreads(args []string) int {
	rounds, _ := strconv.Atoi(args[0])
	for round := range rounds {
		cmd := exec.Command(args[1], args[2:]...)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		thread := make(chan int)
		go func() {
			// A locked goroutine that ends takes its thread with it.
			runtime.LockOSThread()
			if err := cmd.Start(); err != nil {
				fmt.Println(err)
			}
			thread <- unix.Gettid()
		}()
		tid := <-thread
		for unix.Tgkill(os.Getpid(), tid, 0) == nil {
			time.Sleep(time.Millisecond) // Gosched can keep the thread from its end for ever
		}
		reader := bufio.NewReader(out)
		for _, line := range []string{"one\n", "two\n"} {
			_, _ = in.Write([]byte(line))
			if got, _ := reader.ReadString('\n'); got != line {
				fmt.Println("round", round, "got", got)
				return 1
			}
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			fmt.Println("round", round, err)
			return 1
		}
		fmt.Println("round", round) // all of them together may take longer than a line may
	}
	fmt.Println("all alive")
	return 0
}
