package orphans

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file reads /proc, in a buffer that does not grow, and understands what is in it.

// CommandLine is the argument vector of a process, joined by spaces and cut after 4 KiB, or its
// name if there is none to show. The arguments are in the memory of the process, and are read
// under a lock that it holds while it changes its mappings, which may wait for the server of
// a mapped file; then too it is the name.
func (t *Tree) CommandLine(p Process) string {
	if p.State == '?' {
		return p.Name
	}
	return ask(t, func(s *sight) string {
		if s.mayLock(p.Pid) {
			return p.Name
		}
		text, err := s.read(strconv.Itoa(p.Pid) + "/cmdline")
		if err != nil || len(text) == 0 {
			return p.Name
		}
		return string(bytes.ReplaceAll(bytes.TrimRight(text, "\x00"), []byte{0}, []byte{' '}))
	})
}

// mayLock reports whether a thread of a process waits uninterruptibly, or that can't be told: it
// may hold the lock of the memory.
func (s *sight) mayLock(pid int) (waiting bool) {
	tasks := strconv.Itoa(pid) + "/task"
	err := s.list(tasks, func(tid int) bool {
		if waiting = s.isStuck(pid); waiting {
			return false
		}
		now, err := s.statIn(tasks+"/"+strconv.Itoa(tid), tid)
		waiting = err == nil && now.State == 'D'
		return !waiting
	})
	return err != nil || waiting
}

// Name is what a process is called, "" if that can't be told. It is read here and now, because the kernel
// takes no lock for it that a process may hold while it waits. See proc_pid_comm(5).
func Name(pid int) string {
	return string(bytes.TrimSuffix(readAtOnce("/proc/"+strconv.Itoa(pid)+"/comm"), []byte("\n")))
}

func (s *sight) name(pid int) string {
	text, _ := s.read(strconv.Itoa(pid) + "/comm")
	return string(bytes.TrimSuffix(text, []byte("\n")))
}

// stat is the stat of a process. Where one is stuck, others may be for the same reason; then status is
// asked first, which on some kernels waits for less, so that not each of them costs a reader.
func (s *sight) stat(pid int) (Process, error) {
	if s.isStuck(pid) {
		return Process{}, errStuck
	}
	return s.statIn(strconv.Itoa(pid), pid)
}

// isStuck reports whether a process is, or may be: it sleeps and can't be interrupted, or is inside
// execve(2), after which it has code again. See proc_pid_status(5).
func (s *sight) isStuck(pid int) bool {
	if len(s.stuck) == 0 || pid == s.self {
		return false
	}
	text, err := s.read(strconv.Itoa(pid) + "/status")
	state, _ := statusField(text, "State")
	code, hasMemory := statusField(text, "VmExe")
	inExec := hasMemory && strings.TrimSpace(code) == "0 kB"
	return err == errStuck || err == nil && (inExec || strings.HasPrefix(state, "D"))
}

// statIn is the stat of the process or thread id, which is in dir.
func (s *sight) statIn(dir string, id int) (Process, error) {
	text, err := s.read(dir + "/stat")
	if err != nil {
		return Process{}, err
	}
	p, err := parseStat(text)
	if err == nil && p.Pid != id {
		err = fmt.Errorf("cannot read stat of %d: it is of %d", id, p.Pid)
	}
	return p, err
}

// read returns the first 4 KiB of a file below /proc, in which is all that is looked for. They
// are valid until the next read.
func (s *sight) read(name string) (text []byte, err error) {
	err = s.scan(name, func(all []byte, _ bool) int {
		text = all
		return len(all)
	})
	if err != nil {
		return nil, err
	}
	return text, nil
}

// readPids reads a file of pids below /proc, of any length.
func (s *sight) readPids(name string) (pids []int, err error) {
	err = s.scan(name, func(text []byte, end bool) int {
		whole := len(text)
		if !end {
			whole = bytes.LastIndexByte(text, ' ') + 1
		}
		pids = append(pids, parsePids(text[:whole])...)
		return len(text) - whole
	})
	return pids, err
}

// scan reads a file below /proc and calls take after each read with what is in the buffer: the part that
// take has kept, which are so many last bytes, and what was read since. At the end that is once more what
// was kept. A full buffer that is kept is the end too, and so is less than 0.
func (s *sight) scan(name string, take func(text []byte, end bool) (keep int)) error {
	fd, err := s.open(name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for n := 0; ; {
		s.step()
		got, err := unix.Read(fd, s.buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		n += got
		keep := take(s.buf[:n], got == 0)
		if got == 0 || keep < 0 || keep == len(s.buf) {
			return nil
		}
		n = copy(s.buf, s.buf[n-keep:n])
	}
}

// each calls visit with each part of the first limit bytes of a file below /proc; end stands behind each. Of a
// part that has no room in the buffer, or no end, visit gets the beginning, and that it is not whole.
func (s *sight) each(name string, end byte, limit int, visit func(part []byte, whole bool)) error {
	total, kept, cut := 0, 0, false // the beginning of a long one has been visited
	return s.scan(name, func(text []byte, over bool) int {
		total += len(text) - kept
		for kept = 0; ; {
			part, after, whole := bytes.Cut(text, []byte{end})
			long := len(text) == len(s.buf)
			if !whole && !over && !long && total < limit {
				kept = len(text)
				return kept
			}
			if !cut && (whole || over || long) {
				visit(part, whole)
			}
			if cut = !whole; cut {
				if total >= limit {
					return -1
				}
				return 0
			}
			text = after
		}
	})
}

// list calls visit with each entry of a directory below /proc that is a number, until it
// returns false.
func (s *sight) list(name string, visit func(int) bool) error {
	fd, err := s.open(name, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4<<10) // one for each, for visit may list too
	for {
		s.step()
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if number, err := strconv.Atoi(name); err == nil && !visit(number) {
				return nil
			}
		}
	}
}

// link is the text of a link below /proc, "" if it can't be read. The link is not followed, so that no file
// system is asked.
func (s *sight) link(name string) string {
	if s.mayRead(name) != nil {
		return ""
	}
	n, err := unix.Readlinkat(s.proc, name, s.buf)
	if err != nil || n == len(s.buf) {
		return ""
	}
	return string(s.buf[:n])
}

func (s *sight) open(name string, flags int) (int, error) {
	if err := s.mayRead(name); err != nil {
		return -1, err
	}
	return unix.Openat(s.proc, name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
}

// So much of an environment is read, and so much of a value is kept, in bytes.
const (
	maxEnviron = 256 << 10
	maxValue   = 1 << 10
)

// Environ is the environment that a process was given when it executed its program, reduced
// to the variables of these names. A process may have written over it since. It is memory of
// the process, as the arguments are: see CommandLine. An error says that it may not be looked
// at, or can't be. See proc_pid_environ(5).
func (t *Tree) Environ(p Process, names []string) (map[string]string, error) {
	if p.State == '?' || !p.Alive() || p.State == 'Z' {
		return nil, errors.New("it has none to show")
	}
	return ask2(t, func(s *sight) (map[string]string, error) {
		if s.mayLock(p.Pid) {
			return nil, errors.New("its memory may be locked")
		}
		return s.environ(p.Pid, names)
	})
}

func (s *sight) environ(pid int, names []string) (map[string]string, error) {
	found := map[string]string{}
	err := s.each(strconv.Itoa(pid)+"/environ", 0, maxEnviron, func(variable []byte, _ bool) {
		addVariable(found, variable, names)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// addVariable adds "name=value" if its name is one of names. Of one that comes twice the first
// counts, as for getenv(3).
func addVariable(to map[string]string, variable []byte, names []string) {
	name, value, ok := bytes.Cut(variable, []byte("="))
	if _, known := to[string(name)]; ok && !known && slices.Contains(names, string(name)) {
		to[string(name)] = string(value[:min(len(value), maxValue)])
	}
}

// tick is the unit of the times in /proc/PID/stat: 1/USER_HZ, which is 100 on
// every architecture that fini is built for. See proc_pid_stat(5).
const tick = 10 * time.Millisecond

// parseStat reads the text of /proc/PID/stat. The name in it may hold spaces,
// newlines and ")", so the fields are counted from the last ")".
func parseStat(text []byte) (Process, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return Process{}, fmt.Errorf("cannot read stat %q: no name in it", text)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	if err != nil || pid < 1 {
		return Process{}, fmt.Errorf("cannot read stat %q: no pid in it", text)
	}
	// fields[0] is field 3 of the man page, the state.
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return Process{}, fmt.Errorf("cannot read stat of %d: too few fields", pid)
	}
	p := Process{Pid: pid, Name: string(text[open+1 : end]), State: fields[0][0], pidfd: -1}
	for _, f := range []struct {
		at int
		to *int
	}{{4, &p.Parent}, {5, &p.Group}, {6, &p.Session}, {20, &p.Threads}} {
		if *f.to, err = strconv.Atoi(string(fields[f.at-3])); err != nil {
			return Process{}, fmt.Errorf("cannot read stat of %d: field %d: %w", pid, f.at, err)
		}
	}
	start, err := strconv.ParseUint(string(fields[22-3]), 10, 63)
	if err != nil || start > uint64(1<<63-1)/uint64(tick) {
		return Process{}, fmt.Errorf("cannot read stat of %d: field 22 is %q", pid, fields[22-3])
	}
	p.Start = time.Duration(start) * tick
	return p, nil
}

// parsePids reads the text of /proc/PID/task/TID/children: pids, each followed by
// a space.
func parsePids(text []byte) []int {
	var pids []int
	for _, field := range bytes.Fields(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A status is what is read from /proc/PID/status. See proc_pid_status(5).
type status struct {
	uids, gids string // real, effective, saved and file system, with tabs between
}

// parseStatus reads the text of /proc/PID/status, or the first part of it.
func parseStatus(text []byte) (s status, ok bool) {
	uids, isUids := statusField(text, "Uid")
	gids, isGids := statusField(text, "Gid")
	return status{uids, gids}, isUids && isGids
}

// statusField is a field of /proc/PID/status that is not the first, which is the name. In that
// newlines are escaped, so that no name looks like a field.
func statusField(text []byte, name string) (value string, ok bool) {
	_, rest, _ := bytes.Cut(text, []byte("\n"+name+":\t"))
	line, _, ok := bytes.Cut(rest, []byte("\n"))
	return string(line), ok
}
