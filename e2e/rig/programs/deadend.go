package programs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runDeadEnd mounts the file system, if there is one, starts the leftover, passes a line of
// stdin on to it, and ends with 5 after the next.
func runDeadEnd(args []string) int {
	runtime.LockOSThread() // which alone gets the mount namespace, and all that it starts
	name, dir := args[0], args[1]
	argv := CommandLine("at-dead-end", name, dir)
	leftover := exec.Command(argv[0], argv[1:]...)
	leftover.Stdout, leftover.Stderr, leftover.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, "witness")}
	leftover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	given := os.NewFile(4, "given")
	unix.CloseOnExec(4) // the server alone keeps the connection
	if strings.Contains(name, "terminal") {
		leftover.ExtraFiles = append(leftover.ExtraFiles, given)
		leftover.SysProcAttr.Setctty, leftover.SysProcAttr.Ctty = true, 4
	} else {
		if err := mountDeadEnd(dir); err != nil {
			fmt.Fprintln(os.Stderr, "@dead-end:", err)
			return 1
		}
	}
	tell, err := leftover.StdinPipe()
	if err == nil {
		err = leftover.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "@dead-end:", err)
		return 1
	}
	_ = given.Close()
	lines := bufio.NewReader(os.Stdin)
	line, _ := lines.ReadString('\n')
	_, _ = tell.Write([]byte(line))
	_, _ = lines.ReadString('\n')
	return 5
}

// mountDeadEnd mounts the file system of which descriptor 4 is the connection, for this thread and what it starts.
func mountDeadEnd(dir string) error {
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("fini-e2e", dir, "fuse", 0, "fd=4,rootmode=40000,user_id=0,group_id=0")
	}
	return err
}

// runInDeadEnd mounts the file system, and becomes a command in its root directory.
func runInDeadEnd(args []string) int {
	runtime.LockOSThread()
	unix.CloseOnExec(4)
	err := mountDeadEnd(args[0])
	if err == nil {
		err = unix.Chdir(args[0])
	}
	if err == nil {
		err = unix.Exec(args[1], args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "@in-dead-end:", err)
	return 1
}

// runAtDeadEnd is the leftover. It says "ready" when it has what its name says, and does what
// waits for the server, if anything, once it has read a line.
func runAtDeadEnd(args []string) int {
	name, dir := args[0], args[1]
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "@at-dead-end:", name, err)
			os.Exit(1)
		}
	}
	mapped := func(flags, prot int) []byte {
		fd, err := unix.Open(dir+"/program", flags|unix.O_CLOEXEC, 0)
		must(err)
		m, err := unix.Mmap(fd, 0, programSize, prot, unix.MAP_SHARED)
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
	case "descriptor", "close":
		fd, err := unix.Open(dir+"/program", unix.O_RDONLY, 0)
		must(err)
		if name == "close" {
			then = func() { _ = unix.Close(fd) }
		}
	case "page fault":
		m := mapped(unix.O_RDONLY, unix.PROT_READ)
		then = func() { fmt.Println(m[programSize/2]) }
	case "lock of its mappings":
		// What replaces a mapping with changed pages writes them first, under mmap_lock.
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
	time.Sleep(1000 * time.Second)
	return 0
}

// Silent are the names of processes of which some never answer who reads their environment.
var Silent = []string{"dead end", "program"}
