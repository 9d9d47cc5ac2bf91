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
	t       testing.TB
	dir     string
	Witness *os.File
}

var volumeFiles = map[string]string{
	// The engines' images have no users but by these.
	"passwd": "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n",
	"group":  "root:x:0:\napp:x:1000:\n",

	"saved": "",
	// Asked to end, it needs a while to save its work. What it starts meanwhile ignores the
	// TERM that each leftover gets.
	"saver": `
		trap 'trap "" TERM; echo asked >>/volume/saved; sleep 0.3; echo "saved by $(id -u)" >>/volume/saved; exit' TERM
		echo saver ready
		while :; do sleep 1000 & wait; done`,

	// A command with a saver in a session of its own. It says which signal it got, and
	// ends by the one that END names.
	"main": `
		exec 9>/volume/witness
		for s in HUP INT QUIT USR1 USR2 WINCH TERM 37; do trap "echo got $s" $s; done
		trap "echo the end; exit 7" ${END:-TERM}
		setsid sh /volume/saver &
		while :; do sleep 1000 & wait; done`,
	// One that takes bytes.
	"copy": `
		exec 9>/volume/witness
		setsid sh /volume/saver &
		exec cat`,
	// One that takes all memory, when it is told to.
	"eater": `
		exec 9>/volume/witness
		setsid sh /volume/saver &
		read line
		exec tail /dev/zero`,
	// One that leaves two leftovers of another user, of which one ignores TERM.
	"leaver": `
		exec 9>/volume/witness
		su app -c 'setsid sh /volume/saver & trap "" TERM; setsid sleep 1000 &'
		read line
		exit 5`,
	// Says its pid and becomes a wrapper with what it wraps.
	"wrapper": `
		exec 9>/volume/witness
		echo wrapper $$
		exec "$@"`,
	"both": `
		(trap "" TERM; setsid sleep 1000 &)
		. /volume/one`,
	"one": `
		setsid sh /volume/saver &
		while :; do sleep 1000 & wait; done`,
	"inner": `
		for d in /proc/[0-9]*; do
			read -r _ name _ above rest <$d/stat && read -r _ parent rest </proc/$above/stat &&
			case $name$parent in "(reaper)(fini)") echo ${d#/proc/};; esac
		done 2>/dev/null
		true`,
}

func newVolume(t testing.TB) *volume {
	t.Helper()
	// Not t.TempDir, whose parent another user can't look into.
	dir, err := os.MkdirTemp("", "fini-volume-")
	rig.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	rig.NoError(t, os.Chmod(dir, 0o755))
	for name, text := range volumeFiles {
		rig.Put(t, filepath.Join(dir, name), text, 0o644)
	}
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

// With is flags of `run` which give a container this volume, and its users.
func (y *volume) With(flags ...string) []string {
	return append([]string{"-v", y.dir + ":/volume", "-v", filepath.Join(y.dir, "passwd") + ":/etc/passwd:ro",
		"-v", filepath.Join(y.dir, "group") + ":/etc/group:ro"}, flags...)
}

func (y *volume) Saved() string {
	y.t.Helper()
	text, err := os.ReadFile(filepath.Join(y.dir, "saved"))
	rig.NoError(y.t, err)
	return string(text)
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
