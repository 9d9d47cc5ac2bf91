package reaper

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// A Note is a pid that a child leaves for its parent, to be read even when the child has
// been killed. Both ends are descriptors of a pipe(7).
type Note struct{ Read, Write int }

// NewNote opens a note.
func NewNote() (Note, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return Note{-1, -1}, fmt.Errorf("cannot open a pipe: %w", err)
	}
	return Note{fds[0], fds[1]}, nil
}

// Leave writes the pid and closes the writing end.
func (n Note) Leave(pid int) {
	_, _ = unix.Write(n.Write, binary.NativeEndian.AppendUint32(nil, uint32(pid)))
	_ = unix.Close(n.Write)
}

// Find is the pid that was left, 0 for none.
func (n Note) Find() int {
	var b [4]byte
	if got, err := unix.Read(n.Read, b[:]); err != nil || got != len(b) {
		return 0
	}
	return int(binary.NativeEndian.Uint32(b[:]))
}
