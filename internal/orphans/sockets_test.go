package orphans

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"golang.org/x/sys/unix"
)

// A process listens on what it has inherited, too.
func TestSurroundings(t *testing.T) {
	f := newFamily(t)
	fileOf := func(c interface{ File() (*os.File, error) }) *os.File {
		file, err := c.File()
		check.NoError(t, err)
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	listen := func(at string) (file *os.File, address string) {
		l, err := net.Listen("tcp", at)
		need.That(t, err == nil, "the loopback, also with IPv6")
		t.Cleanup(func() { _ = l.Close() })
		return fileOf(l.(*net.TCPListener)), l.Addr().String()
	}
	tcp, tcpAt := listen("127.0.0.1:0")
	six, sixAt := listen("[::1]:0")
	connected, err := net.Dial("tcp", tcpAt)
	check.NoError(t, err)
	defer func() { _ = connected.Close() }()
	here, err := os.Getwd()
	check.NoError(t, err)

	server := command("@stay", "server")
	server.Dir = t.TempDir()
	f.start(server, tcp, tcp, fileOf(connected.(*net.TCPConn)))
	f.start(command("@stay", "six"), six)
	want := map[string]Details{
		"server": {Listens: []string{tcpAt}, Dir: server.Dir, OtherDir: true},
		"six":    {Listens: []string{sixAt}, Dir: here},
	}
	if need.IsRoot() {
		// The tables of another network are not its own.
		apart := command("@stay", "apart")
		apart.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		f.start(apart, tcp)
		want["apart"] = Details{Dir: here}
	}
	tree := New()
	f.allSleep()
	for label, p := range f.find(t, tree) {
		got := tree.Details(p, nil)
		got.Variables = nil
		check.Equal(t, label, got, want[label])
	}
	// It is asked once, and one that comes later is asked then.
	late, lateAt := listen("127.0.0.1:0")
	f.start(command("@stay", "late"), late)
	f.allSleep()
	check.Equal(t, "with a new look", tree.Details(f.find(t, tree)["late"], nil).Listens, []string{lateAt})
}

// The tables have words as the machine has them: these are of one with the small end first.
func TestParseSockets(t *testing.T) {
	const rest = " 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0"
	for _, c := range []struct {
		parse      func(line []byte) (inode, address string)
		line, want string
	}{
		{parseTCP, "   0: 0100007F:0BB8" + rest, "127.0.0.1:3000"},
		{parseTCP, "   1: 00000000:0050" + rest, "0.0.0.0:80"},
		{parseTCP, "   0: 00000000000000000000000000000000:0BB8" + rest, "[::]:3000"},
		{parseTCP, "   0: 00000000000000000000000001000000:0BB8" + rest, "[::1]:3000"},
		{parseTCP, "   0: 0000000000000000FFFF00000100007F:0BB8" + rest, "[::ffff:127.0.0.1]:3000"},
		{parseTCP, "   0: B80D0120000000000000000001000000:0016" + rest, "[2001:db8::1]:22"},
		{parseTCP, "   0: B80D0120010000000100000001000000:0016" + rest, "[2001:db8:0:1:0:1:0:1]:22"},
		{parseTCP, "   0: 000080FE00000000FF005450B6AD1DFE:0016" + rest, "[fe80::5054:ff:fe1d:adb6]:22"},
		{parseTCP, "   0: 0100007F:0BB8" + strings.Replace(rest, " 0A ", " 01 ", 1), ""},
		{parseTCP, "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", ""},
		{parseTCP, "   0: 0100007F" + rest, ""},
		{parseTCP, "   0: 0100007F:12345" + rest, ""},
		{parseTCP, "   0: 01000:0BB8" + rest, ""},
		{parseTCP, "   0: 0100007F01:0BB8" + rest, ""},
		{parseTCP, "", ""},
		{parseUnix, "ffff8880: 00000002 00000000 00010000 0001 01  4711 /run/a.sock", "/run/a.sock"},
		{parseUnix, "ffff8880: 00000002 00000000 00010000 0001 01  4711 @name of a sock", "@name of a sock"},
		{parseUnix, "ffff8880: 00000003 00000000 00000000 0001 03  4711 /run/a.sock", ""},
		{parseUnix, "ffff8880: 00000002 00000000 00010000 0001 01  4711", ""},
		{parseUnix, "Num       RefCount Protocol Flags    Type St Inode Path", ""},
		{parseUnix, "", ""},
	} {
		if inode, address := c.parse([]byte(c.line)); address != c.want || c.want != "" && inode != "4711" {
			t.Errorf("%q: %s, %q, want %q", c.line, inode, address, c.want)
		}
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add("   0: 0100007F:0BB8 00000000:0000 0A 0:0 00:0 0  1000        0 4711 1 0 100 0 0 10 0")
	f.Add("ffff8880: 00000002 00000000 00010000 0001 01  4711 /run/a.sock")
	f.Fuzz(func(t *testing.T, line string) {
		if _, address := parseTCP([]byte(line)); address != "" && (len(address) < 9 || len(address) > 54) {
			t.Errorf("%q listens on %q", line, address)
		}
		if _, path := parseUnix([]byte(line)); len(path) > maxAddress || !strings.Contains(line, path) {
			t.Errorf("%q listens on %q", line, path)
		}
	})
}
