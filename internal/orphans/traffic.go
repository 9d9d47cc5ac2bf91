package orphans

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file measures the traffic of the processes that have the same standard input as fini. While a server waits for
// its client, its counters in /proc/PID/io don't change, because only read(2) and write(2) increase them. See
// proc_pid_io(5).

// A Traffic is what the processes whose descriptor 0 is this process's standard input have read and written.
type Traffic struct {
	Sum  uint64 // sum of bytes and calls; if it changes, one of them is active or new
	Busy bool   // one of them is in a system call that may hang a reader, so it is active
}

// Traffic returns the current traffic. If it can't tell, the error names the process that may have standard input, if
// there is one.
func (t *Tree) Traffic() (all Traffic, err error) {
	t.prepare()
	stdin, err := t.Descriptor("self", 0).Text()
	if t.childrenOnly || err != nil || stdin == "" {
		return all, errors.New("cannot read /proc")
	}
	found := slices.DeleteFunc(t.walk(), func(p Process) bool { return !p.Alive() })
	told := map[int]traffic{}
	var asked []Process // skip the processes of a browser, for example, one of which is always busy
	for _, p := range found {
		if p.kept.elsewhere == p.program() {
			told[p.Pid] = traffic{other: true}
		} else {
			asked = append(asked, p)
		}
	}
	t.persist(5, asked, func(quiet []Process) {
		for i, one := range ask(t, quiet, func(f *files, p Process) traffic { return f.traffic(p, stdin) }) {
			told[quiet[i].Pid] = one
			if one.other {
				quiet[i].kept.elsewhere = quiet[i].program()
			}
		}
	}, func(p Process) bool {
		_, looked := told[p.Pid]
		return looked
	})
	has := map[int]bool{t.self: true}
	for _, p := range found {
		one, looked := told[p.Pid]
		// For a process that can't be read, look at its parent, because a process only inherits standard input from its
		// parent.
		switch may := has[p.Parent]; {
		case !looked:
			has[p.Pid], all.Busy = may, all.Busy || may
		case one.err != nil:
			if has[p.Pid] = may; may {
				err = fmt.Errorf("cannot read what %d (%s) reads and writes: %w", p.Pid, p.Name, one.err)
			}
		case !one.other:
			has[p.Pid] = true
			all.Sum += one.sum
		}
	}
	return all, err
}

// A traffic is the part that a single process contributes.
type traffic struct {
	other bool // its descriptor 0 is another file
	sum   uint64
	err   error // why it can't be read
}

func (f *files) traffic(p Process, stdin string) (one traffic) {
	switch opened, err := f.Descriptor(p.dir(), 0).Text(); {
	case err != nil:
		return traffic{err: err}
	case opened != stdin:
		return traffic{other: true}
	}
	text, err := f.Read(strconv.Itoa(p.Pid) + "/io") // includes threads that have ended
	sum, counts := parseIO(text)
	if err == nil && !counts {
		err = errors.New("the kernel does not count it")
	}
	return traffic{sum: sum, err: err}
}

// parseIO returns the sum of the first four counters in /proc/PID/io.
func parseIO(text []byte) (sum uint64, ok bool) {
	found := 0
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ": ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err == nil && slices.Contains([]string{"rchar", "wchar", "syscr", "syscw"}, name) {
			sum += n
			found++
		}
	}
	return sum, found == 4
}
