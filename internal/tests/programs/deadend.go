package programs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runDeadEnd mounts the file system, if there is one, and starts the leftover. It passes a line of stdin on to it, and
// exits with 5 after the next line.
func runDeadEnd(args []string) int {
	name, dir := args[0], args[1]
	cmd := leftover(CommandLine("at-dead-end", name, dir)...)
	if strings.Contains(name, "terminal") {
		unix.CloseOnExec(4)
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(4, "terminal"))
		cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 4
	} else {
		mountServed(dir)
	}
	tell, err := cmd.StdinPipe()
	must(err)
	must(cmd.Start())
	_ = unix.Close(4)
	lines := bufio.NewReader(os.Stdin)
	line, _ := lines.ReadString('\n')
	_, _ = tell.Write([]byte(line))
	_, _ = lines.ReadString('\n')
	return 5
}

// runInDeadEnd mounts the file system and executes a command in its root directory.
func runInDeadEnd(args []string) int {
	mountServed(args[0])
	must(unix.Chdir(args[0]))
	must(unix.Exec(args[1], args[1:], os.Environ()))
	return 1
}

// runAtDeadEnd is the leftover. It writes "ready" when it is in the state that its name describes. After reading a
// line, it does what waits for the server, if anything.
func runAtDeadEnd(args []string) int {
	name, dir := args[0], args[1]
	open := func(flags int) int {
		fd, err := unix.Open(dir+"/program", flags, 0)
		must(err)
		return fd
	}
	mapped := func(flags, prot int) []byte {
		m, err := unix.Mmap(open(flags|unix.O_CLOEXEC), 0, programSize, prot, unix.MAP_SHARED)
		must(err)
		return m
	}
	must(os.WriteFile("/proc/self/comm", []byte(Silent[0]), 0))
	then := func() {}
	switch name {
	case "working directory":
		must(unix.Chdir(dir))
	case "root directory":
		must(unix.Chroot(dir))
		must(unix.Chdir("/"))
	case "executable":
		fmt.Println("ready")
		must(unix.Exec(dir+"/program", []string{"program", "1000"}, os.Environ()))
	case "mapped file":
		m := mapped(unix.O_RDONLY, unix.PROT_READ)
		fmt.Fprintln(io.Discard, m[0])
	case "descriptor":
		open(unix.O_RDONLY)
	case "close":
		fd := open(unix.O_RDONLY)
		then = func() { _ = unix.Close(fd) }
	case "page fault":
		m := mapped(unix.O_RDONLY, unix.PROT_READ)
		then = func() { fmt.Println(m[programSize/2]) }
	case "lock of its mappings":
		// Before a mapping with changed pages is replaced, the pages are written, while mmap_lock is held.
		m := mapped(unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE)
		m[0] = 1
		then = func() {
			_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(&m[0]), 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED)
		}
	case "full terminal":
		then = func() {
			for {
				_, _ = unix.Write(4, make([]byte, 4096))
			}
		}
	case "terminal that hung up":
		signal.Ignore(syscall.SIGHUP)
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	then()
	return forever()
}

// Silent lists the names of processes some of which never respond to a read of their environment.
var Silent = []string{"dead end", "program"}
