package programs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A refusal is a system call for which a filter gives an error instead of the kernel's answer:
// all of its calls, or those with one argument that has a value or any bit of it.
type refusal struct {
	number uintptr
	arg    int // which argument, from 0
	is     uint32
	has    uint32
}

// refusals by the names that @refuse takes.
var refusals = map[string]refusal{
	"prctl":             {number: unix.SYS_PRCTL},
	"subreaper":         {number: unix.SYS_PRCTL, is: unix.PR_SET_CHILD_SUBREAPER},
	"pdeathsig":         {number: unix.SYS_PRCTL, is: unix.PR_SET_PDEATHSIG},
	"pidfd_open":        {number: unix.SYS_PIDFD_OPEN},
	"pidfd_send_signal": {number: unix.SYS_PIDFD_SEND_SIGNAL},
	"CLONE_PIDFD":       {number: unix.SYS_CLONE, has: unix.CLONE_PIDFD},
	"clone3":            {number: unix.SYS_CLONE3},
	"kill":              {number: unix.SYS_KILL},
	"getpid":            {number: unix.SYS_GETPID},
	"wait4":             {number: unix.SYS_WAIT4, arg: 2, has: unix.WALL}, // shells do without it
	"waitid":            {number: unix.SYS_WAITID},
	"WNOWAIT":           {number: unix.SYS_WAITID, arg: 3, has: unix.WNOWAIT},
	"close_range":       {number: unix.SYS_CLOSE_RANGE},
	"mount":             {number: unix.SYS_MOUNT},
	"timerfd_create":    {number: unix.SYS_TIMERFD_CREATE},
	"eventfd2":          {number: unix.SYS_EVENTFD2},
	"epoll_create1":     {number: unix.SYS_EPOLL_CREATE1},
	"epoll_ctl":         {number: unix.SYS_EPOLL_CTL},
	"epoll_pwait":       {number: unix.SYS_EPOLL_PWAIT},
	"pwritev2":          {number: unix.SYS_PWRITEV2},
	"setpgid":           {number: unix.SYS_SETPGID},
	"RLIMIT_CORE":       {number: unix.SYS_PRLIMIT64, arg: 1, is: unix.RLIMIT_CORE},
	"recvmsg":           {number: unix.SYS_RECVMSG},
	"sendto":            {number: unix.SYS_SENDTO},
	"ppoll":             {number: unix.SYS_PPOLL},
	"TIOCSPGRP":         {number: unix.SYS_IOCTL, arg: 1, is: unix.TIOCSPGRP},
}

// code is the part of a filter that refuses, and otherwise goes on behind its end.
func (r refusal) code(errno syscall.Errno) []unix.SockFilter {
	load := func(offset int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
	}
	refuse := unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	test := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: r.is}
	switch {
	case r.has != 0:
		test.Code, test.K = unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, r.has
	case r.is == 0:
		return []unix.SockFilter{
			load(0), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(r.number)}, refuse,
		}
	}
	return []unix.SockFilter{
		load(0), // struct seccomp_data begins with the call's number; its arguments are 64 bits each
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: uint32(r.number)},
		load(16 + 8*r.arg), test, refuse,
	}
}

// runRefuse becomes a command for which the kernel refuses system calls. The first argument
// names them, with commas between, and behind a colon the error, which is ENOSYS if there is
// none. The filter is inherited by whatever the command starts.
func runRefuse(args []string) int {
	names, kind, _ := strings.Cut(args[0], ":")
	errno := unix.ENOSYS
	if kind == "EPERM" {
		errno = unix.EPERM
	}
	var filter []unix.SockFilter
	for name := range strings.SplitSeq(names, ",") {
		r, ok := refusals[name]
		if !ok {
			fmt.Println("@refuse: no such call:", name)
			return 97
		}
		filter = append(filter, r.code(errno)...)
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(args[1], args[1:], os.Environ())
	}
	fmt.Println("@refuse:", err)
	return 97
}
