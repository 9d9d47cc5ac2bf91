//go:build amd64 || arm64

package entry

import (
	"fmt"
	"syscall"
	"testing"
)

// An earlier child that has exited is reaped, and no other process that gets its pid counts as an earlier child.
func TestReap(t *testing.T) {
	var pids [3]int
	for i := range pids {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exec sleep 1000"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		pids[i] = pid
	}
	p := &process{inner: 1}
	p.earliers = copy(p.earlier[:], fmt.Sprintf("%d %d %d ", pids[0], pids[1], pids[2]))
	p.reap()
	for _, pid := range pids {
		if at, _ := p.findEarlier(pid); at == 0 {
			t.Errorf("%d lives, and is not known", pid)
		}
	}
	_ = syscall.Kill(pids[1], syscall.SIGKILL)
	for p.exited(0, 0) == 0 { // P_ALL
	}
	p.reap()
	for i, pid := range pids {
		if at, _ := p.findEarlier(pid); (at == 0) != (i == 1) {
			t.Errorf("number %d is known at %#x", i, at)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if got, err := syscall.Wait4(pid, nil, 0, nil); (err == nil) != (i != 1) {
			t.Errorf("number %d: wait4 says %d, %v", i, got, err)
		}
	}
}
