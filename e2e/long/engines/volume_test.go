package engines

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
)

// A volume is a directory that a container has as /volume. In it are the scripts, and what is
// left of their work; and a witness, which each process of the case holds.
type volume struct {
	t       *testing.T
	dir     string
	Witness *os.File
}

// Asked to end, a saver needs a while to save its work. What it starts meanwhile ignores the TERM that each leftover gets.
const saver = `
	trap 'trap "" TERM; echo asked >>/volume/saved; sleep 0.3; echo "saved by $(id -u)" >>/volume/saved; exit' TERM
	echo saver ready
	while :; do sleep 1000 & wait; done`

// What commands are made of.
const (
	holds    = `exec 9>/volume/witness; `
	hasSaver = `setsid sh /volume/saver & `
	stays    = `while :; do sleep 1000 & wait; done`
	stubborn = `(trap "" TERM; setsid sleep 1000 &); ` // ignores TERM, as its parent does
)

// saverMain says which signal it got, and ends by the one that END names.
const saverMain = holds + `
	for s in HUP INT QUIT USR1 USR2 WINCH TERM 37; do trap "echo got $s" $s; done
	trap "echo the end; exit 7" ${END:-TERM}
	` + hasSaver + stays

func newVolume(t *testing.T) *volume {
	t.Helper()
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-volume-")
	rig.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	rig.NoError(t, os.Chmod(dir, 0o755))
	rig.Put(t, filepath.Join(dir, "saver"), saver, 0o644)
	rig.Put(t, filepath.Join(dir, "saved"), "", 0o644)
	fifo := filepath.Join(dir, "witness")
	rig.NoError(t, syscall.Mkfifo(fifo, 0o600))
	rig.NoError(t, os.Chmod(fifo, 0o666))
	rig.NoError(t, os.Chmod(filepath.Join(dir, "saved"), 0o666))
	// With a reader that does not wait for a writer.
	witness, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	rig.NoError(t, err)
	t.Cleanup(func() { _ = witness.Close() })
	return &volume{t, dir, witness}
}

// With is flags of `run` which give a container this volume.
func (y *volume) With(flags ...string) []string {
	return append([]string{"-v", y.dir + ":/volume"}, flags...)
}

func (y *volume) Saved() string {
	y.t.Helper()
	return rig.ReadFile(y.t, filepath.Join(y.dir, "saved"))
}

// MustBeLeft asserts that this work was saved, and that nobody of the case is alive.
func (y *volume) MustBeLeft(saved string) {
	y.t.Helper()
	if got := y.Saved(); got != saved {
		y.t.Errorf("saved was %q, want %q", got, saved)
	}
	if rig.HeldOpen(y.Witness) {
		y.t.Error("a process of the case is alive")
	}
}

// MustBeHeld asserts that the case has not let go of the witness before it ends.
func (y *volume) MustBeHeld() {
	y.t.Helper()
	if rig.HungUp(y.Witness) {
		y.t.Fatal("nobody holds the witness")
	}
}
