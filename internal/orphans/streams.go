package orphans

import (
	"cmp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file finds the processes that hold the standard streams of this process, from the texts and the modes of the
// links in /proc/PID/fd.

// Streams is a set of this process's standard streams.
type Streams uint8

const (
	Stdout Streams = 1 << iota
	Stderr         // both may be the same pipe

	both = Stdout | Stderr
)

// A Holding tells of each of this process's standard streams whether another process has it open for writing: yes, no,
// or unknown. The zero Holding is unknown for both.
type Holding struct{ held, free Streams }

// Holds is the Holding of a process that holds these streams, and no other.
func Holds(held Streams) Holding { return Holding{held, both &^ held} }

// Held are the streams that the process certainly holds. It may hold more if known is false.
func (h Holding) Held() (held Streams, known bool) { return h.held, h.held|h.free == both }

// May are the streams that the process holds or may hold.
func (h Holding) May() Streams { return both &^ h.free }

// A stream is the text of the link in /proc/PID/fd, as "pipe:[4711]", which is the same in every process that has the
// pipe or socket open. It is "" for a file whose end no reader waits for.
type stream string

const unreadable stream = "?" // a pipe or socket, and no /proc to say which

// ownStream is the stream of a descriptor of this process. No reader waits for the end of a terminal, a
// file or /dev/null.
func ownStream(fd int) stream {
	if proc.Stream(fd) == 0 {
		return ""
	}
	text, _ := proc.OwnDescriptor(fd).Text()
	return cmp.Or(stream(text), unreadable)
}

// Holders returns which of some processes, which the last Look has found, have the pipe open for writing to which a
// descriptor of this process refers, and about which of them that is unknown.
func (t *Tree) Holders(fd int, of []Process) (holders, unknown []Process) {
	streams := [2]stream{ownStream(fd)}
	found := map[int]Holding{}
	t.persist(5, of, func(quiet []Process) {
		for i, h := range ask(t, quiet, func(f *files, p Process) Holding {
			h, _ := f.holds(p.dir(), streams)
			return h
		}) {
			found[quiet[i].Pid] = h
		}
	}, func(p Process) bool {
		_, asked := found[p.Pid]
		return asked
	})
	for _, p := range of {
		switch h, asked := found[p.Pid]; {
		case h.held != 0:
			holders = append(holders, p)
		case !asked && p.Alive(), asked && h.May() != 0:
			unknown = append(unknown, p)
		}
	}
	return holders, unknown
}

// mayHold is the Holding of a process whose descriptors are unknown.
func mayHold(streams [2]stream) (h Holding) {
	for i, own := range streams {
		if own == "" {
			h.free |= Stdout << i
		}
	}
	return h
}

// mayLeaveHolder reports whether a process that has ended may have left a process that holds a stream: unless an earlier
// look has found that it holds none.
func (k *kept) mayLeaveHolder() bool { return k == nil || k.facts == nil || k.facts.holds.May() != 0 }

// holds finds the standard streams of this process that another process or thread has open for writing. holds reads the
// descriptors in dir, the directory of that process or thread. Both ends of a
// pipe have the same text; the owner's bits of a link's mode are how the file was opened.
// /proc/PID/fdinfo shows that mode too, but asks the file, which may wait: an epoll(7) instance does. A process that has
// ended holds nothing, but gone says that nobody knows what it has held.
func (f *files) holds(dir string, streams [2]stream) (h Holding, gone bool) {
	h = mayHold(streams)
	if h.May() == 0 || slices.Contains(streams[:], unreadable) {
		return h, false
	}
	known := true
	err := f.List(dir+"/fd", func(fd int) bool {
		opened, err := f.Descriptor(dir, fd).Text()
		var hit Streams
		for i, own := range streams {
			if err == nil && opened != "" && stream(opened) == own {
				hit |= Stdout << i
			}
		}
		var link unix.Stat_t
		if hit != 0 {
			err = unix.Fstatat(f.Dir, dir+"/fd/"+strconv.Itoa(fd), &link, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil && link.Mode&unix.S_IWUSR != 0 {
			h.held |= hit
		}
		known = known && (err == nil || proc.IsGone(err))
		return true
	})
	gone = err != nil && proc.IsGone(err)
	if known && (err == nil || gone) {
		return Holds(h.held), gone
	}
	return h, false
}
