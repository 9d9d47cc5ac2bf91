package reaper

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is what to run.
type Command struct {
	Path string // the file to execute; "" looks Args[0] up as execvp(3) does
	Args []string
	Env  []string // "KEY=value"

	// Deathsig is sent to the child by the kernel when this process dies;
	// 0 for none. See prctl(2), PR_SET_PDEATHSIG.
	Deathsig syscall.Signal

	// Pass lists close-on-exec descriptors that the child is to inherit, under the
	// same numbers. CloseInherited closes them here.
	Pass []int

	// Inherited is what the child is to start with: what this process did.
	Inherited Attributes

	// Group is the process group that the child is started in: 0 for one of its own, which it
	// leads, SameGroup, or the id of another one in this session. See setpgid(2).
	Group int

	// Isolation makes the child the init of a PID namespace, nil for no such thing.
	Isolation *Isolation

	// Terminal is a descriptor of the terminal whose foreground the child's
	// group is to get before it runs; -1 for none. See tcsetpgrp(3).
	Terminal int
}

// SameGroup, as Command.Group, is that of this process.
const SameGroup = -1

// Child is the main child.
type Child struct {
	Pid       int
	FD        int  // its pidfd, -1 if the kernel gives none
	Unbound   bool // the kernel refused the parent death signal
	Ungrouped bool // the kernel refused the process group: it is in that of this process
}

// SpawnError says why a command could not be started.
type SpawnError struct {
	Name   string
	Reason Reason
	Err    error
}

// Reason tells the kinds of SpawnError apart.
type Reason int

const (
	NotFound      Reason = iota // no such file on PATH
	NotExecutable               // found, but it can't be executed
	NoProcess                   // the kernel had no process, memory or descriptor to give
)

func (e *SpawnError) Error() string {
	return fmt.Sprintf("cannot run %s: %v", quoted(e.Name), e.Err)
}

func (e *SpawnError) Unwrap() error { return e.Err }

// quoted is name, in quotes if it is empty or has blanks or quotes in it.
func quoted(name string) string {
	needsQuotes := func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\'' }
	if name == "" || strings.ContainsFunc(name, needsQuotes) {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// Spawn starts the command. The child inherits descriptors 0, 1 and 2 and every other that is not
// close-on-exec. The caller is on the main thread. The error is a *SpawnError.
func Spawn(c Command) (child Child, err error) {
	for _, fd := range c.Pass {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return Child{}, &SpawnError{c.name(), NoProcess, err}
		}
	}
	err = c.tryAll(func(path string, args []string) error {
		child, err = spawn(path, args, c)
		return err
	})
	return child, err
}

// name is what an error calls the command.
func (c Command) name() string { return cmp.Or(c.Path, c.Args[0]) }

// tryAll calls try with each path that execvp(3) would try, until one can be executed.
func (c Command) tryAll(try func(path string, args []string) error) error {
	paths := []string{c.Path}
	if c.Path == "" {
		paths = candidates(c.Args[0], c.Env)
	}
	searched := !strings.Contains(c.name(), "/")
	failed := &SpawnError{Name: c.name(), Reason: NotFound, Err: unix.ENOENT}
	if searched {
		failed.Err = errors.New("not found on PATH")
	}
	for _, path := range paths {
		err := try(path, c.Args)
		if errors.Is(err, unix.ENOEXEC) {
			if why := foreign(beginning(path)); why != nil {
				return &SpawnError{c.name(), NotExecutable, why}
			}
			// A script without "#!", which execvp hands to the shell.
			if err = try("/bin/sh", append([]string{"/bin/sh", path}, c.Args[1:]...)); errors.Is(err, unix.ENOENT) {
				failed = &SpawnError{c.name(), NotExecutable, errors.New("it has no #! line, and there is no /bin/sh to run it")}
				continue
			}
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			if unix.Access(path, unix.F_OK) == nil {
				// The file is there: what is missing is its interpreter.
				failed = &SpawnError{c.name(), NotExecutable, notFound(path)}
			}
		case errors.Is(err, unix.EACCES):
			failed = &SpawnError{c.name(), NotExecutable, refused(path, err)}
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM),
			errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			return &SpawnError{c.name(), NoProcess, err}
		case searched && passedOver(err):
		default:
			return &SpawnError{c.name(), NotExecutable, err}
		}
	}
	return failed
}

// passedOver reports whether execvp goes on to the next entry of PATH after this error:
// the entry is no good, which says nothing about the others.
func passedOver(err error) bool {
	return errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ETIMEDOUT)
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
	for fd, closed := range c.Inherited.Closed {
		if closed {
			attr.Files[fd] = ^uintptr(0)
		}
	}
	if c.Isolation != nil {
		c.Isolation.apply(attr.Sys)
	}
	err := withMask(c.Inherited.Blocked, func() (err error) {
		child.Pid, err = syscall.ForkExec(path, args, attr)
		if err != nil && c.Isolation != nil && err != unix.EAGAIN && err != unix.ENOMEM {
			attr.Sys.PidFD = nil // it takes all that was asked for but this
			if child.Pid, err = syscall.ForkExec(path, args, attr); err != nil {
				return c.Isolation.refusal(err)
			}
		}
		if err == unix.EINVAL || err == unix.EPERM || err == unix.ENOSYS {
			// A filter, or who emulates a kernel, may refuse any of what was asked for.
			attr.Sys.PidFD = nil
			child.Unbound = c.Deathsig != 0 && deathsigRefused()
			if child.Unbound {
				attr.Sys.Pdeathsig = 0
			}
			// In a group that is not in the foreground it could not read the terminal.
			child.Ungrouped = attr.Sys.Setpgid && setpgidRefused() || attr.Sys.Foreground && setForegroundRefused()
			if child.Ungrouped {
				attr.Sys.Setpgid, attr.Sys.Foreground = false, false
			}
			if attr.Sys.Pgid > 0 && unix.Kill(-attr.Sys.Pgid, 0) == unix.ESRCH {
				attr.Sys.Pgid = 0 // that group has ended
			}
			child.Pid, err = syscall.ForkExec(path, args, attr)
		}
		return err
	})
	return child, err
}

// setpgidRefused reports whether a filter refuses setpgid(2): the kernel says EINVAL to this.
func setpgidRefused() bool { return unix.Setpgid(0, -1) != unix.EINVAL }

// setForegroundRefused reports whether a filter refuses tcsetpgrp(3): the kernel says EBADF to this.
func setForegroundRefused() bool {
	return unix.IoctlSetPointerInt(-1, unix.TIOCSPGRP, 0) != unix.EBADF
}

// deathsigRefused reports whether a filter refuses PR_SET_PDEATHSIG: it sets what is set.
func deathsigRefused() bool {
	var now int32
	err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(now), 0, 0, 0)
	}
	return err != nil
}

// ClearDeathsig takes back the parent death signal that Spawn has set, for a process of this binary.
func ClearDeathsig() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0) }

// withMask calls do while this thread blocks the given signals: a child starts with the
// mask of the thread that forked.
func withMask(blocked *uint64, do func() error) error {
	if blocked == nil {
		return do()
	}
	var set, before unix.Sigset_t
	for i := range 64 {
		word := 8 * int(unsafe.Sizeof(set.Val[0]))
		if *blocked&(1<<i) != 0 {
			set.Val[i/word] |= 1 << (i % word)
		}
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &set, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	return do()
}

// candidates lists the paths that execvp(3) tries for a file, in order: the file
// itself if its name has a slash, else one for each entry of PATH, where an
// empty entry is the working directory, and no PATH at all is /bin:/usr/bin.
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
			continue // the C library passes over what no path can begin with
		}
		if dir != "" {
			dir += "/"
		}
		paths = append(paths, dir+file)
	}
	return paths
}
