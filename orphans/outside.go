package orphans

import (
	"bytes"
	"cmp"
	"strconv"

	"golang.org/x/sys/unix"
)

// Outside is the PID namespace in which this process was started, if it is the init of another
// one: processes have other pids there, and those are what a user sees. A nil Outside is the same
// namespace.
//
// It rests on this: what /proc says of a pidfd, in /proc/self/fdinfo, is the pid in the namespace of
// that /proc. See pidfd_open(2).
type Outside struct {
	proc  Tree        // of which only the reading is used
	known map[int]int // pids outside by those inside, for when they have been reaped
}

const maxKnown = 10000

// NewOutside takes a descriptor of the /proc of the other namespace.
func NewOutside(proc int) *Outside {
	return &Outside{Tree{proc: proc, buf: make([]byte, 4<<10)}, map[int]int{}}
}

// Pid is the pid outside of a process, which may have been reaped since it was asked for last;
// the one inside, if that can't be told.
func (o *Outside) Pid(inside int) int {
	if o == nil || inside <= 0 {
		return inside
	}
	if outside := o.ask(inside); outside > 0 {
		if len(o.known) == maxKnown {
			o.known = map[int]int{}
		}
		o.known[inside] = outside
	}
	return cmp.Or(o.known[inside], inside)
}

// ask is 0 if the kernel does not tell.
func (o *Outside) ask(inside int) int {
	fd, err := unix.PidfdOpen(inside, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	text, err := o.proc.read("self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		value, ok := bytes.CutPrefix(line, []byte("Pid:"))
		if !ok {
			continue
		}
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil {
			return pid // -1 if it has been reaped
		}
	}
	return 0
}

// Session is that of this process.
func (o *Outside) Session() int {
	if o == nil {
		session, _ := unix.Getsid(0)
		return session
	}
	text, _ := o.proc.read("self/stat")
	p, _ := parseStat(text)
	return p.Session
}

// Process is a process of the tree with the numbers that it has outside.
func (o *Outside) Process(p Process) Process {
	if o == nil {
		return p
	}
	seen, err := o.proc.stat(o.Pid(p.Pid))
	if err != nil || seen.Start != p.Start { // its pid is another's by now
		return p
	}
	p.Pid, p.Parent, p.Group, p.Session = seen.Pid, seen.Parent, seen.Group, seen.Session
	return p
}

// Name is what a process is called that has this pid outside, "" if that can't be told.
func (o *Outside) Name(outside int) string {
	if o == nil {
		return Name(outside)
	}
	text, _ := o.proc.read(strconv.Itoa(outside) + "/comm")
	return string(bytes.TrimSuffix(text, []byte("\n")))
}
