package programs

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runScript runs a program for a small machine whose instructions are raw system calls. Unlike a Go program or a shell,
// it can fork without exec, thousands of times per second. Statements end with a line feed or a semicolon, and a word
// with a colon is a label. After a fork, the child continues at the label and the parent with the next statement.
func runScript(args []string) int {
	// A forked process has only this thread, must not allocate memory, and must not be preempted.
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	if err := assemble(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "@script:", err)
		return 99
	}
	runMachine()
	return 0
}

// machine is the program as a list of statements, and the state of the process that runs it.
var machine struct {
	ops    []*instruction
	pc     int
	child  uintptr
	status int32 // of the last child that was waited for
	time   unix.Timespec
	set    uint64
	action [4]uintptr
	poll   unix.PollFd
	block  [4096]byte
}

type instruction struct {
	operands string
	do       func(op *instruction) int // returns where to go on, -1 for the next
	call     [4]uintptr                // for plain and sure: a system call, of which n is the first argument if there is one
	n, to    int
	label    string
	text     []byte
	jumps    int
}

// instructions lists the instructions of the machine. Their arguments are n for a number, l for a label, and t for a
// text up to the end of the statement. None may grow the stack, because a Go program then checks whether it is to be
// preempted, and a forked process has no scheduler.
var instructions = map[string]instruction{
	"fork":      {operands: "l", do: doClone},
	"clone":     {operands: "nl", do: doClone}, // with flags of clone(2)
	"setsid":    {do: plain, call: [4]uintptr{unix.SYS_SETSID}},
	"setpgid":   {do: plain, call: [4]uintptr{unix.SYS_SETPGID}},
	"subreaper": {do: plain, call: [4]uintptr{unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1}},
	"seize":     {do: doSeize}, // trace the last child
	"traceme":   {do: sure, call: [4]uintptr{unix.SYS_PTRACE, unix.PTRACE_TRACEME}},
	"ignore":    {operands: "n", do: doIgnore},
	"block":     {operands: "n", do: doBlock},   // a signal, 0 for all
	"await":     {operands: "n", do: doAwait},   // a blocked signal
	"bystand":   {operands: "n", do: doBystand}, // for milliseconds, and exit with 1 if a signal came, all of which are blocked
	"kill":      {operands: "n", do: doKill},
	"sleep":     {operands: "n", do: doSleep}, // milliseconds
	"pause":     {do: doPause},
	"read":      {do: doRead},                 // a byte or the end of stdin
	"wait":      {do: doWait},                 // for the last child
	"unhit":     {operands: "l", do: doUnhit}, // goes to the label if the last child ended with status 0
	"exit":      {operands: "n", do: plain, call: [4]uintptr{unix.SYS_EXIT_GROUP}},
	"say":       {operands: "t", do: plain, call: [4]uintptr{unix.SYS_WRITE, 1}},
	"fill":      {operands: "n", do: doFill}, // so many bytes to stdout
	"close":     {operands: "n", do: plain, call: [4]uintptr{unix.SYS_CLOSE}},
	"goto":      {operands: "l", do: doGoto},
	"loop":      {operands: "nl", do: doLoop}, // goes to the label n times
	"hup":       {operands: "nl", do: doHup},  // goes to the label if descriptor n has hung up
}

func assemble(text string) error {
	labels := map[string]int{}
	for statement := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		words := strings.Fields(statement)
		for len(words) > 0 && strings.HasSuffix(words[0], ":") {
			labels[strings.TrimSuffix(words[0], ":")] = len(machine.ops)
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		op, ok := instructions[words[0]]
		if !ok {
			return fmt.Errorf("no such instruction: %s", statement)
		}
		rest := strings.Join(words[1:], " ")
		var err error
		switch op.operands {
		case "n":
			_, err = fmt.Sscan(rest, &op.n)
			op.call[1] = uintptr(op.n)
		case "l":
			_, err = fmt.Sscan(rest, &op.label)
		case "nl":
			_, err = fmt.Sscan(rest, &op.n, &op.label)
		case "t":
			op.text = []byte(rest + "\n")
			op.call[2], op.call[3] = uintptr(unsafe.Pointer(&op.text[0])), uintptr(len(op.text))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
		machine.ops = append(machine.ops, &op)
	}
	for _, op := range machine.ops {
		var ok bool
		if op.to, ok = labels[op.label]; op.label != "" && !ok {
			return fmt.Errorf("no such label: %s", op.label)
		}
	}
	for i := range machine.block {
		machine.block[i] = FillByte(i)
	}
	return nil
}

// FillByte returns the byte that "fill" writes at an offset.
func FillByte(at int) byte { return "0123456789abcdef\n"[at%4096%17] }

// runMachine runs the program. First the signal handlers of the Go runtime go, which the processes that
// are forked could not run.
//
//go:nosplit
func runMachine() {
	for n := uintptr(1); n <= 64; n++ {
		setAction(n, 0)
	}
	for machine.pc < len(machine.ops) {
		op := machine.ops[machine.pc]
		if to := op.do(op); to >= 0 {
			machine.pc = to
			continue
		}
		machine.pc++
	}
	exit(0)
}

//go:nosplit
func call(number, a, b, c, d uintptr) (uintptr, syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(number, a, b, c, d, 0, 0)
	return r, errno
}

//go:nosplit
func plain(op *instruction) int {
	_, _ = call(op.call[0], op.call[1], op.call[2], op.call[3], 0)
	return -1
}

// sure is plain for what a test means nothing without.
//
//go:nosplit
func sure(op *instruction) int {
	if _, errno := call(op.call[0], op.call[1], op.call[2], op.call[3], 0); errno != 0 {
		exit(96)
	}
	return -1
}

//go:nosplit
func exit(status uintptr) {
	for {
		_, _ = call(unix.SYS_EXIT_GROUP, status, 0, 0, 0)
	}
}

//go:nosplit
func doClone(op *instruction) int {
	pid, errno := call(unix.SYS_CLONE, uintptr(op.n)|uintptr(unix.SIGCHLD), 0, 0, 0)
	if errno == 0 && pid == 0 {
		return op.to
	}
	if errno == 0 {
		machine.child = pid
	}
	return -1
}

//go:nosplit
func doSeize(op *instruction) int {
	op.call = [4]uintptr{unix.SYS_PTRACE, unix.PTRACE_SEIZE, machine.child}
	return sure(op)
}

//go:nosplit
func setAction(signal, handler uintptr) {
	machine.action = [4]uintptr{handler}
	_, _ = call(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(&machine.action)), 0, 8)
}

//go:nosplit
func doIgnore(op *instruction) int {
	setAction(uintptr(op.n), 1) // SIG_IGN
	return -1
}

//go:nosplit
func doBlock(op *instruction) int {
	machine.set = ^uint64(0)
	if op.n > 0 {
		machine.set = 1 << (op.n - 1)
	}
	_, _ = call(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&machine.set)), 0, 8)
	return -1
}

//go:nosplit
func doAwait(op *instruction) int {
	machine.set = 1 << (op.n - 1)
	for {
		if got, errno := call(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&machine.set)), 0, 0, 8); errno == 0 && int(got) == op.n {
			return -1
		}
	}
}

//go:nosplit
func doBystand(op *instruction) int {
	// Leave out the signals about its children, and those of the Go runtime that it was before.
	machine.set = ^uint64(0) &^ (1<<(uint(unix.SIGCHLD)-1) | 1<<(uint(unix.SIGURG)-1))
	machine.time = unix.NsecToTimespec(int64(op.n) * 1e6)
	if _, errno := call(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&machine.set)), 0, uintptr(unsafe.Pointer(&machine.time)), 8); errno == 0 {
		exit(1)
	}
	return -1
}

//go:nosplit
func doKill(op *instruction) int {
	pid, _ := call(unix.SYS_GETPID, 0, 0, 0, 0)
	_, _ = call(unix.SYS_KILL, pid, uintptr(op.n), 0, 0)
	return -1
}

//go:nosplit
func doSleep(op *instruction) int {
	machine.time = unix.NsecToTimespec(int64(op.n) * 1e6)
	_, _ = call(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&machine.time)), 0)
	return -1
}

//go:nosplit
func doPause(*instruction) int {
	for {
		_, _ = call(unix.SYS_PPOLL, 0, 0, 0, 0)
	}
}

//go:nosplit
func doRead(*instruction) int {
	_, _ = call(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&machine.set)), 1, 0)
	return -1
}

//go:nosplit
func doWait(*instruction) int {
	for {
		if _, errno := call(unix.SYS_WAIT4, machine.child, uintptr(unsafe.Pointer(&machine.status)), 0, 0); errno != unix.EINTR {
			return -1
		}
	}
}

//go:nosplit
func doUnhit(op *instruction) int {
	if machine.status != 0 {
		return -1
	}
	return op.to
}

//go:nosplit
func doFill(op *instruction) int {
	for done := 0; done < op.n; {
		at := done % len(machine.block)
		some := len(machine.block) - at
		if some > op.n-done {
			some = op.n - done
		}
		wrote, errno := call(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&machine.block[at])), uintptr(some), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			exit(95)
		}
		done += int(wrote)
	}
	return -1
}

//go:nosplit
func doGoto(op *instruction) int { return op.to }

//go:nosplit
func doLoop(op *instruction) int {
	if op.jumps < op.n {
		op.jumps++
		return op.to
	}
	op.jumps = 0
	return -1
}

//go:nosplit
func doHup(op *instruction) int {
	machine.poll = unix.PollFd{Fd: int32(op.n)}
	machine.time = unix.Timespec{}
	_, _ = call(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&machine.poll)), 1, uintptr(unsafe.Pointer(&machine.time)), 0)
	if machine.poll.Revents&unix.POLLHUP != 0 {
		return op.to
	}
	return -1
}
