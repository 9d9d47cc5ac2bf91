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
