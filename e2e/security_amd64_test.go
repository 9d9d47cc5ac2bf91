package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// docs/security.md lists the system calls that fini makes. These runs may make no other.

func init() { moreHelpers["@allow"] = helperAllow }

// helperAllow becomes a command that the kernel kills for each system call but those of the first argument.
func helperAllow(args []string) int {
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

// Those of the commands here, a static busybox, which fini does not make.
var commandsCalls = []string{"access", "brk", "clock_nanosleep", "dup2", "fork", "getegid", "getgid", "getrandom", "getuid", "lseek",
	"lstat", "mprotect", "munmap", "pipe", "pread64", "readlink", "rseq", "set_robust_list", "set_tid_address", "setgid",
	"setsid", "setuid", "stat", "vfork"}

func TestSecurityCalls(t *testing.T) {
	t.Parallel()
	busybox := need.Program(t, "busybox")
	need.That(t, isStatic(busybox), "a static busybox (busybox-static)")
	_, section, _ := strings.Cut(readFile(t, "../docs/security.md"), "\n## System calls\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var calls []string
	for _, row := range regexp.MustCompile(`(?m)^\| .* \| (.*) \|$`).FindAllStringSubmatch(section, -1) {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			calls = append(calls, m[1])
		}
	}
	if len(calls) < 50 {
		t.Fatalf("only %q", calls)
	}
	sh := func(script string) []string { return []string{"--", busybox, "sh", "-c", script} }
	// busybox runs its own setsid and sleep where they are not on PATH.
	leak := busybox + " setsid " + busybox + " sleep 1000 & "
	deaf := "trap '' TERM; while :; do " + busybox + " sleep 1; done"
	killInner := "kill -9 $PPID; " + busybox + " sleep 1000"
	for _, tt := range []struct {
		name   string
		args   []string
		status int
	}{
		{"pair", sh("exit 3"), 3},
		{"alone", append([]string{"--no-shield"}, sh("exit 3")...), 3},
		{"leftover", append([]string{"-v", "--linger=0"}, sh(leak+"exit 3")...), 3},
		{"alone, leftover", append([]string{"--no-shield", "-w", "--linger=0"}, sh(leak+"exit 3")...), 3},
		{"lingering", append([]string{"--linger=100ms", "--orphans-exit=9", "--report=REPORT"}, sh(leak+"exit 0")...), 9},
		{"deaf leftover", append([]string{"--grace=50ms", "--linger=0"}, sh("("+deaf+") & "+leak+"exit 3")...), 3},
		{"timeout", append([]string{"-t", "100ms", "--grace=50ms", "--report=/dev/stderr"}, sh(deaf)...), 124},
		{"stdin", append([]string{"-i", "-k", "5s", "--grace=50ms"}, sh(busybox+" sleep 1000")...), 143},
		{"pipes", append([]string{"--orphans=pipes", "--linger=0"}, sh(leak+"exit 3")...), 3},
		{"wait", append([]string{"--orphans=wait"}, sh(busybox+" sleep 0.1 & exit 3")...), 3},
		{"rewritten", append([]string{"-c", "-r", "TERM:INT", "-e", "130"}, sh("read a b c outer d </proc/$PPID/stat; kill -TERM $outer; "+busybox+" sleep 1000")...), 0},
		{"inner killed", append([]string{"--grace=1s"}, sh(killInner)...), 137},
		{"signal", sh("kill -TERM $$"), 143},
		{"not found", []string{"no such command"}, 127},
		{"bad flag", []string{"--no-such-flag"}, 125},
		{"version", []string{"--version"}, 0},
		{"install", []string{"--install=REPORT"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			report := filepath.Join(t.TempDir(), "file")
			args := slices.Clone(tt.args)
			for i := range args {
				args[i] = strings.Replace(args[i], "REPORT", report, 1)
			}
			h := newCgroup(t)
			argv := h.wrap(append(mode("allow", strings.Join(slices.Concat(calls, commandsCalls), ","), finiPath), args...)...)
			l := startCmd(t, exec.Command(argv[0], argv[1:]...))
			if tt.name == "stdin" {
				_ = l.Stdin.Close()
			}
			if got := l.status(); got != tt.status {
				t.Errorf("status %d, want %d: %s%s", got, tt.status, l.Out.text(), l.Err.text())
			}
			if !t.Failed() {
				until(t, "the cgroup is empty", func() bool { return len(h.alive()) == 0 })
			}
			if said := l.Err.whole(); strings.Contains(said, "without") || strings.Contains(said, "cannot") && tt.status != 125 && tt.status != 127 {
				t.Errorf("it says %q", said)
			}
		})
	}
}

var callNumbers = map[string]uint32{
	"signalfd4":       unix.SYS_SIGNALFD4,
	"recvfrom":        unix.SYS_RECVFROM,
	"recvmsg":         unix.SYS_RECVMSG,
	"capset":          unix.SYS_CAPSET,
	"move_mount":      unix.SYS_MOVE_MOUNT,
	"open_tree":       unix.SYS_OPEN_TREE,
	"statfs":          unix.SYS_STATFS,
	"sendto":          unix.SYS_SENDTO,
	"socketpair":      unix.SYS_SOCKETPAIR,
	"getcwd":          unix.SYS_GETCWD,
	"arch_prctl":      unix.SYS_ARCH_PRCTL,
	"copy_file_range": unix.SYS_COPY_FILE_RANGE,
	"sendmsg":         unix.SYS_SENDMSG,
	"capget":          unix.SYS_CAPGET,
	"chdir":           unix.SYS_CHDIR,
	"clock_gettime":   unix.SYS_CLOCK_GETTIME,
	"clone":           unix.SYS_CLONE,
	"close":           unix.SYS_CLOSE,
	"close_range":     unix.SYS_CLOSE_RANGE,
	"dup3":            unix.SYS_DUP3,
	"epoll_create1":   unix.SYS_EPOLL_CREATE1,
	"epoll_ctl":       unix.SYS_EPOLL_CTL,
	"epoll_pwait":     unix.SYS_EPOLL_PWAIT,
	"eventfd2":        unix.SYS_EVENTFD2,
	"execve":          unix.SYS_EXECVE,
	"exit":            unix.SYS_EXIT,
	"exit_group":      unix.SYS_EXIT_GROUP,
	"faccessat":       unix.SYS_FACCESSAT,
	"fchmod":          unix.SYS_FCHMOD,
	"fcntl":           unix.SYS_FCNTL,
	"fstat":           unix.SYS_FSTAT,
	"fsync":           unix.SYS_FSYNC,
	"ftruncate":       unix.SYS_FTRUNCATE,
	"futex":           unix.SYS_FUTEX,
	"getdents64":      unix.SYS_GETDENTS64,
	"geteuid":         unix.SYS_GETEUID,
	"getpgid":         unix.SYS_GETPGID,
	"getpid":          unix.SYS_GETPID,
	"getppid":         unix.SYS_GETPPID,
	"getrlimit":       unix.SYS_GETRLIMIT,
	"getrusage":       unix.SYS_GETRUSAGE,
	"getsid":          unix.SYS_GETSID,
	"getsockopt":      unix.SYS_GETSOCKOPT,
	"gettid":          unix.SYS_GETTID,
	"ioctl":           unix.SYS_IOCTL,
	"kill":            unix.SYS_KILL,
	"madvise":         unix.SYS_MADVISE,
	"mmap":            unix.SYS_MMAP,
	"mount":           unix.SYS_MOUNT,
	"nanosleep":       unix.SYS_NANOSLEEP,
	"newfstatat":      unix.SYS_NEWFSTATAT,
	"openat":          unix.SYS_OPENAT,
	"pwritev2":        unix.SYS_PWRITEV2, "rt_sigtimedwait": unix.SYS_RT_SIGTIMEDWAIT,
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
