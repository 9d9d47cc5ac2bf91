package orphans

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEnviron(t *testing.T) {
	alone(t, nil, func(t *testing.T) {
		f := newFamily(t)
		defer f.end()
		names := []string{"FIRST", "TWICE", "LONG", "EMPTY", "LAST", "NONE"}
		plain := f.command("@stay", "plain")
		plain.Env = []string{"FIRST=a=b", "XFIRST=no", "FIRSTX=no", "TWICE=2", "LONG=" + strings.Repeat("x", 5000),
			"EMPTY=", "strange", "=odd", "filler=" + strings.Repeat("y", 20000), "LAST=\xff z"}
		f.start(plain)
		bare := f.command("@stay", "bare")
		bare.Env = []string{}
		f.start(bare)
		large := f.command("@stay", "large")
		for i := range 10 {
			large.Env = append(large.Env, fmt.Sprint("filler", i)+"="+strings.Repeat("y", 100<<10))
		}
		large.Env = append(large.Env, "LAST=is not read")
		f.start(large)
		ended := f.start(f.command("@end"))
		for {
			if err := unix.Waitid(unix.P_PID, ended.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
				check(t, err)
				break
			}
		}
		f.await("plain", "bare", "large")
		tree := New()
		found := look(t, tree)

		got := tree.Details(found[f.pids["plain"]], names).Variables
		want := map[string]string{"FIRST": "a=b", "TWICE": "2", "LONG": strings.Repeat("x", maxValue), "EMPTY": "", "LAST": "\xff z"}
		for _, name := range names {
			value, ok := got[name]
			expected, has := want[name]
			if ok != has || value != expected {
				t.Errorf("%s: %.20q, %t", name, value, ok)
			}
		}
		for _, label := range []string{"bare", "large"} {
			if got := tree.Details(found[f.pids[label]], names).Variables; got == nil || len(got) != 0 {
				t.Errorf("%s: %v", label, got)
			}
		}
		// None is not the same as unknown.
		for what, p := range map[string]Process{
			"a zombie":                   {Pid: ended.Process.Pid, State: 'Z', Threads: 1, kept: &kept{}},
			"one that was":               {Pid: 1 << 30, State: 'S', kept: &kept{}},
			"a hidden one":               {Pid: f.pids["plain"], State: '?', kept: &kept{}},
			"one that no look has found": {Pid: f.pids["plain"], State: 'S'},
		} {
			if got := tree.Details(p, names).Variables; got != nil {
				t.Errorf("%s: %v", what, got)
			}
		}
	})
}

func TestAddVariable(t *testing.T) {
	found := map[string]string{}
	for _, variable := range []string{"TWICE=1", "TWICE=2", "B", "", "=", "B=", "CC=3", "C=c=d"} {
		addVariable(found, []byte(variable), []string{"TWICE", "B", "C"})
	}
	if want := map[string]string{"TWICE": "1", "B": "", "C": "c=d"}; !maps.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
}

// Another user's may not be looked at.
func TestEnvironOfAnother(t *testing.T) {
	if os.Geteuid() == 0 && !isAlone { // who may look at anybody's
		self := exec.Command("/proc/self/exe", "@alone", "-test.run=^TestEnvironOfAnother$")
		self.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		if out, err := self.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	tree := New()
	check(t, tree.prepare())
	if got := tree.Details(Process{Pid: 1, State: 'S', Threads: 1, kept: &kept{}}, []string{"PATH"}).Variables; got != nil {
		t.Errorf("of PID 1: %v", got)
	}
}
