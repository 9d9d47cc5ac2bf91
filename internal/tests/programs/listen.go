package programs

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// runListen listens on each of the given addresses, such as "tcp 127.0.0.1:0". It writes "listens" and each address,
// and "listener" and its pid. If the first word is a user, it becomes that user before.
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
