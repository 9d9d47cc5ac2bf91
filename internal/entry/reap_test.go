//go:build amd64 || arm64

package entry

import (
	"syscall"
	"testing"
)

// An earlier child that has exited is reaped, and no other process that gets its pid counts as an earlier child.
func TestReap(t *testing.T) {
	pids := [...]int{anOrphan(t), anOrphan(t), anOrphan(t)}
	p := &process{inner: 1}
	for i, pid := range pids {
		p.earlier[i] = int32(pid)
	}
	p.reap()
	for _, pid := range pids {
		if p.findEarlier(pid) == nil {
			t.Errorf("%d lives, and is not known", pid)
		}
	}
	kill(pids[1])
	p.reap()
	for i, pid := range pids {
		if at := p.findEarlier(pid); (at == nil) != (i == 1) {
			t.Errorf("number %d is known: %t", i, at != nil)
		}
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); (err == nil) != (i != 1) {
			t.Errorf("number %d: wait4 says %d, %v", i, got, err)
		}
	}
}
