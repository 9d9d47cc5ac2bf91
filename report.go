package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/orphans"
	"github.com/seed-126c5d8a/fini/reaper"
	"github.com/seed-126c5d8a/fini/signals"
)

// report is what --report writes: report.schema.json describes it. Its methods do nothing on
// nil, which is no report.
type report struct {
	Version   int               `json:"version"` // of the schema
	Fini      string            `json:"fini"`
	Command   []string          `json:"command"`
	Pid       int               `json:"pid"`
	Started   time.Time         `json:"started"`
	Ended     *time.Time        `json:"ended"` // the main child; null where fini did not see it
	Finished  time.Time         `json:"finished"`
	Status    int               `json:"status"`
	Error     *string           `json:"error"` // why the command was not started
	Exit      *exitReport       `json:"exit"`
	Stopped   *string           `json:"stopped"` // why fini stopped the command
	Signals   []signalReport    `json:"signals"`
	Leftovers []*leftoverReport `json:"leftovers"`
	Reaped    int               `json:"reaped"`
	Usage     usageReport       `json:"usage"`

	path string
	fd   int // where the path names a descriptor, or -1
	seen map[leftover]*leftoverReport
}

type exitReport struct {
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
}

type signalReport struct {
	At     time.Time     `json:"at"`
	Signal string        `json:"signal"`
	Sender *senderReport `json:"sender"`
}

type senderReport struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
}

type leftoverReport struct {
	Pid       int        `json:"pid"`
	Command   string     `json:"command"`
	Started   time.Time  `json:"started"`
	StartedBy []ancestor `json:"startedBy"`
	Group     int        `json:"group"`
	Session   int        `json:"session"`
	Holds     []string   `json:"holds"`
	Sent      []string   `json:"sent"`
	Ended     *string    `json:"ended"`
}

type ancestor struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
}

type usageReport struct {
	User   float64 `json:"userSeconds"`
	System float64 `json:"systemSeconds"`
	MaxRSS int64   `json:"maxRSSBytes"`
}

// newReport prepares a report. An error says that the file can't be written, before
// anything else has happened.
func newReport(path string, command []string) (*report, error) {
	r := &report{
		Version: 1, Fini: number(), Command: append([]string{}, command...), Started: time.Now(),
		Signals: []signalReport{}, Leftovers: []*leftoverReport{},
		path: path, fd: -1, seen: map[leftover]*leftoverReport{},
	}
	failed := func(err error) (*report, error) {
		return nil, fmt.Errorf("--report: cannot write %q: %w", path, err)
	}
	if fd, ok := descriptor(path); ok {
		number, err := strconv.Atoi(fd)
		if err != nil {
			return failed(unix.ENOENT)
		}
		// What this process has opened itself is closed on exec, and not meant.
		flags, err := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0)
		mode, _ := unix.FcntlInt(uintptr(number), unix.F_GETFL, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 || mode&unix.O_PATH != 0 || mode&unix.O_ACCMODE == unix.O_RDONLY {
			return failed(unix.EBADF)
		}
		// LetGo closes what the command inherits.
		if r.fd, err = unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return failed(err)
		}
		return r, nil
	}
	switch info, err := os.Stat(path); {
	case err != nil:
	case info.IsDir():
		return failed(unix.EISDIR)
	case !info.Mode().IsRegular(): // replace writes to it, and makes no file beside it
		if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS); err != nil {
			return failed(err)
		}
		return r, nil
	}
	dir, _ := filepath.Split(path) // as it stands: a/../ needs an a
	dir = cmp.Or(dir, ".")
	if info, err := os.Stat(dir); err != nil {
		return failed(err.(*os.PathError).Err)
	} else if !info.IsDir() {
		return failed(unix.ENOTDIR)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return failed(err)
	}
	return r, nil
}

// descriptor tells whether a path names a descriptor of this process, and which.
func descriptor(path string) (fd string, ok bool) {
	switch path {
	case "/dev/stdout":
		return "1", true
	case "/dev/stderr":
		return "2", true
	}
	if fd, ok = strings.CutPrefix(path, "/dev/fd/"); ok {
		return fd, true
	}
	return strings.CutPrefix(path, "/proc/self/fd/")
}

// signal is one that fini has received.
func (r *report) signal(got signals.Received) {
	if r == nil {
		return
	}
	s := signalReport{At: time.Now(), Signal: signals.Name(got.Signal)}
	if got.Sender > 0 {
		s.Sender = &senderReport{got.Sender, orphans.Name(got.Sender)}
	}
	r.Signals = append(r.Signals, s)
}

func (r *report) stopped(why reason) {
	if r != nil && r.Stopped == nil {
		text := [...]string{"launcher", "stdin", "timeout"}[why]
		r.Stopped = &text
	}
}

// leftover is one that has to be stopped; asked tells whether it had SIGTERM already, with its
// group.
func (r *report) leftover(p orphans.Process, commandLine string, chain []orphans.Process, asked bool) {
	if r == nil || r.seen[leftover{p.Pid, p.Start}] != nil {
		return
	}
	left := &leftoverReport{
		Pid: p.Pid, Command: commandLine, Group: p.Group, Session: p.Session,
		Started:   time.Now().Add(p.Start - orphans.Uptime()).Round(10 * time.Millisecond),
		StartedBy: []ancestor{}, Holds: []string{}, Sent: []string{},
	}
	for _, parent := range chain {
		left.StartedBy = append(left.StartedBy, ancestor{parent.Pid, parent.Name})
	}
	for i, name := range []string{"stdout", "stderr"} {
		if p.Holds&(orphans.Stdout<<i) != 0 {
			left.Holds = append(left.Holds, name)
		}
	}
	if asked {
		left.Sent = append(left.Sent, signals.Name(syscall.SIGTERM))
	}
	r.seen[leftover{p.Pid, p.Start}] = left
	r.Leftovers = append(r.Leftovers, left)
}

// sent tells that a leftover was sent a signal.
func (r *report) sent(pid int, sig syscall.Signal) {
	if r == nil {
		return
	}
	name := signals.Name(sig)
	for _, left := range r.Leftovers {
		if left.Pid == pid && left.Ended == nil && !slices.Contains(left.Sent, name) {
			left.Sent = append(left.Sent, name)
		}
	}
}

// reaped is what fini has seen of ends: its children's.
func (r *report) reaped(exits []reaper.Exit, mainPid int) {
	if r == nil {
		return
	}
	for _, x := range exits {
		if x.Status.Stopped() {
			continue
		}
		if x.Pid == mainPid && r.Exit == nil {
			now := time.Now()
			r.Ended, r.Exit = &now, &exitReport{}
			if name := signals.Name(x.Status.Signal()); x.Status.Signaled() {
				r.Exit.Signal = &name
			} else {
				code := x.Status.ExitStatus()
				r.Exit.Code = &code
			}
			continue
		}
		r.Reaped++
		for _, left := range r.Leftovers {
			if left.Pid == x.Pid && left.Ended == nil {
				text := "exit " + strconv.Itoa(x.Status.ExitStatus())
				if x.Status.Signaled() {
					text = signals.Name(x.Status.Signal())
				}
				left.Ended = &text
			}
		}
	}
}

// takeOver makes the report of the outer fini of a pair that of a command whose end nobody
// has seen. It tells whether the inner one was killed; otherwise that one has written the
// report.
func (r *report) takeOver(command int) bool {
	if r.Exit == nil || r.Exit.Signal == nil {
		return false
	}
	r.Pid, r.Ended, r.Exit = command, nil, nil
	return true
}

// write writes the report, whole or not at all: the file appears under its name when all
// of it is on the disk's side of the kernel. A link in its place is replaced and not
// followed.
func (r *report) write(status int) error {
	r.Status, r.Finished = status, time.Now()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err == nil {
		seconds := func(t unix.Timeval) float64 { return float64(t.Nano()/1000) / 1e6 }
		r.Usage = usageReport{seconds(usage.Utime), seconds(usage.Stime), int64(usage.Maxrss) * 1024}
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	err := out.Encode(r)
	switch {
	case err != nil:
	case r.fd >= 0:
		err = writeAll(r.fd, text.Bytes())
	default:
		err = replace(r.path, text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("--report: cannot write %q: %w", r.path, err)
	}
	return nil
}

// replace gives path the contents text. What is no file, such as /dev/null, is written to.
func replace(path string, text []byte) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		// Without a reader a fifo would have fini wait for one.
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return writeAll(fd, text)
	}
	// As PID 1 every fini has the same pid, and one that was killed may have left its file.
	dir, _ := filepath.Split(path)
	temporary := fmt.Sprintf("%s.fini-%d-%x", dir, os.Getpid(), time.Now().UnixNano())
	fd, err := unix.Open(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	err = writeAll(fd, text)
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Rename(temporary, path)
	}
	if err != nil {
		_ = unix.Unlink(temporary)
	}
	return err
}

// A reader of the report has this long for each page of it.
const reportPatience = 5 * time.Second

// writeAll writes to a file, a pipe or a terminal, and does not wait for ever.
func writeAll(fd int, text []byte) error {
	for len(text) > 0 {
		// A pipe that can be written to has room for this much. See PIPE_BUF in pipe(7).
		page := text[:min(len(text), 4096)]
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		switch n, err := unix.Poll(fds, int(reportPatience/time.Millisecond)); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.New("nobody reads it")
		}
		switch n, err := unix.Write(fd, page); {
		case err == unix.EINTR, err == unix.EAGAIN:
		case err != nil:
			return err
		default:
			text = text[n:]
		}
	}
	return nil
}
