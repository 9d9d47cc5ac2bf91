package reaper

import (
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Variables by which systemd says which process it means: the one for which the sockets are,
// the one that keeps the watchdog quiet, the one that a unit starts. It names fini and means
// the command, whose pid is known only once it has been forked. See sd_listen_fds(3),
// sd_watchdog_enabled(3), systemd.exec(5).
var pidVariables = []string{"LISTEN_PID=", "WATCHDOG_PID=", "SYSTEMD_EXEC_PID="}

// listenPidfd is LISTEN_PID once more, by the inode number of a pidfd, which is never used
// again. Since systemd 258.
const listenPidfd = "LISTEN_PIDFDID="

// NamesPid reports whether a variable names a process to which systemd has something to say.
func NamesPid(env []string, pid int) bool {
	return slices.ContainsFunc(pidVariables, func(name string) bool {
		return slices.Contains(env, name+strconv.Itoa(pid))
	})
}

// Become executes the command in place of this process. Variables that named the process
// named name this one from then on. It returns only if it can't; the error is a *SpawnError.
func Become(c Command, named int) error {
	env := rename(c.Env, named, os.Getpid())
	return c.tryAll(func(path string, args []string) error {
		if err := unix.Access(path, unix.F_OK); err != nil {
			return err
		}
		for fd, closed := range c.Inherited.Closed {
			if closed {
				_ = unix.Close(fd)
			}
		}
		return withMask(c.Inherited.Blocked, func() error { return syscall.Exec(path, args, env) })
	})
}

// Rename is env with this process's name in place of that of another, which is outside of this
// PID namespace, and of which there is a pidfd.
func Rename(env []string, outside, pidfd int) []string {
	before, _ := inode(pidfd)
	return renameBy(env, outside, os.Getpid(), before)
}

// rename is env with the name of one process in place of another's.
func rename(env []string, from, to int) []string {
	before, _ := pidfdInode(from)
	return renameBy(env, from, to, before)
}

func renameBy(env []string, from, to int, fromInode string) []string {
	toInode, _ := pidfdInode(to)
	renamed := map[string]string{}
	for _, name := range pidVariables {
		renamed[name+strconv.Itoa(from)] = name + strconv.Itoa(to)
	}
	if fromInode != "" && toInode != "" {
		renamed[listenPidfd+fromInode] = listenPidfd + toInode
	}
	env = slices.Clone(env)
	for i, variable := range env {
		if now, ok := renamed[variable]; ok {
			env[i] = now
		}
	}
	return env
}

// pidfdInode is the inode number of a process's pidfds, its own since Linux 6.9.
func pidfdInode(pid int) (string, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return inode(fd)
}

func inode(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	return strconv.FormatUint(st.Ino, 10), nil
}

// Self returns a path by which this program can be executed again, "" if there is none. If
// /proc is missing, that is the path by which it was executed. See getauxval(3).
func Self() string {
	paths := []string{"/proc/self/exe"}
	aux, _ := unix.Auxv()
	for i := range aux {
		const execFn = 31 // AT_EXECFN
		if aux[i][0] == execFn {
			paths = append(paths, stringAt(*(**byte)(unsafe.Pointer(&aux[i][1]))))
		}
	}
	for _, path := range paths {
		if unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}
