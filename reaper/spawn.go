package reaper

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is what to run.
type Command struct {
	Args []string // the file Args[0] is looked up as execvp(3) does
	Env  []string // "KEY=value"

	// The kernel sends Deathsig to the child when this process dies; 0 for none. See prctl(2), PR_SET_PDEATHSIG.
	Deathsig syscall.Signal

	// The child starts as this process did: with these standard streams closed, and with these signals blocked, where bit
	// n-1 is signal n; nil if they are not known.
	Closed  [3]bool
	Blocked *uint64

	// Group is the process group that the child joins, in the same session. If it is 0, the child leads a group of its own.
	// See setpgid(2).
	Group int

	// Terminal is a descriptor of the terminal whose foreground the child's
	// group is to get before it runs; -1 for none. See tcsetpgrp(3).
	Terminal int
}

// SameGroup, as the Group of a Command, leaves the child in the process group of this process.
const SameGroup = -1

// Child is the main child.
type Child struct {
	Pid       int
	FD        int  // its pidfd, -1 if the kernel gives none
	Ungrouped bool // the kernel refused the parent death signal, the process group or the terminal: the child has none of them
}

// SpawnError says why a command could not be started.
type SpawnError struct {
	Name   string
	Status int // the exit status for it
	Err    error
}

// The exit statuses for a SpawnError, as env(1) gives them.
const (
	NoProcess     = 125 // the kernel had no process, memory or descriptor to give
	NotExecutable = 126 // found, but it can't be executed
	NotFound      = 127 // no such file, or none on PATH
)

func (e *SpawnError) Error() string {
	return fmt.Sprintf("cannot run %s: %v", quoted(e.Name), e.Err)
}

// quoted is name, in quotes if it is empty or has blanks or quotes in it.
func quoted(name string) string {
	needsQuotes := func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\'' }
	if name == "" || strings.ContainsFunc(name, needsQuotes) {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// Spawn starts the command. The child inherits descriptors 0, 1 and 2 and every other descriptor that is not
// close-on-exec. Spawn tries each path that execvp(3) would try, until a path can be executed. The error is a *SpawnError.
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
			// A script without "#!", which execvp hands to the shell.
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
				// The file is there: its interpreter is missing.
				failed = &SpawnError{name, NotExecutable, notFound(path)}
			} else if err == unix.ENOTDIR && !searched { // env(1) and the shells tell it from ENOENT too
				failed = &SpawnError{name, NotExecutable, err}
			}
			continue
		case unix.EACCES:
			failed = &SpawnError{name, NotExecutable, refused(path, err)}
			continue
		case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
			return child, &SpawnError{name, NoProcess, err}
		case unix.ESTALE, unix.ENODEV, unix.ETIMEDOUT: // a bad entry of PATH says nothing about the others
			if searched {
				continue
			}
		}
		return child, &SpawnError{name, NotExecutable, err}
	}
	return Child{}, failed
}

// spawn forks once and executes path.
func spawn(path string, args []string, c Command) (Child, error) {
	// Looking first saves a fork for each entry of PATH that lacks the file.
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Child{}, err
	}
	child := Child{FD: -1}
	attr := &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{
			Setpgid:    c.Group != SameGroup,
			Pgid:       max(c.Group, 0),
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
	if c.Blocked != nil { // a child starts with the mask of the thread that forked
		var set, before unix.Sigset_t
		*(*uint64)(unsafe.Pointer(&set)) = *c.Blocked // all of the set that the kernel knows
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
	if refused() && c.Group > 0 {
		attr.Sys.Setpgid = false // that group has ended, or may not be joined: the child stays in the group of this process
		child.Pid, err = syscall.ForkExec(path, args, attr)
	}
	if refused() {
		child.Ungrouped = true
		attr.Sys = &syscall.SysProcAttr{}
		child.Pid, err = syscall.ForkExec(path, args, attr)
	}
	return child, err
}

// candidates lists the paths that execvp(3) tries for a file, in order. A file with a slash in its name is the only
// path. Else each entry of PATH gives a path. An empty entry is the working directory, and no PATH at all is
// /bin:/usr/bin.
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
			continue // the C library skips a directory that is too long for any path
		}
		if dir != "" {
			dir += "/"
		}
		paths = append(paths, dir+file)
	}
	return paths
}
