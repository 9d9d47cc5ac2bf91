package programs

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// runListen listens as each of its words says, such as "tcp 127.0.0.1:0", says "listens" with the address for
// each and "listener" with its pid; with a user first it becomes that one before.
func runListen(words []string) int {
	if uid, err := strconv.Atoi(strings.Join(words[:min(len(words), 1)], "")); err == nil {
		must(syscall.Setuid(uid))
		words = words[1:]
	}
	for _, word := range words {
		network, address, _ := strings.Cut(word, " ")
		l, err := net.Listen(network, address)
		must(err)
		defer func() { _ = l.Close() }()
		fmt.Println("listens", strings.Replace(l.Addr().String(), "\x00", "@", 1))
	}
	fmt.Println("listener", os.Getpid())
	return forever()
}
