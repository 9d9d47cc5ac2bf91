package programs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A refusal is a system call for which a filter returns an error. It applies to all calls, or to those in which an
// argument has a certain value or any of certain bits.
type refusal struct {
	number uint32
	arg    uint32 // which argument, from 0
	test   uint16 // is or has, or 0 for all
	value  uint32
}

const (
	is  = unix.BPF_JEQ
	has = unix.BPF_JSET
)

// refusals maps the names that @refuse accepts.
var refusals = map[string]refusal{
	"prctl":             {number: unix.SYS_PRCTL},
	"subreaper":         {unix.SYS_PRCTL, 0, is, unix.PR_SET_CHILD_SUBREAPER},
	"pdeathsig":         {unix.SYS_PRCTL, 0, is, unix.PR_SET_PDEATHSIG},
	"pidfd_open":        {number: unix.SYS_PIDFD_OPEN},
	"pidfd_send_signal": {number: unix.SYS_PIDFD_SEND_SIGNAL},
	"CLONE_PIDFD":       {unix.SYS_CLONE, 0, has, unix.CLONE_PIDFD},
	"clone3":            {number: unix.SYS_CLONE3},
	"kill":              {number: unix.SYS_KILL},
	"getpid":            {number: unix.SYS_GETPID},
	"wait4":             {unix.SYS_WAIT4, 2, has, unix.WALL}, // shells do without it
	"waitid":            {number: unix.SYS_WAITID},
	"close_range":       {number: unix.SYS_CLOSE_RANGE},
	"mount":             {number: unix.SYS_MOUNT},
	"timerfd_create":    {number: unix.SYS_TIMERFD_CREATE},
	"eventfd2":          {number: unix.SYS_EVENTFD2},
	"epoll_create1":     {number: unix.SYS_EPOLL_CREATE1},
	"epoll_ctl":         {number: unix.SYS_EPOLL_CTL},
	"epoll_pwait":       {number: unix.SYS_EPOLL_PWAIT},
	"pwritev2":          {number: unix.SYS_PWRITEV2},
	"setpgid":           {number: unix.SYS_SETPGID},
	"RLIMIT_CORE":       {unix.SYS_PRLIMIT64, 1, is, unix.RLIMIT_CORE},
	"recvmsg":           {number: unix.SYS_RECVMSG},
	"sendto":            {number: unix.SYS_SENDTO},
	"ppoll":             {number: unix.SYS_PPOLL},
	"TIOCSPGRP":         {unix.SYS_IOCTL, 1, is, unix.TIOCSPGRP},
}

// load and jump return instructions of a filter. struct seccomp_data begins with the number of the system call, and its
// arguments have 64 bits each.
func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jump(test uint16, value uint32, otherwise uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | test, K: value, Jf: otherwise}
}

func ret(action uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET, K: action} }

// runRefuse executes a command for which the kernel refuses system calls. The first argument lists their names,
// separated by commas. A colon may follow, and the error to return. The default error is ENOSYS.
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
		filter = append(filter, load(0), jump(is, r.number, 3),
			load(16+8*r.arg), jump(r.test, r.value, 1), ret(unix.SECCOMP_RET_ERRNO|uint32(errno)))
	}
	return becomeFiltered(append(filter, ret(unix.SECCOMP_RET_ALLOW)), args[1:])
}

// runAllow executes a command that the kernel kills at any system call whose number is not in the first argument.
func runAllow(args []string) int {
	filter := []unix.SockFilter{load(0)}
	for text := range strings.SplitSeq(args[0], ",") {
		number, err := strconv.Atoi(text)
		must(err)
		filter = append(filter, jump(is, uint32(number), 1), ret(unix.SECCOMP_RET_ALLOW))
	}
	return becomeFiltered(append(filter, ret(unix.SECCOMP_RET_KILL_PROCESS)), args[1:])
}

// becomeFiltered executes a command with a filter, which the command's children inherit.
func becomeFiltered(filter []unix.SockFilter, argv []string) int {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(argv[0], argv, os.Environ())
	}
	fmt.Println(os.Args[1], err)
	return 97
}
