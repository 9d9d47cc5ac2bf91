package orphans

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/proc"
)

// This file finds the processes that hold the standard streams of this process, from the texts and the modes of the
// links in /proc/PID/fd.

// Streams is a set of this process's standard streams.
type Streams uint8

const (
	Stdout  Streams = 1 << iota
	Stderr          // both may be the same pipe
	Unknown         // fini could not read the descriptors of the process
)

// A stream is the text of the link in /proc/PID/fd, as "pipe:[4711]", which is the same in every process that has the
// pipe or socket open. It is "" for a file whose end no reader waits for.
type stream string

const unreadable stream = "?" // a pipe or socket, and no /proc to say which

// ownStream is the stream of a descriptor of this process. No reader waits for the end of a terminal, a
// file or /dev/null. ownStream finds the kind without stat(2), which may wait for a server.
func (t *Tree) ownStream(fd int) stream {
	known := proc.Stream(fd) != 0
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), t.Buf)
	link := string(t.Buf[:max(n, 0)])
	switch {
	case err != nil && known:
		return unreadable
	case known, strings.HasPrefix(link, "pipe:["), strings.HasPrefix(link, "socket:["): // the last two cases are an O_PATH reference
		return stream(link)
	}
	return ""
}

// holds are the standard streams of this process that another process or thread has open for writing. holds reads the
// descriptors in dir, the directory of that process or thread. Both ends of a
// pipe have the same text; the owner's bits of a link's mode are how the file was opened.
// /proc/PID/fdinfo shows that mode too, but asks the file, which may wait: an epoll(7) instance does.
func (f *files) holds(dir string, streams [2]stream) (held Streams) {
	switch {
	case streams == [2]stream{}:
		return 0
	case streams[0] == unreadable, streams[1] == unreadable:
		return Unknown
	}
	err := f.List(dir+"/fd", func(fd int) bool {
		name := dir + "/fd/" + strconv.Itoa(fd)
		opened := stream(f.Link(name))
		var hit Streams
		for i, which := range []Streams{Stdout, Stderr} {
			if opened != "" && streams[i] == opened {
				hit |= which
			}
		}
		var link unix.Stat_t
		if hit != 0 && unix.Fstatat(f.Dir, name, &link, unix.AT_SYMLINK_NOFOLLOW) == nil && link.Mode&unix.S_IWUSR != 0 {
			held |= hit
		}
		return true
	})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return Unknown
	}
	return held
}
