package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// program is what this binary is as a process that is measured, or a command of one.
func program(name string, args []string) int {
	switch name {
	case "@floor": // the least that a Go program can do as an init
		pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
		if err != nil {
			return 1
		}
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(pid, &status, 0, nil)
		return status.ExitStatus()
	case "@clock":
		sayClock()
		return 0
	case "@wait":
		fmt.Println("ready")
		awaitEnd()
		return 0
	case "@orphans":
		n, _ := strconv.Atoi(args[0])
		return orphans(n)
	case "@latency":
		return latencies(args)
	case "@leave":
		return leave(args)
	case "@proc":
		return inProc(args)
	case "@nochildren":
		return withoutChildren(args)
	}
	fmt.Fprintln(os.Stderr, "bench: no such program:", name)
	return 99
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// sayClock writes the clock, which is the last that the caller does.
func sayClock() {
	now := monotonic()
	_, _ = syscall.Write(1, unsafe.Slice((*byte)(unsafe.Pointer(&now)), 8))
}

func awaitEnd() {
	var b [1]byte
	for {
		if n, err := syscall.Read(0, b[:]); n <= 0 && err != syscall.EINTR {
			return
		}
	}
}

// orphans leaves n processes to whoever adopts them, one by each child, as soon as it is told
// to, and stays.
func orphans(n int) int {
	fmt.Println("ready")
	var b [1]byte
	_, _ = syscall.Read(0, b[:])
	for range n {
		child := forkTwice()
		if child <= 0 {
			return 1
		}
		_, _ = syscall.Wait4(child, nil, 0, nil)
	}
	fmt.Println("made")
	awaitEnd()
	return 0
}

// forkTwice returns the pid of a child that forks another, and both end at once. In a
// copy of a Go process there is one thread and no scheduler, so it must make nothing but raw
// calls, and no call that could be preempted.
//
//go:nosplit
func forkTwice() int {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	if pid != 0 {
		return int(pid)
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// latencies says at what time each SIGUSR1 came. It waits for them in the kernel, which takes
// that they are blocked in all threads: the runtime keeps what was blocked when it started.
func latencies(args []string) int {
	set := unix.Sigset_t{}
	word := 8 * int(unsafe.Sizeof(set.Val[0]))
	set.Val[(unix.SIGUSR1-1)/syscall.Signal(word)] = 1 << ((int(unix.SIGUSR1) - 1) % word)
	if len(args) == 0 {
		runtime.LockOSThread()
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
			return 1
		}
		_ = syscall.Exec("/proc/self/exe", []string{os.Args[0], "@latency", "blocked"}, os.Environ())
		return 1
	}
	fmt.Println("ready")
	for {
		sig, _, _ := syscall.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, 0, 8, 0, 0)
		if sig == uintptr(unix.SIGUSR1) {
			sayClock()
		}
	}
}

// leave starts so many sleeping processes, each in a session of its own, says the clock and
// ends.
func leave(args []string) int {
	n, _ := strconv.Atoi(args[0])
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	for range n {
		if _, err := syscall.ForkExec(args[1], []string{"sleep", "1000"}, attr); err != nil {
			return 1
		}
	}
	sayClock()
	return 0
}

// inProc gives a new PID namespace its /proc and becomes args.
func inProc(args []string) int {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err == nil {
		err = syscall.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "bench: @proc:", err)
	return 98
}

// withoutChildren becomes args, whose own list of children in /proc is covered: so looks a
// kernel without CONFIG_PROC_CHILDREN.
func withoutChildren(args []string) int {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("none", fmt.Sprintf("/proc/%d/task", os.Getpid()), "tmpfs", 0, "")
	}
	if err == nil {
		err = syscall.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "bench: @nochildren:", err)
	return 98
}

// cost is what a process has used so far.
type cost struct {
	cpu      float64 // microseconds
	switches float64
}

// costOf adds up all threads of the given processes.
func costOf(pids []int) (c cost) {
	for _, pid := range pids {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, task := range tasks {
			dir := fmt.Sprintf("/proc/%d/task/%s/", pid, task.Name())
			text, _ := os.ReadFile(dir + "schedstat")
			ran, _, _ := bytes.Cut(text, []byte(" "))
			ns, _ := strconv.ParseFloat(string(ran), 64)
			c.cpu += ns / 1000
			c.switches += field(dir+"status", "voluntary_ctxt_switches:") + field(dir+"status", "nonvoluntary_ctxt_switches:")
		}
	}
	return c
}

// field is the number behind a name in a file of /proc.
func field(path, name string) float64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			words := bytes.Fields(rest)
			if len(words) == 0 {
				return 0
			}
			v, _ := strconv.ParseFloat(string(words[0]), 64)
			return v
		}
	}
	return 0
}

// childrenOf lists the children of a process, zombies too.
func childrenOf(parent int) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		words := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if p, err := strconv.Atoi(string(words[1])); err == nil && p == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// same lists a process and those below it that run the same program: both of a pair.
func same(pid int) []int {
	pids := []int{pid}
	program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	for _, child := range childrenOf(pid) {
		if other, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", child)); other == program && program != "" {
			pids = append(pids, same(child)...)
		}
	}
	return pids
}

// sizeOf is the size of a program, in MB.
func sizeOf(name string) float64 {
	path, err := exec.LookPath(name)
	if err != nil {
		return 0
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return float64(info.Size()) / 1e6
}
