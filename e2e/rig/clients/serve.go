package clients

import (
	"bufio"
	"fmt"
	"net"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// Serve answers GET requests to an address of this machine, one in each connection, until the test ends. The rig does
// without net/http, which takes longer to compile than the rig and all rooms. An answer of nil
// says that there is no such path.
func Serve(t testing.TB, answer func(path string) (body []byte)) (url string) {
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

// respond reads one request and answers it. Without nosniff a browser takes the page for a download.
func respond(conn net.Conn, answer func(path string) []byte) {
	defer func() { _ = conn.Close() }()
	var path string
	in := bufio.NewScanner(conn)
	in.Scan()
	_, _ = fmt.Sscanf(in.Text(), "GET %s", &path)
	for in.Scan() && in.Text() != "" {
	}
	status, body := "200 OK", answer(path)
	if body == nil {
		status = "404 Not Found"
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body)
}
