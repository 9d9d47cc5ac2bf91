// Package cgroup counts the processes that the kernel has killed because memory ran out.
package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// Memory counts the processes in this process's cgroup that the kernel has killed because memory ran out. The count
// changes before the process is sent SIGKILL. See memory.events in Documentation/admin-guide/cgroup-v2.rst, and
// memory.oom_control in cgroup-v1/memory.rst.
type Memory struct {
	File  string // the kernel's file with the count, or ""
	Count uint64 // count when CountMemory was called
}

// CountMemory records the current count, if this process is in a memory cgroup.
func CountMemory() Memory {
	f := proc.In(unix.AT_FDCWD)
	text, _ := f.Whole("/proc/self/cgroup", proc.MaxText)
	for _, file := range memoryFiles(string(text)) {
		if count, err := kills(file); err == nil {
			return Memory{file, count}
		}
	}
	return Memory{}
}

// KilledSince returns how many processes the kernel has killed since CountMemory was called.
func (m Memory) KilledSince() (uint64, error) {
	if m.File == "" {
		return 0, errors.New("no memory cgroup was found")
	}
	count, err := kills(m.File)
	return max(count, m.Count) - m.Count, err
}

// memoryFiles returns the files that may contain the count, given the text of /proc/PID/cgroup. In a container, the
// path in that text may be valid only on the host. See cgroups(7).
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

// kills reads the count from a memory.events or memory.oom_control file.
func kills(file string) (uint64, error) {
	f := proc.In(unix.AT_FDCWD)
	text, err := f.Whole(file, proc.MaxText)
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "oom_kill "); found {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("cannot read %s: %w", file, cmp.Or(err, errors.New("it has no count")))
}
