package orphans

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Facts are read once: again only if the process has executed another program, or if which streams it holds decides, and
// not at all for the first time after it was signalled, because the caller has named it by then.
func TestFactsAreReadAgain(t *testing.T) {
	const some, stuck = "S (sleeping)", "D (disk sleep)"
	for name, c := range map[string]struct {
		first     string // its state in the first look, which reads nothing of a process that is stuck
		signalled bool
		pipes     bool
		program   string
		code      int
		want      bool
	}{
		"the same program":                    {some, false, false, "some", 16, false},
		"the same program, signalled":         {some, true, false, "some", 16, false},
		"another name":                        {some, false, false, "other", 16, true},
		"another size":                        {some, false, false, "some", 20, true},
		"another name, signalled":             {some, true, false, "other", 16, true},
		"only holders are stopped":            {some, false, true, "some", 16, true},
		"it was stuck":                        {stuck, false, false, "some", 16, true},
		"it was stuck, and was signalled":     {stuck, true, false, "some", 16, false},
		"it was stuck, and holders are asked": {stuck, true, true, "some", 16, false},
	} {
		t.Run(name, func(t *testing.T) {
			proc, tree := newFakeProc(t)
			tree.Pipes = c.pipes
			pid := proc.children(1)[0]
			proc.status(pid, os.Getpid(), c.first, 16)
			p := look(t, tree)[pid]
			if p.Start == 0 != (c.first == stuck) {
				t.Fatalf("the first look finds %+v", p)
			}
			if c.signalled {
				check(t, tree.Signal(p, 0))
			}
			proc.put(pid, "status", strings.Replace(statusOf(pid, os.Getpid(), some, c.code, 1), "Name:\tsome\n", "Name:\t"+c.program+"\n", 1))
			proc.wait(pid, "stat")
			path := filepath.Join(proc.dir, strconv.Itoa(pid), "stat")
			over, read := make(chan bool), make(chan bool)
			go func() {
				got := false
				for {
					if w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil { // somebody waits for a writer
						got = true
						_ = w.Close()
					}
					select {
					case <-over:
						read <- got
						return
					default:
						runtime.Gosched()
					}
				}
			}()
			look(t, tree)
			close(over)
			if got := <-read; got != c.want {
				t.Errorf("the second look reads facts: %t, want %t", got, c.want)
			}
		})
	}
}
