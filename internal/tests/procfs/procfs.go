// Package procfs reads /proc for tests. It does not use fini's own code, because that is what they test.
package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func ShellStatus(s *os.ProcessState) int {
	if ws := s.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// Status returns a field of /proc/PID/status.
func Status(pid int, field string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ChildrenOf returns the children of a process, including zombies. The oldest is first if the kernel lists the children
// of a process.
func ChildrenOf(t testing.TB, pid int) (pids []int) {
	t.Helper()
	if threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)); err == nil && len(threads) > 0 {
		for _, name := range threads {
			text, _ := os.ReadFile(name)
			for field := range strings.FieldsSeq(string(text)) {
				child, _ := strconv.Atoi(field)
				pids = append(pids, child)
			}
		}
		return pids
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		if stat := ReadStat(name); stat.Number(4) == pid {
			pids = append(pids, stat.PID)
		}
	}
	return pids
}

// Stat is the stat file of a process or thread in /proc. It is empty if there is no such process. See proc_pid_stat(5).
type Stat struct {
	PID  int
	Name string
	rest []string // the fields from the third on
}

func StatOf(pid int) Stat { return ReadStat(fmt.Sprintf("/proc/%d/stat", pid)) }

func ReadStat(path string) (s Stat) {
	content, _ := os.ReadFile(path)
	text := string(content)
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return s
	}
	s.PID, _ = strconv.Atoi(strings.TrimSpace(text[:from]))
	s.Name, s.rest = text[from+1:to], strings.Fields(text[to+1:])
	return s
}

// State returns the state, which is the third field, or 0.
func (s Stat) State() byte {
	if len(s.rest) == 0 {
		return 0
	}
	return s.rest[0][0]
}

// Number returns a field after the third. Fields are numbered as in the man page.
func (s Stat) Number(field int) int {
	if field-3 >= len(s.rest) {
		return 0
	}
	n, _ := strconv.Atoi(s.rest[field-3])
	return n
}

// Gone reports whether there is no such process, or only a zombie. A process whose first thread has ended is also shown
// as a zombie, but has other threads.
func (s Stat) Gone() bool {
	const threads = 20
	return s.State() == 0 || s.State() == 'X' || s.State() == 'Z' && s.Number(threads) < 2
}

func CountFDs(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(entries)
}

// CPU returns the processor time that processes have used, in ticks of 10 ms.
func CPU(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		stat := StatOf(pid)
		sum += time.Duration(stat.Number(14)+stat.Number(15)) * 10 * time.Millisecond // utime and stime
	}
	return sum
}

func ParentOf(pid int) int { return StatOf(pid).Number(4) }

func GroupOf(pid int) int { return StatOf(pid).Number(5) }

func SessionOf(pid int) int { return StatOf(pid).Number(6) }

// IsStopped reports whether all threads are stopped, which is when the parent is told.
func IsStopped(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range tasks {
		if state := ReadStat(name).State(); state != 0 && state != 'T' {
			return false
		}
	}
	return len(tasks) > 0
}

// Sleeps reports whether all threads are asleep, which means that they have nothing left to do. A thread that has just
// started may be waiting for memory instead, which hides the other threads.
func Sleeps(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range tasks {
		if ReadStat(name).State() != 'S' {
			return false
		}
	}
	return len(tasks) > 0
}

func CountStopped(pids []int) (n int) {
	for _, pid := range pids {
		if strings.HasPrefix(Status(pid, "State"), "T") {
			n++
		}
	}
	return n
}

func MaskHas(mask string, sig syscall.Signal) bool {
	var bits uint64
	_, err := fmt.Sscanf(mask, "%x", &bits)
	return err == nil && bits&(1<<(sig-1)) != 0
}
