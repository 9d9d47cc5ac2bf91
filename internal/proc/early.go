package proc

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/calls"
)

// This file reads /proc before there is a Go runtime: see package calls.

// ReadOf reads the beginning of a file into text. The file's path is head, pid and tail put together, and tail ends
// with a NUL. The last byte of text remains 0. ReadOf returns the number of bytes, or a negative errno.
//
//go:nosplit
func ReadOf(head string, pid int, tail string, text *[4096]byte) int {
	at := uintptr(unsafe.Pointer(text)) + 64
	for i := range len(tail) {
		calls.SetByte(at+uintptr(i), tail[i])
	}
	for ; pid > 0; pid /= 10 {
		at--
		calls.SetByte(at, byte('0'+pid%10))
	}
	for i := len(head) - 1; i >= 0; i-- {
		at--
		calls.SetByte(at, head[i])
	}
	fd := calls.OpenAt(at, unix.O_RDONLY)
	n := calls.Call(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(text)), uintptr(len(text)-1), 0)
	calls.Close(fd)
	return n
}

// ParentNow returns the parent of a process, even of a zombie, or 0 if it is unknown. Before Linux 6.13 this requires a
// file in /proc, which ParentNow reads into text if mayRead is true.
//
//go:nosplit
func ParentNow(pid int, text *[4096]byte, mayRead bool) int {
	const getInfo = 0xc040ff0b // PIDFD_GET_INFO, as Linux 6.13 has it
	info := (*unix.PidfdInfo)(unsafe.Pointer(text))
	info.Mask = 0
	fd := calls.Call(unix.SYS_PIDFD_OPEN, uintptr(pid), 0, 0, 0)
	failed := calls.Call(unix.SYS_IOCTL, uintptr(fd), getInfo, uintptr(unsafe.Pointer(info)), 0)
	calls.Close(fd)
	if failed == 0 {
		return int(info.Ppid)
	}
	if !mayRead {
		return 0
	}
	for at, left := uintptr(unsafe.Pointer(text)), ReadOf("/proc/", pid, "/status\x00", text); left > 0; at, left = at+1,
		left-1 {
		if calls.Begins(at, "\nPPid:\t") {
			parent, _ := calls.Number(at + uintptr(len("\nPPid:\t")))
			return parent
		}
	}
	return 0
}
