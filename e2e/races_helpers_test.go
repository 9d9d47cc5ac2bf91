package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	moreHelpers["@grow"] = helperGrow
	moreHelpers["@leaderless"] = helperLeaderless
	moreHelpers["@threadforks"] = helperThreadForks
	moreHelpers["@pidReuse"] = helperPidReuse
	if len(os.Args) > 1 && os.Args[1] == "@leaderless" {
		runtime.LockOSThread() // in init, this makes the main goroutine keep the main thread
	}
}

// helperGrow runs a program for a machine whose instructions are raw system calls. It can fork
// without exec, thousands of times a second, which neither a Go program nor a shell can. Lines or
// semicolons end a statement; a word with a colon is a label. After a fork the child goes on at
// the label and the parent with the next statement.
func helperGrow(args []string) int {
	if err := assemble(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "@grow:", err)
		return 99
	}
	// What is forked has this one thread and may neither allocate nor be preempted.
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	grow()
	return 0
}

// grown is a program of statements, and the state of the process that runs it.
var grown struct {
	ops     []growOp
	pc      int
	count   [1000]int // of each loop: how often it jumped
	child   uintptr
	status  int32 // of the last child that was waited for
	tally   int
	timeout unix.Timespec
	set     uint64
	action  [4]uintptr
	poll    unix.PollFd
	number  [20]byte
	block   [4096]byte
}

type growOp struct {
	do     func(n, to int, text []byte) int // returns where to go on, -1 for the next
	n, to  int
	text   []byte
	target string
}

// The machine's instructions: what goes with each is n for a number, l for a label, and t for a
// text up to the end of the statement. None may grow the stack: that is where a Go program looks
// whether it is to be preempted, by a scheduler that a forked process does not have.
var growInstructions = map[string]struct {
	operands string
	do       func(n, to int, text []byte) int
}{
	"fork":      {"l", growFork},
	"clone":     {"nl", growClone}, // with flags of clone(2)
	"setsid":    {"", growSetsid},
	"setpgid":   {"", growSetpgid},
	"subreaper": {"", growSubreaper},
	"seize":     {"", growSeize}, // trace the last child
	"traceme":   {"", growTraceme},
	"ignore":    {"n", growIgnore},
	"block":     {"n", growBlock}, // a signal, 0 for all
	"await":     {"n", growAwait}, // a blocked signal
	"bystand":   {"n", growBystand},
	"kill":      {"n", growKill},
	"nap":       {"n", growNap}, // milliseconds
	"pause":     {"", growPause},
	"read":      {"", growRead}, // a byte or the end of stdin
	"wait":      {"", growWait}, // for the last child
	"reap":      {"", growReap}, // until there is no child
	"unhit":     {"l", growUnhit},
	"exit":      {"n", growExit},
	"say":       {"t", growSay},
	"saytally":  {"t", growSayTally},
	"fill":      {"n", growFill}, // so many bytes to stdout
	"close":     {"n", growClose},
	"goto":      {"l", growGoto},
	"loop":      {"nl", growLoop},
	"hup":       {"nl", growHup}, // goes on at the label if descriptor n has hung up
}

func assemble(text string) error {
	labels := map[string]int{}
	for statement := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		words := strings.Fields(statement)
		for len(words) > 0 && strings.HasSuffix(words[0], ":") {
			labels[strings.TrimSuffix(words[0], ":")] = len(grown.ops)
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		known, ok := growInstructions[words[0]]
		if !ok {
			return fmt.Errorf("no such instruction: %s", statement)
		}
		op := growOp{do: known.do}
		words = words[1:]
		for _, operand := range known.operands {
			if operand == 't' {
				op.text = []byte(strings.Join(words, " ") + "\n")
				break
			}
			if len(words) == 0 {
				return fmt.Errorf("an operand is missing: %s", statement)
			}
			if operand == 'l' {
				op.target = words[0]
			} else {
				n, err := strconv.ParseInt(words[0], 0, 64)
				if err != nil {
					return fmt.Errorf("%s: %w", statement, err)
				}
				op.n = int(n)
			}
			words = words[1:]
		}
		grown.ops = append(grown.ops, op)
	}
	for i, op := range grown.ops {
		to, ok := labels[op.target]
		if op.target != "" && !ok {
			return fmt.Errorf("no such label: %s", op.target)
		}
		grown.ops[i].to = to
	}
	for i := range grown.block {
		grown.block[i] = fillByte(i)
	}
	if len(grown.ops) > len(grown.count) {
		return fmt.Errorf("%d statements are too many", len(grown.ops))
	}
	return nil
}

// fillByte is the byte at an offset of what "fill" writes.
func fillByte(at int) byte { return "0123456789abcdef\n"[at%4096%17] }

// grow runs the program. First the signal handlers of the Go runtime go, which the processes that
// are forked could not run.
//
//go:nosplit
func grow() {
	for n := uintptr(1); n <= 64; n++ {
		grown.action = [4]uintptr{}
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&grown.action)), 0, 8, 0, 0)
	}
	for grown.pc < len(grown.ops) {
		op := &grown.ops[grown.pc]
		if to := op.do(op.n, op.to, op.text); to >= 0 {
			grown.pc = to
			continue
		}
		grown.pc++
	}
	growExit(0, 0, nil)
}

//go:nosplit
func growFork(_, to int, _ []byte) int { return growClone(0, to, nil) }

//go:nosplit
func growClone(n, to int, _ []byte) int {
	pid, _, err := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(n)|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if err == 0 && pid == 0 {
		return to
	}
	if err == 0 {
		grown.child = pid
	}
	return -1
}

//go:nosplit
func growSetsid(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	return -1
}

//go:nosplit
func growSetpgid(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETPGID, 0, 0, 0)
	return -1
}

//go:nosplit
func growSubreaper(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0)
	return -1
}

//go:nosplit
func growSeize(_, _ int, _ []byte) int {
	if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, grown.child, 0, 0, 0, 0); err != 0 {
		growExit(96, 0, nil)
	}
	return -1
}

//go:nosplit
func growTraceme(_, _ int, _ []byte) int {
	if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0, 0, 0); err != 0 {
		growExit(96, 0, nil)
	}
	return -1
}

//go:nosplit
func growIgnore(n, _ int, _ []byte) int {
	grown.action = [4]uintptr{1} // SIG_IGN
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&grown.action)), 0, 8, 0, 0)
	return -1
}

//go:nosplit
func growBlock(n, _ int, _ []byte) int {
	grown.set = ^uint64(0)
	if n > 0 {
		grown.set = 1 << (n - 1)
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&grown.set)), 0, 8, 0, 0)
	return -1
}

//go:nosplit
func growAwait(n, _ int, _ []byte) int {
	grown.set = 1 << (n - 1)
	for {
		if got, _, err := syscall.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&grown.set)), 0, 0, 8, 0, 0); err == 0 && int(got) == n {
			return -1
		}
	}
}

// growBystand does nothing for n milliseconds and ends with status 1 if a signal came, all of
// which must be blocked.
//
//go:nosplit
func growBystand(n, _ int, _ []byte) int {
	// Its children's, and those of the Go runtime that it was before.
	grown.set = ^uint64(0) &^ (1<<(uint(unix.SIGCHLD)-1) | 1<<(uint(unix.SIGURG)-1))
	grown.timeout = unix.Timespec{Nsec: int64(n) * 1e6}
	if _, _, err := syscall.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&grown.set)), 0,
		uintptr(unsafe.Pointer(&grown.timeout)), 8, 0, 0); err == 0 {
		growExit(1, 0, nil)
	}
	return -1
}

//go:nosplit
func growKill(n, _ int, _ []byte) int {
	pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_KILL, pid, uintptr(n), 0)
	return -1
}

//go:nosplit
func growNap(n, _ int, _ []byte) int {
	grown.timeout = unix.Timespec{Sec: int64(n / 1000), Nsec: int64(n%1000) * 1e6}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&grown.timeout)), 0, 0, 0)
	return -1
}

//go:nosplit
func growPause(_, _ int, _ []byte) int {
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

//go:nosplit
func growRead(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&grown.number)), 1)
	return -1
}

//go:nosplit
func growWait(_, _ int, _ []byte) int {
	for {
		if _, _, err := syscall.RawSyscall6(unix.SYS_WAIT4, grown.child, uintptr(unsafe.Pointer(&grown.status)), 0, 0, 0, 0); err != unix.EINTR {
			return -1
		}
	}
}

//go:nosplit
func growReap(_, _ int, _ []byte) int {
	for {
		if _, _, err := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), 0, 0, 0, 0, 0); err == unix.ECHILD {
			return -1
		}
	}
}

// growUnhit goes to the label, and counts, if the last child ended with status 0.
//
//go:nosplit
func growUnhit(_, to int, _ []byte) int {
	if grown.status != 0 {
		return -1
	}
	grown.tally++
	return to
}

//go:nosplit
func growExit(n, _ int, _ []byte) int {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(n), 0, 0)
	}
}

//go:nosplit
func growSay(_, _ int, text []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(len(text)))
	return -1
}

//go:nosplit
func growSayTally(_, _ int, _ []byte) int {
	at := len(grown.number) - 1
	grown.number[at] = '\n'
	for n := grown.tally; ; n /= 10 {
		at--
		grown.number[at] = byte('0' + n%10)
		if n < 10 {
			break
		}
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&grown.number[at])), uintptr(len(grown.number)-at))
	return -1
}

//go:nosplit
func growFill(n, _ int, _ []byte) int {
	for done := 0; done < n; {
		at := done % len(grown.block)
		some := len(grown.block) - at
		if some > n-done {
			some = n - done
		}
		wrote, _, err := syscall.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&grown.block[at])), uintptr(some))
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			growExit(95, 0, nil)
		}
		done += int(wrote)
	}
	return -1
}

//go:nosplit
func growClose(n, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(n), 0, 0)
	return -1
}

//go:nosplit
func growGoto(_, to int, _ []byte) int { return to }

// growLoop goes to the label n times.
//
//go:nosplit
func growLoop(n, to int, _ []byte) int {
	if grown.count[grown.pc] < n {
		grown.count[grown.pc]++
		return to
	}
	grown.count[grown.pc] = 0
	return -1
}

//go:nosplit
func growHup(n, to int, _ []byte) int {
	grown.poll = unix.PollFd{Fd: int32(n)}
	grown.timeout = unix.Timespec{}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&grown.poll)), 1, uintptr(unsafe.Pointer(&grown.timeout)), 0, 8, 0)
	if grown.poll.Revents&unix.POLLHUP != 0 {
		return to
	}
	return -1
}

// helperLeaderless says "ready" when its first thread has ended: a zombie of which other threads
// live on. With an argument it ignores SIGTERM.
func helperLeaderless(args []string) int {
	if len(args) > 0 {
		signal.Ignore(syscall.SIGTERM)
	}
	go func() {
		poll(patience, func() bool { return procState(os.Getpid()) == 'Z' })
		fmt.Println("ready")
		forever()
	}()
	for range 4 {
		go func() {
			runtime.LockOSThread()
			for {
				_ = unix.Pause()
			}
		}()
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	return 0
}

// procState is the state of a process as /proc has it, and 0 if there is none.
func procState(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := strings.LastIndexByte(string(text), ')') + 2
	if err != nil || at >= len(text) {
		return 0
	}
	return text[at]
}

// helperThreadForks starts children from threads that end, says "ready", and stays.
func helperThreadForks([]string) int {
	runtime.LockOSThread() // no thread that ends may be this one
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
			runtime.Gosched()
		}
	}
	fmt.Println("ready")
	return forever()
}

// helperPidReuse is PID 1 of a namespace with few pids. For as long as it is told, some families of
// bystanders come and go, and two workers run fini with trees that leave something. It says
// whatever went wrong, then how many there were, and ends with status 0 if nothing is left.
func helperPidReuse(args []string) int {
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
	family := mode("grow", `block 0
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
				command := append(append(flags, "--"), mode("grow", `fork a
					fork snake
					nap 3
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
					d: nap 1
					fork e
					exit 0
					e: pause
					snake: setsid
					coil: fork next
					exit 0
					next: nap 1
					goto coil`)...)
				cmd := exec.Command(fini, command...)
				out, err := cmd.CombinedOutput()
				if status := shellStatus(cmd.ProcessState); status != 9 {
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
