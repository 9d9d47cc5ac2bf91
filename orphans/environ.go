package orphans

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
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
	type answer struct {
		found map[string]string
		err   error
	}
	a := ask(t, func(s *sight) answer {
		if s.mayLock(p.Pid) {
			return answer{nil, errors.New("its memory may be locked")}
		}
		found, err := s.environ(p.Pid, names)
		return answer{found, err}
	})
	return a.found, a.err
}

func (s *sight) environ(pid int, names []string) (map[string]string, error) {
	found := map[string]string{}
	total, kept, cut := 0, 0, false // the beginning of a long one has been added
	err := s.scan(strconv.Itoa(pid)+"/environ", func(text []byte, end bool) int {
		total += len(text) - kept
		for kept = 0; ; {
			variable, after, whole := bytes.Cut(text, []byte{0})
			long := len(text) == len(s.buf)
			if !whole && !end && !long && total < maxEnviron {
				kept = len(text)
				return kept
			}
			if !cut && (whole || end || long) {
				addVariable(found, variable, names)
			}
			if cut = !whole; cut {
				if total >= maxEnviron {
					return -1
				}
				return 0
			}
			text = after
		}
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
