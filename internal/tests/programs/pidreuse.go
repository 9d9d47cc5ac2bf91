package programs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// family is a parent that waits for each of its children, and writes a line for each. A signal to one of them would
// change a status.
const family = `block 0
	top: fork child
	wait
	unhit on
	exit 1
	on: say one
	hup 3 over
	goto top
	over: bystand 0
	exit 0
	child: bystand 2
	exit 0`

// tree is a process that leaves others running, in many ways.
const tree = `fork a
	fork snake
	sleep 3
	exit 9
	a: setsid
	fork b
	exit 0
	b: fork c
	pause
	c: setsid
	ignore 15
	fork d
	fork d
	pause
	d: sleep 1
	fork e
	exit 0
	e: pause
	snake: setsid
	coil: fork next
	exit 0
	next: sleep 1
	goto coil`

// runPidReuse is PID 1 of a namespace with few pids. For the given time, families of bystanders come and go, while two
// workers run fini with trees that leave processes running. Then it writes what went wrong and how many there were. It
// exits with 0 if nothing is left.
func runPidReuse(args []string) int {
	runtime.GOMAXPROCS(2) // no pid may be left for a thread that the runtime wants later
	limit, fini := args[0], args[2]
	long, err := time.ParseDuration(args[1])
	must(err)
	must(os.WriteFile("/proc/sys/kernel/pid_max", []byte(limit), 0))
	openR, openW, err := os.Pipe()
	must(err)
	const families, workers = 6, 2
	bystanders, finis := make(chan int), make(chan int)
	for range families {
		cmd := exec.Command("/proc/self/exe", "@script", family)
		cmd.ExtraFiles = []*os.File{openR}
		go func() {
			out, err := cmd.CombinedOutput()
			n := bytes.Count(out, []byte("one\n"))
			if err != nil || n == 0 {
				fmt.Printf("hit: a family of bystanders ended with %v after %d children\n", err, n)
			}
			bystanders <- n
		}()
	}
	end := time.Now().Add(long)
	command := append([]string{"--linger=0", "--grace=20ms", "--"}, CommandLine("script", tree)...)
	for w := range workers {
		go func() {
			n := 0
			for time.Now().Before(end) {
				cmd := exec.Command(fini, command...)
				if (n+w)%2 == 0 {
					cmd = exec.Command(fini, append([]string{"--no-shield"}, command...)...)
				}
				out, err := cmd.CombinedOutput()
				if noPidIsLeft(out, err) {
					continue
				}
				n++
				if status := procfs.ShellStatus(cmd.ProcessState); status != 9 {
					fmt.Printf("status %d (%v): %s\n", status, err, out)
				}
			}
			finis <- n
		}()
	}
	sum := func(from chan int, many int) (n int) {
		for range many {
			n += <-from
		}
		return n
	}
	fmt.Println("runs", sum(finis, workers))
	// Bystanders keep running until the last fini has ended. They exit when a pipe is closed.
	_ = openW.Close()
	fmt.Println("bystanders", sum(bystanders, families))
	if left, _ := filepath.Glob("/proc/[0-9]*"); len(left) != 1 { // itself
		fmt.Println("left", left)
		return 1
	}
	return 0
}

// noPidIsLeft reports whether fini could not create a process or a thread because all pids were in use.
func noPidIsLeft(out []byte, err error) bool {
	return errors.Is(err, syscall.EAGAIN) || bytes.Contains(out, []byte("temporarily unavailable")) ||
		bytes.Contains(out, []byte("failed to create new OS thread"))
}
