package runners

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

// A gate is a FIFO at which a script waits, where its stdin is the runner's affair.
type Gate struct {
	Name string
	file *os.File
}

func NewGate(t *testing.T) *Gate {
	t.Helper()
	g := &Gate{Name: filepath.Join(t.TempDir(), "gate")}
	err := unix.Mkfifo(g.Name, 0o600)
	if err == nil {
		g.file, err = os.OpenFile(g.Name, os.O_RDWR, 0) // which waits for no reader
	}
	rig.NoError(t, err)
	t.Cleanup(func() { _ = g.file.Close() })
	return g
}

// Open lets one reader pass: a line of one byte can't be shared by two.
func (g *Gate) Open(t *testing.T) {
	t.Helper()
	if _, err := g.file.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
}
