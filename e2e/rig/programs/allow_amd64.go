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

func init() { Programs["@allow"] = runAllow }

// runAllow becomes a command that the kernel kills for each system call but those of the first argument.
func runAllow(args []string) int {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	allow := unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}
	for name := range strings.SplitSeq(args[0], ",") {
		number, ok := callNumbers[name]
		if !ok {
			fmt.Println("@allow: no such call:", name)
			return 97
		}
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: number}, allow)
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_KILL_PROCESS})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(args[1], args[1:], os.Environ())
	}
	fmt.Println("@allow:", err)
	return 97
}

var callNumbers = map[string]uint32{
	"select":            unix.SYS_SELECT,
	"signalfd4":         unix.SYS_SIGNALFD4,
	"fstatfs":           unix.SYS_FSTATFS,
	"recvfrom":          unix.SYS_RECVFROM,
	"recvmsg":           unix.SYS_RECVMSG,
	"sendto":            unix.SYS_SENDTO,
	"socketpair":        unix.SYS_SOCKETPAIR,
	"getcwd":            unix.SYS_GETCWD,
	"arch_prctl":        unix.SYS_ARCH_PRCTL,
	"copy_file_range":   unix.SYS_COPY_FILE_RANGE,
	"sendmsg":           unix.SYS_SENDMSG,
	"chdir":             unix.SYS_CHDIR,
	"clock_gettime":     unix.SYS_CLOCK_GETTIME,
	"clone":             unix.SYS_CLONE,
	"close":             unix.SYS_CLOSE,
	"close_range":       unix.SYS_CLOSE_RANGE,
	"dup3":              unix.SYS_DUP3,
	"epoll_create1":     unix.SYS_EPOLL_CREATE1,
	"epoll_ctl":         unix.SYS_EPOLL_CTL,
	"epoll_pwait":       unix.SYS_EPOLL_PWAIT,
	"eventfd2":          unix.SYS_EVENTFD2,
	"execve":            unix.SYS_EXECVE,
	"exit":              unix.SYS_EXIT,
	"exit_group":        unix.SYS_EXIT_GROUP,
	"faccessat":         unix.SYS_FACCESSAT,
	"fchmod":            unix.SYS_FCHMOD,
	"fcntl":             unix.SYS_FCNTL,
	"fstat":             unix.SYS_FSTAT,
	"fsync":             unix.SYS_FSYNC,
	"ftruncate":         unix.SYS_FTRUNCATE,
	"futex":             unix.SYS_FUTEX,
	"getdents64":        unix.SYS_GETDENTS64,
	"geteuid":           unix.SYS_GETEUID,
	"getpgid":           unix.SYS_GETPGID,
	"getpid":            unix.SYS_GETPID,
	"getppid":           unix.SYS_GETPPID,
	"getrlimit":         unix.SYS_GETRLIMIT,
	"getrusage":         unix.SYS_GETRUSAGE,
	"getsid":            unix.SYS_GETSID,
	"getsockopt":        unix.SYS_GETSOCKOPT,
	"gettid":            unix.SYS_GETTID,
	"ioctl":             unix.SYS_IOCTL,
	"kill":              unix.SYS_KILL,
	"madvise":           unix.SYS_MADVISE,
	"mmap":              unix.SYS_MMAP,
	"nanosleep":         unix.SYS_NANOSLEEP,
	"newfstatat":        unix.SYS_NEWFSTATAT,
	"openat":            unix.SYS_OPENAT,
	"pwritev2":          unix.SYS_PWRITEV2,
	"pidfd_open":        unix.SYS_PIDFD_OPEN,
	"pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL,
	"pipe2":             unix.SYS_PIPE2,
	"ppoll":             unix.SYS_PPOLL,
	"prctl":             unix.SYS_PRCTL,
	"prlimit64":         unix.SYS_PRLIMIT64,
	"read":              unix.SYS_READ,
	"readlinkat":        unix.SYS_READLINKAT,
	"renameat":          unix.SYS_RENAMEAT,
	"restart_syscall":   unix.SYS_RESTART_SYSCALL,
	"rt_sigaction":      unix.SYS_RT_SIGACTION,
	"rt_sigprocmask":    unix.SYS_RT_SIGPROCMASK,
	"rt_sigreturn":      unix.SYS_RT_SIGRETURN,
	"sched_getaffinity": unix.SYS_SCHED_GETAFFINITY,
	"sched_yield":       unix.SYS_SCHED_YIELD,
	"setpgid":           unix.SYS_SETPGID,
	"splice":            unix.SYS_SPLICE,
	"sigaltstack":       unix.SYS_SIGALTSTACK,
	"tgkill":            unix.SYS_TGKILL,
	"timerfd_create":    unix.SYS_TIMERFD_CREATE,
	"timerfd_settime":   unix.SYS_TIMERFD_SETTIME,
	"uname":             unix.SYS_UNAME,
	"unlinkat":          unix.SYS_UNLINKAT,
	"wait4":             unix.SYS_WAIT4,
	"waitid":            unix.SYS_WAITID,
	"write":             unix.SYS_WRITE,
	"access":            unix.SYS_ACCESS,
	"brk":               unix.SYS_BRK,
	"getuid":            unix.SYS_GETUID,
	"getgid":            unix.SYS_GETGID,
	"getegid":           unix.SYS_GETEGID,
	"setsid":            unix.SYS_SETSID,
	"poll":              unix.SYS_POLL,
	"set_tid_address":   unix.SYS_SET_TID_ADDRESS,
	"set_robust_list":   unix.SYS_SET_ROBUST_LIST,
	"rseq":              unix.SYS_RSEQ,
	"getrandom":         unix.SYS_GETRANDOM,
	"mprotect":          unix.SYS_MPROTECT,
	"munmap":            unix.SYS_MUNMAP,
	"readlink":          unix.SYS_READLINK,
	"stat":              unix.SYS_STAT,
	"dup2":              unix.SYS_DUP2,
	"pipe":              unix.SYS_PIPE,
	"vfork":             unix.SYS_VFORK,
	"fork":              unix.SYS_FORK,
	"lseek":             unix.SYS_LSEEK,
	"pread64":           unix.SYS_PREAD64,
	"clock_nanosleep":   unix.SYS_CLOCK_NANOSLEEP,
	"sysinfo":           unix.SYS_SYSINFO,
	"lstat":             unix.SYS_LSTAT,
	"setuid":            unix.SYS_SETUID,
	"setgid":            unix.SYS_SETGID,
}
