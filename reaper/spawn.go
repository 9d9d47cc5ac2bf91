package reaper

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command describes what to run.
type Command struct {
	Args []string // Args[0] is looked up as in execvp(3)
	Env  []string // "KEY=value"

	// Deathsig is the signal that the kernel sends to the child when this process dies, or 0. See PR_SET_PDEATHSIG in
	// prctl(2).
	Deathsig syscall.Signal

	// Closed and Blocked are what the child inherits in place of this process's own state. Closed says which standard
	// streams are closed. In Blocked, bit n-1 is signal n. If it is nil, the child inherits the current signal mask.
	Closed  [3]bool
	Blocked *uint64

	// PGID is the process group that the child joins, which must be in the same session. If it is 0, the child leads a
	// new group. See setpgid(2).
	PGID int

	// Terminal is the descriptor of a terminal, or -1. The child's group becomes the terminal's foreground group before
	// the child runs. See tcsetpgrp(3).
	Terminal int
}

// SameGroup is the value of Command.PGID that leaves the child in the process group of this process.
const SameGroup = -1

// Child is the process that Spawn has started.
type Child struct {
	Pid int
	FD  int // its pidfd, or -1 if the kernel provides none
	// the kernel has refused the parent death signal, the process group or the terminal, so the child has none of them
	Ungrouped bool
}

// SpawnError describes why a command could not be started.
type SpawnError struct {
	Name   string
	Status int // the exit status to use
	Err    error
}

// These exit statuses of a SpawnError are the same as those of env(1).
const (
	NoProcess     = 125 // the kernel could not provide a process, memory or a descriptor
	NotExecutable = 126 // found, but can't be executed
	NotFound      = 127 // not found, or not on PATH
)

func (e *SpawnError) Error() string {
	return fmt.Sprintf("cannot run %s: %v", quoted(e.Name), e.Err)
}

// quoted returns name, quoted if it is empty or contains blanks or quotes.
func quoted(name string) string {
	needsQuotes := func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\'' }
	if name == "" || strings.ContainsFunc(name, needsQuotes) {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// Spawn starts a command. The child inherits descriptors 0, 1 and 2 and all others that are not close-on-exec. Spawn
// tries the same paths as execvp(3), until one of them can be executed. The error is a *SpawnError.
func Spawn(c Command) (Child, error) {
	name := c.Args[0]
	searched := !strings.Contains(name, "/")
	failed := &SpawnError{name, NotFound, unix.ENOENT}
	if searched {
		failed.Err = errors.New("not found on PATH")
	}
	for _, path := range candidates(name, c.Env) {
		child, err := spawn(path, c.Args, c)
		if err == unix.ENOEXEC {
			if why := foreign(beginning(path)); why != nil {
				return child, &SpawnError{name, NotExecutable, why}
			}
			// Like execvp(3), let the shell run a script that has no "#!" line.
			if child, err = spawn("/bin/sh", append([]string{"/bin/sh", path}, c.Args[1:]...), c); err == unix.ENOENT {
				failed = &SpawnError{name, NotExecutable, errors.New("it has no #! line, and there is no /bin/sh to run it")}
				continue
			}
		}
		switch err {
		case nil:
			return child, nil
		case unix.ENOENT, unix.ENOTDIR:
			if unix.Access(path, unix.F_OK) == nil {
				// The file exists, but its interpreter doesn't.
				failed = &SpawnError{name, NotExecutable, notFound(path)}
			} else if err == unix.ENOTDIR && !searched { // env(1) and shells distinguish it from ENOENT too
				failed = &SpawnError{name, NotExecutable, err}
			}
			continue
		case unix.EACCES:
			failed = &SpawnError{name, NotExecutable, refused(path, err)}
			continue
		case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
			return child, &SpawnError{name, NoProcess, err}
		case unix.ESTALE, unix.ENODEV, unix.ETIMEDOUT: // a bad entry in PATH says nothing about the other entries
			if searched {
				continue
			}
		}
		return child, &SpawnError{name, NotExecutable, err}
	}
	return Child{}, failed
}

// spawn forks and executes path.
func spawn(path string, args []string, c Command) (Child, error) {
	// Check first, to save a fork for each directory of PATH that doesn't contain the file.
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Child{}, err
	}
	child := Child{FD: -1}
	attr := &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{
			Setpgid:    c.PGID != SameGroup,
			Pgid:       max(c.PGID, 0),
			Pdeathsig:  c.Deathsig,
			Foreground: c.Terminal >= 0,
			Ctty:       c.Terminal,
			PidFD:      &child.FD,
		},
	}
	for fd, closed := range c.Closed {
		if closed {
			attr.Files[fd] = ^uintptr(0)
		}
	}
	if c.Blocked != nil { // a child inherits the mask of the thread that forked
		var set, before unix.Sigset_t
		*(*uint64)(unsafe.Pointer(&set)) = *c.Blocked // as many signals as the kernel supports
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &set, &before); err != nil {
			return child, err
		}
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	// A filter, or a sandbox that emulates a kernel, may refuse any of these attributes.
	var err error
	refused := func() bool { return err == unix.EINVAL || err == unix.EPERM || err == unix.ENOSYS }
	if child.Pid, err = syscall.ForkExec(path, args, attr); refused() {
		attr.Sys.PidFD = nil
		child.Pid, err = syscall.ForkExec(path, args, attr)
	}
	if refused() && c.PGID > 0 {
		// the group no longer exists or can't be joined, so the child remains in the group of this process
		attr.Sys.Setpgid = false
		child.Pid, err = syscall.ForkExec(path, args, attr)
	}
	if refused() {
		child.Ungrouped = true
		attr.Sys = &syscall.SysProcAttr{}
		child.Pid, err = syscall.ForkExec(path, args, attr)
	}
	return child, err
}

// candidates returns the paths that execvp(3) would try for file, in order. If file contains a slash, that is the only
// path. Otherwise there is one path for each entry of PATH. An empty entry is the working directory. Without PATH, the
// directories are /bin and /usr/bin.
func candidates(file string, env []string) []string {
	if file == "" {
		return nil
	}
	if strings.Contains(file, "/") {
		return []string{file}
	}
	path := "/bin:/usr/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	var paths []string
	for dir := range strings.SplitSeq(path, ":") {
		if len(dir) >= unix.PathMax {
			continue // the C library skips a directory whose name is too long
		}
		if dir != "" {
			dir += "/"
		}
		paths = append(paths, dir+file)
	}
	return paths
}
