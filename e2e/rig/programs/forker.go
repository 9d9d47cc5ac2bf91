package programs

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// runForker says "ready", and from the moment it gets SIGTERM starts a process
// every few milliseconds for a second, each in a session of its own, and then ends.
func runForker([]string) int {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	fmt.Println("ready")
	<-c
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "witness")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 1
		}
	}
	return 0
}
