package orphans

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

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
	if t.mayLock(p.Pid) {
		return nil, errors.New("its memory may be locked")
	}
	fd, err := t.open(strconv.Itoa(p.Pid)+"/environ", 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	found := map[string]string{}
	var page, rest []byte
	page = make([]byte, 4<<10)
	for total := 0; total < maxEnviron; {
		n, err := unix.Read(fd, page)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0:
			addVariable(found, rest, names)
			return found, nil
		}
		total += n
		rest = append(rest, page[:n]...)
		for {
			variable, after, whole := bytes.Cut(rest, []byte{0})
			if !whole {
				break
			}
			addVariable(found, variable, names)
			rest = after
		}
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
