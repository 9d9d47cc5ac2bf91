package proc

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory counts the processes that the kernel has killed in the cgroup of this process because memory ran out. The
// count rises before the process gets its SIGKILL. See memory.events in Documentation/admin-guide/cgroup-v2.rst, and
// memory.oom_control in cgroup-v1/memory.rst.
type Memory struct {
	File  string // the kernel's file that counts them; "" for none
	Count uint64 // when the Memory was made
}

// CountMemory records the present count. Without a memory cgroup there is no count.
func CountMemory() Memory {
	f := In(unix.AT_FDCWD)
	text, _ := f.Whole("/proc/self/cgroup", MaxText)
	for _, file := range memoryFiles(string(text)) {
		if count, err := kills(file); err == nil {
			return Memory{file, count}
		}
	}
	return Memory{}
}

// KilledSince returns how many processes the kernel has killed since the Memory was made.
func (m Memory) KilledSince() (uint64, error) {
	if m.File == "" {
		return 0, errors.New("no memory cgroup was found")
	}
	count, err := kills(m.File)
	return max(count, m.Count) - m.Count, err
}

// memoryFiles are the files that may have the count for a process whose /proc/PID/cgroup has this text. In a container
// the path may be the host's, although only the container's part is mounted. See cgroups(7).
func memoryFiles(text string) []string {
	const root = "/sys/fs/cgroup"
	var two []string
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") || strings.HasPrefix(fields[2], "/..") {
			continue // ".." leads out of the cgroup namespace
		}
		path := strings.TrimSuffix(fields[2], "/")
		switch {
		case strings.Contains(","+fields[1]+",", ",memory,"):
			const one = root + "/memory"
			return []string{one + path + "/memory.oom_control", one + "/memory.oom_control"}
		case fields[0] == "0" && fields[1] == "":
			two = []string{root + path + "/memory.events", root + "/memory.events"}
		}
	}
	return two
}

// kills reads the count from a memory.events or memory.oom_control.
func kills(file string) (uint64, error) {
	f := In(unix.AT_FDCWD)
	text, err := f.Whole(file, MaxText)
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "oom_kill "); found {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("cannot read %s: %w", file, cmp.Or(err, errors.New("it has no count")))
}
