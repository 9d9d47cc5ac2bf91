package programs

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// programSize is the size of the file that is served. It consists of sleep(1) and padding.
const programSize = 8 << 20

// mountServed mounts the file system whose connection is descriptor 4, for this thread and its children. Only the
// server keeps the connection open.
func mountServed(dir string) {
	unix.CloseOnExec(4)
	must(unix.Unshare(unix.CLONE_NEWNS))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("fini-e2e", dir, "fuse", 0, "fd=4,rootmode=40000,user_id=0,group_id=0"))
	must(unix.Close(4))
}

// runFuse serves a file system that contains a file, "program", and a FIFO, "fifo". Descriptor 3 is an open /dev/fuse.
// See include/uapi/linux/fuse.h in the kernel.
func runFuse(args []string) int {
	content, err := os.ReadFile("/bin/sleep")
	must(err)
	content = append(content, make([]byte, programSize-len(content))...)
	const root, program, fifo = 1, 2, 3
	const forever = 1 << 30 // seconds that the kernel may go by a name; by attributes it may not
	put32, put64 := binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint64
	get32, get64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	attr := func(node uint64) []byte { // struct fuse_attr
		a := make([]byte, 88)
		put64(a, node)
		put32(a[60:], syscall.S_IFDIR|0o755)
		put32(a[64:], 1)
		switch node {
		case fifo:
			put32(a[60:], syscall.S_IFIFO|0o600)
		case program:
			put64(a[8:], programSize)
			put32(a[60:], syscall.S_IFREG|0o755)
		}
		return a
	}
	request := make([]byte, 1<<20)
	for {
		n, err := unix.Read(3, request)
		switch err {
		case nil:
		case unix.EINTR, unix.ENOENT: // the caller was interrupted
			continue
		case unix.EPERM: // it is not mounted yet
			time.Sleep(time.Millisecond)
			continue
		default: // the file system is gone
			return 0
		}
		in, body := request[:40], request[40:n] // struct fuse_in_header
		node := get64(in[16:])
		var errno syscall.Errno
		var out []byte
		switch get32(in[4:]) {
		case 26: // FUSE_INIT
			out = make([]byte, 64)
			put32(out, 7)
			put32(out[4:], 31)
			put32(out[8:], 64<<10) // max_readahead
			put32(out[12:], 1)     // FUSE_ASYNC_READ
			put32(out[20:], 64<<10)
			put32(out[24:], 1)
		case 1: // FUSE_LOOKUP
			found := map[string]uint64{"program\x00": program, "fifo\x00": fifo}[string(body)]
			if node != root || found == 0 {
				errno = unix.ENOENT
				break
			}
			out = make([]byte, 40)
			put64(out, found)
			put64(out[16:], forever)
			out = append(out, attr(found)...)
		case 3, 4: // FUSE_GETATTR, FUSE_SETATTR
			out = append(make([]byte, 16), attr(node)...)
		case 14, 27: // FUSE_OPEN, FUSE_OPENDIR
			out = make([]byte, 16)
			if args[0] != "close" && args[0] != "execve" {
				put32(out[8:], 1<<5) // FOPEN_NOFLUSH: a close asks nothing
			}
		case 15: // FUSE_READ
			from := min(get64(body[8:]), programSize)
			out = content[from:min(from+uint64(get32(body[16:])), programSize)]
		case 16: // FUSE_WRITE
			out = make([]byte, 8)
			put32(out, get32(body[16:]))
		case 25: // FUSE_FLUSH
			if args[0] == "execve" {
				fmt.Println("flush")
				continue
			}
			errno = unix.ENOSYS
		case 34: // FUSE_ACCESS: chdir(2) asks each time, unless there is no such call
			if args[0] != "fini's directory" {
				errno = unix.ENOSYS
			}
		case 18, 28, 29: // FUSE_RELEASE, FUSE_READDIR, FUSE_RELEASEDIR
		case 2, 42: // FUSE_FORGET, FUSE_BATCH_FORGET: no answer is wanted
			continue
		default:
			errno = unix.ENOSYS
		}
		answer := make([]byte, 16, 16+len(out)) // struct fuse_out_header
		put32(answer, uint32(16+len(out)))
		put32(answer[4:], uint32(-int32(errno)))
		copy(answer[8:16], in[8:16])
		_, _ = unix.Write(3, append(answer, out...))
	}
}
