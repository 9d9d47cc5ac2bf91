package programs

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runScript runs a program for a machine whose instructions are raw system calls. It can fork
// without exec, thousands of times a second, which neither a Go program nor a shell can. Lines or
// semicolons end a statement; a word with a colon is a label. After a fork the child goes on at
// the label and the parent with the next statement.
func runScript(args []string) int {
	if err := assemble(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "@script:", err)
		return 99
	}
	// What is forked has this one thread and may neither allocate nor be preempted.
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	runMachine()
	return 0
}

// machine is a program of statements, and the state of the process that runs it.
var machine struct {
	ops     []instruction
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

type instruction struct {
	do     func(n, to int, text []byte) int // returns where to go on, -1 for the next
	n, to  int
	text   []byte
	target string
}

// The machine's instructions: what goes with each is n for a number, l for a label, and t for a
// text up to the end of the statement. None may grow the stack: that is where a Go program looks
// whether it is to be preempted, by a scheduler that a forked process does not have.
var instructions = map[string]struct {
	operands string
	do       func(n, to int, text []byte) int
}{
	"fork":      {"l", doFork},
	"clone":     {"nl", doClone}, // with flags of clone(2)
	"setsid":    {"", doSetsid},
	"setpgid":   {"", doSetpgid},
	"subreaper": {"", doSubreaper},
	"seize":     {"", doSeize}, // trace the last child
	"traceme":   {"", doTraceme},
	"ignore":    {"n", doIgnore},
	"block":     {"n", doBlock}, // a signal, 0 for all
	"await":     {"n", doAwait}, // a blocked signal
	"bystand":   {"n", doBystand},
	"kill":      {"n", doKill},
	"sleep":     {"n", doSleep}, // milliseconds
	"pause":     {"", doPause},
	"read":      {"", doRead}, // a byte or the end of stdin
	"wait":      {"", doWait}, // for the last child
	"reap":      {"", doReap}, // until there is no child
	"unhit":     {"l", doUnhit},
	"exit":      {"n", doExit},
	"say":       {"t", doSay},
	"saytally":  {"t", doSayTally},
	"fill":      {"n", doFill}, // so many bytes to stdout
	"close":     {"n", doClose},
	"goto":      {"l", doGoto},
	"loop":      {"nl", doLoop},
	"hup":       {"nl", doHup}, // goes on at the label if descriptor n has hung up
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
		known, ok := instructions[words[0]]
		if !ok {
			return fmt.Errorf("no such instruction: %s", statement)
		}
		op := instruction{do: known.do}
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
		machine.ops = append(machine.ops, op)
	}
	for i, op := range machine.ops {
		to, ok := labels[op.target]
		if op.target != "" && !ok {
			return fmt.Errorf("no such label: %s", op.target)
		}
		machine.ops[i].to = to
	}
	for i := range machine.block {
		machine.block[i] = FillByte(i)
	}
	if len(machine.ops) > len(machine.count) {
		return fmt.Errorf("%d statements are too many", len(machine.ops))
	}
	return nil
}

// FillByte is the byte at an offset of what "fill" writes.
func FillByte(at int) byte { return "0123456789abcdef\n"[at%4096%17] }

// runMachine runs the program. First the signal handlers of the Go runtime go, which the processes that
// are forked could not run.
//
//go:nosplit
func runMachine() {
	for n := uintptr(1); n <= 64; n++ {
		machine.action = [4]uintptr{}
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&machine.action)), 0, 8, 0, 0)
	}
	for machine.pc < len(machine.ops) {
		op := &machine.ops[machine.pc]
		if to := op.do(op.n, op.to, op.text); to >= 0 {
			machine.pc = to
			continue
		}
		machine.pc++
	}
	doExit(0, 0, nil)
}

//go:nosplit
func doFork(_, to int, _ []byte) int { return doClone(0, to, nil) }

//go:nosplit
func doClone(n, to int, _ []byte) int {
	pid, _, err := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(n)|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if err == 0 && pid == 0 {
		return to
	}
	if err == 0 {
		machine.child = pid
	}
	return -1
}

//go:nosplit
func doSetsid(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	return -1
}

//go:nosplit
func doSetpgid(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETPGID, 0, 0, 0)
	return -1
}

//go:nosplit
func doSubreaper(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0)
	return -1
}

//go:nosplit
func doSeize(_, _ int, _ []byte) int {
	if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, machine.child, 0, 0, 0, 0); err != 0 {
		doExit(96, 0, nil)
	}
	return -1
}

//go:nosplit
func doTraceme(_, _ int, _ []byte) int {
	if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0, 0, 0); err != 0 {
		doExit(96, 0, nil)
	}
	return -1
}

//go:nosplit
func doIgnore(n, _ int, _ []byte) int {
	machine.action = [4]uintptr{1} // SIG_IGN
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&machine.action)), 0, 8, 0, 0)
	return -1
}

//go:nosplit
func doBlock(n, _ int, _ []byte) int {
	machine.set = ^uint64(0)
	if n > 0 {
		machine.set = 1 << (n - 1)
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&machine.set)), 0, 8, 0, 0)
	return -1
}

//go:nosplit
func doAwait(n, _ int, _ []byte) int {
	machine.set = 1 << (n - 1)
	for {
		if got, _, err := syscall.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&machine.set)), 0, 0, 8, 0, 0); err == 0 && int(got) == n {
			return -1
		}
	}
}

// doBystand does nothing for n milliseconds and ends with status 1 if a signal came, all of
// which must be blocked.
//
//go:nosplit
func doBystand(n, _ int, _ []byte) int {
	// Its children's, and those of the Go runtime that it was before.
	machine.set = ^uint64(0) &^ (1<<(uint(unix.SIGCHLD)-1) | 1<<(uint(unix.SIGURG)-1))
	machine.timeout = unix.NsecToTimespec(int64(n) * 1e6)
	if _, _, err := syscall.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&machine.set)), 0,
		uintptr(unsafe.Pointer(&machine.timeout)), 8, 0, 0); err == 0 {
		doExit(1, 0, nil)
	}
	return -1
}

//go:nosplit
func doKill(n, _ int, _ []byte) int {
	pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_KILL, pid, uintptr(n), 0)
	return -1
}

//go:nosplit
func doSleep(n, _ int, _ []byte) int {
	machine.timeout = unix.NsecToTimespec(int64(n) * 1e6)
	_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&machine.timeout)), 0, 0, 0)
	return -1
}

//go:nosplit
func doPause(_, _ int, _ []byte) int {
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

//go:nosplit
func doRead(_, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&machine.number)), 1)
	return -1
}

//go:nosplit
func doWait(_, _ int, _ []byte) int {
	for {
		if _, _, err := syscall.RawSyscall6(unix.SYS_WAIT4, machine.child, uintptr(unsafe.Pointer(&machine.status)), 0, 0, 0, 0); err != unix.EINTR {
			return -1
		}
	}
}

//go:nosplit
func doReap(_, _ int, _ []byte) int {
	for {
		if _, _, err := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), 0, 0, 0, 0, 0); err == unix.ECHILD {
			return -1
		}
	}
}

// doUnhit goes to the label, and counts, if the last child ended with status 0.
//
//go:nosplit
func doUnhit(_, to int, _ []byte) int {
	if machine.status != 0 {
		return -1
	}
	machine.tally++
	return to
}

//go:nosplit
func doExit(n, _ int, _ []byte) int {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(n), 0, 0)
	}
}

//go:nosplit
func doSay(_, _ int, text []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(len(text)))
	return -1
}

//go:nosplit
func doSayTally(_, _ int, _ []byte) int {
	at := len(machine.number) - 1
	machine.number[at] = '\n'
	for n := machine.tally; ; n /= 10 {
		at--
		machine.number[at] = byte('0' + n%10)
		if n < 10 {
			break
		}
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&machine.number[at])), uintptr(len(machine.number)-at))
	return -1
}

//go:nosplit
func doFill(n, _ int, _ []byte) int {
	for done := 0; done < n; {
		at := done % len(machine.block)
		some := len(machine.block) - at
		if some > n-done {
			some = n - done
		}
		wrote, _, err := syscall.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&machine.block[at])), uintptr(some))
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			doExit(95, 0, nil)
		}
		done += int(wrote)
	}
	return -1
}

//go:nosplit
func doClose(n, _ int, _ []byte) int {
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(n), 0, 0)
	return -1
}

//go:nosplit
func doGoto(_, to int, _ []byte) int { return to }

// doLoop goes to the label n times.
//
//go:nosplit
func doLoop(n, to int, _ []byte) int {
	if machine.count[machine.pc] < n {
		machine.count[machine.pc]++
		return to
	}
	machine.count[machine.pc] = 0
	return -1
}

//go:nosplit
func doHup(n, to int, _ []byte) int {
	machine.poll = unix.PollFd{Fd: int32(n)}
	machine.timeout = unix.Timespec{}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&machine.poll)), 1, uintptr(unsafe.Pointer(&machine.timeout)), 0, 8, 0)
	if machine.poll.Revents&unix.POLLHUP != 0 {
		return to
	}
	return -1
}
