package programs

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// runFlip puts in turn a fifo that it reads, a file, and links to all the paths behind the first one under
// the name that is the first one, until its stdin ends. It says "enough" once it has done so as often as its first
// argument says.
func runFlip(args []string) int {
	enough, _ := strconv.Atoi(args[0])
	path, targets := args[1], args[2:]
	fifo := path + ".fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		fmt.Println("@flip:", err)
		return 1
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		fmt.Println("@flip:", err)
		return 1
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	fmt.Println("ready")
	next := path + ".next"
	for flips := 0; ; flips++ {
		select {
		case <-ended:
			return 0
		default:
		}
		if flips == enough {
			fmt.Println("enough")
		}
		switch i := flips % (len(targets) + 2); i {
		case 0:
			err = os.Link(fifo, next)
		case 1:
			err = os.WriteFile(next, nil, 0o600)
		default:
			err = os.Symlink(targets[i-2], next)
		}
		if err == nil {
			err = os.Rename(next, path)
		}
		if err != nil {
			fmt.Println("@flip:", err)
			return 1
		}
	}
}
