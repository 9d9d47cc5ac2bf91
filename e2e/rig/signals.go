package rig

import (
	"fmt"
	"strings"
	"syscall"
)

// What a Go program as the command can't catch, or fini must not forward: KILL and STOP; CHLD,
// which speaks of fini's own children; URG and PROF, which the runtime keeps; 32 to 34, which
// the C library and the runtime keep.
func Forwardable(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF:
		return false
	}
	return sig < 32 || sig > 34
}

func CountStopped(pids []int) (n int) {
	for _, pid := range pids {
		if strings.HasPrefix(ProcStatus(pid, "State"), "T") {
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
