package clients

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Serve answers GET requests to an address of this machine, one in each connection, until the test ends. The rig does
// without net/http, which takes longer to compile than the rig and all rooms. An answer without a
// body says that there is no such path. The channel is closed when the client has hung up.
func Serve(t testing.TB, answer func(path string, gone <-chan struct{}) (kind string, body []byte)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	rig.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go respond(conn, answer)
		}
	}()
	return "http://" + listener.Addr().String()
}

// respond reads one request and answers it.
func respond(conn net.Conn, answer func(path string, gone <-chan struct{}) (kind string, body []byte)) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	words := strings.Fields(line)
	for err == nil && strings.TrimSpace(line) != "" {
		line, err = in.ReadString('\n')
	}
	if err != nil || len(words) < 2 {
		return
	}
	gone := make(chan struct{})
	go func() {
		_, _ = in.ReadByte() // nothing follows but the end
		close(gone)
	}()
	status := "200 OK"
	kind, body := answer(words[1], gone)
	if body == nil {
		status = "404 Not Found"
	}
	// Without nosniff a browser takes the page for a download.
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: %s\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, kind, len(body), body)
}
