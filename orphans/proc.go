package orphans

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file reads /proc, in a buffer that does not grow.

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
