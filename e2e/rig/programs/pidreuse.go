package programs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
)

// runPidReuse is PID 1 of a namespace with few pids. For as long as it is told, some families of
// bystanders come and go, and two workers run fini with trees that leave something. It says
// whatever went wrong, then how many there were, and ends with status 0 if nothing is left.
func runPidReuse(args []string) int {
	runtime.GOMAXPROCS(2) // no pid may be left for a thread that the runtime wants later
	limit, fini := args[0], args[2]
	long, err := time.ParseDuration(args[1])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := os.WriteFile("/proc/sys/kernel/pid_max", []byte(limit), 0); err != nil {
		fmt.Println(err)
		return 1
	}
	openR, openW, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	// A family's parent waits for each child; a signal to either of them shows in a status.
	family := CommandLine("script", `block 0
		top: fork child
		wait
		unhit on
		say hit: a bystander has had a signal
		exit 1
		on: hup 3 over
		goto top
		over: bystand 0
		saytally
		exit 0
		child: bystand 2
		exit 0`)
	bystanders := make(chan int)
	const families = 6
	for range families {
		cmd := exec.Command(family[0], family[1:]...)
		cmd.ExtraFiles = []*os.File{openR}
		go func() {
			out, err := cmd.CombinedOutput()
			n, _ := strconv.Atoi(strings.TrimSpace(string(out)))
			if err != nil || n == 0 {
				fmt.Printf("hit: a family of bystanders ended with %v: %s\n", err, out)
			}
			bystanders <- n
		}()
	}
	end := time.Now().Add(long)
	finis := make(chan int)
	const workers = 2
	for w := range workers {
		go func() {
			n := 0
			for ; time.Now().Before(end); n++ {
				flags := []string{"--linger=0", "--grace=20ms"}
				if (n+w)%2 == 0 {
					flags = append(flags, "--no-shield")
				}
				command := append(append(flags, "--"), CommandLine("script", `fork a
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
					goto coil`)...)
				cmd := exec.Command(fini, command...)
				out, err := cmd.CombinedOutput()
				if noPidIsLeft(out, err) {
					n--
					continue
				}
				if status := procfs.ShellStatus(cmd.ProcessState); status != 9 {
					fmt.Printf("status %d (%v): %s\n", status, err, out)
				}
			}
			finis <- n
		}()
	}
	runs, stood := 0, 0
	for range workers {
		runs += <-finis
	}
	// Bystanders go on until the last fini has ended, and are ended by the end of a pipe.
	_ = openW.Close()
	for range families {
		stood += <-bystanders
	}
	fmt.Println("runs", runs)
	fmt.Println("bystanders", stood)
	left := childPids()
	fmt.Println("left", left)
	if len(left) > 0 {
		return 1
	}
	return 0
}

// noPidIsLeft reports whether a fini had no process or no thread because all pids were given out.
func noPidIsLeft(out []byte, err error) bool {
	return errors.Is(err, syscall.EAGAIN) || bytes.Contains(out, []byte("temporarily unavailable")) ||
		bytes.Contains(out, []byte("failed to create new OS thread"))
}

// childPids lists the processes of this PID namespace but for the first.
func childPids() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
