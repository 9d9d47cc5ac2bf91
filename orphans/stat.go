package orphans

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

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
