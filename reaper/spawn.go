package reaper

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is what to run.
type Command struct {
	Path string // what to execute; where it is "", Args[0] is looked up as execvp(3) does
	Args []string
	Env  []string // "KEY=value"

	// Deathsig is sent to the child by the kernel when this process dies;
	// 0 for none. See prctl(2), PR_SET_PDEATHSIG.
	Deathsig syscall.Signal

	// Pass lists close-on-exec descriptors that the child is to inherit, under the
	// same numbers. LetGo closes them here.
	Pass []int

	// Started is what the child is to start with: what this process did.
	Started Inherited

	// Terminal is a descriptor of the terminal whose foreground the child's
	// group is to get before it runs; -1 for none. See tcsetpgrp(3).
	Terminal int
}

// Child is the main child: the leader of a process group of its own.
type Child struct {
	Pid       int
	FD        int  // its pidfd, -1 where the kernel gives none
	Unbound   bool // the kernel refused the parent death signal
	Ungrouped bool // the kernel refused a process group of its own
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

// quoted is name as it stands where that reads well, and quoted otherwise.
func quoted(name string) string {
	plain := func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\'' }
	if name == "" || strings.ContainsFunc(name, plain) {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// Spawn starts the command as the leader of a process group of its own. The child inherits
// descriptors 0, 1 and 2 and every other that is not close-on-exec. The caller is on the
// main thread. The error is a *SpawnError.
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
			// A script without "#!", which execvp hands to the shell.
			err = try("/bin/sh", append([]string{"/bin/sh", path}, c.Args[1:]...))
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			if unix.Access(path, unix.F_OK) == nil {
				// The file is there: what is missing is its interpreter.
				failed = &SpawnError{c.name(), NotExecutable, errors.New("its interpreter was not found")}
			}
		case errors.Is(err, unix.EACCES):
			failed = &SpawnError{c.name(), NotExecutable, err}
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

// passedOver tells whether execvp goes on to the next entry of PATH after this error:
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
			Setpgid:    true,
			Pdeathsig:  c.Deathsig,
			Foreground: c.Terminal >= 0,
			Ctty:       c.Terminal,
			PidFD:      &child.FD,
		},
	}
	for fd, closed := range c.Started.Closed {
		if closed {
			attr.Files[fd] = ^uintptr(0)
		}
	}
	err := withMask(c.Started.Blocked, func() (err error) {
		child.Pid, err = syscall.ForkExec(path, args, attr)
		if err == unix.EINVAL || err == unix.EPERM || err == unix.ENOSYS {
			// A filter, or who emulates a kernel, may refuse any of what was asked for.
			attr.Sys.PidFD = nil
			child.Unbound = c.Deathsig != 0 && deathsigRefused()
			if child.Unbound {
				attr.Sys.Pdeathsig = 0
			}
			// In a group that is not in the foreground it could not read the terminal.
			child.Ungrouped = setpgidRefused() || attr.Sys.Foreground && setForegroundRefused()
			if child.Ungrouped {
				attr.Sys.Setpgid, attr.Sys.Foreground = false, false
			}
			child.Pid, err = syscall.ForkExec(path, args, attr)
		}
		return err
	})
	return child, err
}

// setpgidRefused tells whether a filter refuses setpgid(2): the kernel says EINVAL to this.
func setpgidRefused() bool { return unix.Setpgid(0, -1) != unix.EINVAL }

// setForegroundRefused does so for tcsetpgrp(3), to which the kernel says EBADF.
func setForegroundRefused() bool {
	return unix.IoctlSetPointerInt(-1, unix.TIOCSPGRP, 0) != unix.EBADF
}

// deathsigRefused tells whether a filter refuses PR_SET_PDEATHSIG: it sets what is set.
func deathsigRefused() bool {
	var now int32
	err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(now), 0, 0, 0)
	}
	return err != nil
}

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

// Become executes the command in place of this process, after telling it in LISTEN_PID
// that it is the one that the sockets were passed to. See sd_listen_fds(3). It returns
// only where it can't; the error is a *SpawnError.
func Become(c Command) error {
	env := slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return strings.HasPrefix(e, "LISTEN_PID=") })
	env = append(env, "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	return c.tryAll(func(path string, args []string) error {
		if err := unix.Access(path, unix.F_OK); err != nil {
			return err
		}
		for fd, closed := range c.Started.Closed {
			if closed {
				_ = unix.Close(fd)
			}
		}
		return withMask(c.Started.Blocked, func() error { return syscall.Exec(path, args, env) })
	})
}

// candidates lists the paths that execvp(3) tries for a file, in order: the file
// itself where its name has a slash, else one for each entry of PATH, where an
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
