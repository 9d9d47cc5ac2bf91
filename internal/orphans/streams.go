package orphans

import (
	"cmp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file finds the processes that have this process's standard streams open. It uses the text and the mode of the
// links in /proc/PID/fd.

// Streams is a set of standard streams of this process.
type Streams uint8

const (
	Stdout Streams = 1 << iota
	Stderr         // may be the same pipe as Stdout

	both = Stdout | Stderr
)

// A Holding says for each standard stream of this process whether another process has it open for writing, or that this
// is unknown. The zero Holding says nothing about either stream.
type Holding struct{ held, free Streams }

// Holds returns a Holding for a process that has exactly these streams open.
func Holds(held Streams) Holding { return Holding{held, both &^ held} }

// Held returns the streams that the process is known to have open. If known is false, there may be others.
func (h Holding) Held() (held Streams, known bool) { return h.held, h.held|h.free == both }

// May returns the streams that the process has open or may have open.
func (h Holding) May() Streams { return both &^ h.free }

// A stream is the text of a link in /proc/PID/fd, such as "pipe:[4711]". It is the same in all processes that have the
// pipe or socket open. It is "" for other kinds of files, because nobody waits for their end.
type stream string

const unreadable stream = "?" // a pipe or socket whose link can't be read without /proc

// ownStream returns the stream for a descriptor of this process. It returns "" for a terminal, a regular file or
// /dev/null, because no reader waits for their end.
func ownStream(fd int) stream {
	if proc.Stream(fd) == 0 {
		return ""
	}
	text, _ := proc.OwnDescriptor(fd).Text()
	return cmp.Or(stream(text), unreadable)
}

// Holders returns those of the given processes that have the pipe of fd open for writing, and those for which this
// can't be found out. The processes must be results of the last Look.
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

// mayHold returns the Holding of a process whose descriptors are unknown.
func mayHold(streams [2]stream) (h Holding) {
	for i, own := range streams {
		if own == "" {
			h.free |= Stdout << i
		}
	}
	return h
}

// mayLeaveHolder reports whether a process that has ended may have left a process that holds a stream. It returns false
// if an earlier look found that the process itself held none.
func (k *kept) mayLeaveHolder() bool {
	return k == nil || k.facts == nil || k.facts.gone || k.facts.holds.May() != 0
}

// holds returns the standard streams that another process or thread has open for writing. dir is its directory in
// /proc. Both ends of a pipe have the same link text, but the owner's bits in the link's mode show how a descriptor was
// opened. /proc/PID/fdinfo shows that too, but may hang, for example for an epoll(7) instance. gone is true if the
// process has ended. It then holds nothing, but it is unknown what it held before.
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
