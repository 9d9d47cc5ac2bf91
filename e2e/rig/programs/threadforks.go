package programs

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runThreadForks starts children from threads that end, says "ready", and stays.
func runThreadForks([]string) int {
	for range 5 {
		thread := make(chan int)
		go func() {
			runtime.LockOSThread()
			cmd := exec.Command("/bin/sleep", "1000")
			cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				fmt.Println(err)
			}
			thread <- unix.Gettid()
		}()
		for tid := <-thread; unix.Tgkill(os.Getpid(), tid, 0) == nil; {
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Println("ready")
	return forever()
}
