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
	if t.mayLock(p.Pid) {
		return p.Name
	}
	text, err := t.read(strconv.Itoa(p.Pid) + "/cmdline")
	if err != nil || len(text) == 0 {
		return p.Name
	}
	return string(bytes.ReplaceAll(bytes.TrimRight(text, "\x00"), []byte{0}, []byte{' '}))
}

// mayLock reports whether a thread of a process waits uninterruptibly, or that can't be told: it
// may hold the lock of the memory.
func (t *Tree) mayLock(pid int) (waiting bool) {
	tasks := strconv.Itoa(pid) + "/task"
	err := t.list(tasks, func(tid int) bool {
		now, err := t.statIn(tasks+"/"+strconv.Itoa(tid), tid)
		waiting = err == nil && now.State == 'D'
		return !waiting
	})
	return err != nil || waiting
}

// Name is what a process is called, "" if that can't be told. See proc_pid_comm(5).
func Name(pid int) string {
	return strings.TrimSuffix(string(readFile("/proc/"+strconv.Itoa(pid)+"/comm")), "\n")
}

// readFile returns the contents of a small file, as far as they can be read. It is not os's:
// that one's first file makes the runtime set up epoll(7), and abort if it can't.
func readFile(path string) (text []byte) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	const most = 1 << 20
	for buf := make([]byte, 4096); len(text) < most; {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		text = append(text, buf[:n]...)
	}
	return text
}

func (t *Tree) stat(pid int) (Process, error) { return t.statIn(strconv.Itoa(pid), pid) }

// statIn is the stat of the process or thread id, which is in dir.
func (t *Tree) statIn(dir string, id int) (Process, error) {
	text, err := t.read(dir + "/stat")
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
func (t *Tree) read(name string) ([]byte, error) {
	fd, err := t.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	n := 0
	for n < len(t.buf) {
		got, err := unix.Read(fd, t.buf[n:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case got == 0:
			return t.buf[:n], nil
		}
		n += got
	}
	return t.buf, nil
}

// readPids reads a file of pids below /proc, of any length.
func (t *Tree) readPids(name string) (pids []int, err error) {
	fd, err := t.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	begun := 0 // so much of a pid whose end is still to be read is in the buffer
	for {
		got, err := unix.Read(fd, t.buf[begun:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return pids, err
		case got == 0:
			return append(pids, parsePids(t.buf[:begun])...), nil
		}
		text := t.buf[:begun+got]
		end := bytes.LastIndexByte(text, ' ') + 1
		pids = append(pids, parsePids(text[:end])...)
		begun = copy(t.buf, text[end:])
	}
}

// list calls visit with each entry of a directory below /proc that is a number, until it
// returns false.
func (t *Tree) list(name string, visit func(int) bool) error {
	fd, err := t.open(name, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4<<10) // one for each, for visit may list too
	for {
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

func (t *Tree) open(name string, flags int) (int, error) {
	return unix.Openat(t.proc, name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
}
