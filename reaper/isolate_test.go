package reaper

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProcMounts(t *testing.T) {
	const rest = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n24 27 0:6 / /process rw - tmpfs tmpfs rw\n"
	for name, c := range map[string]struct {
		text  string
		want  *procMount
		below []string
	}{
		"none":  {rest, nil, nil},
		"plain": {rest + "22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw\n", &procMount{unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME, []string{"rw"}, false}, nil},
		"options": {"22 27 0:21 / /proc ro,noatime - proc proc rw,gid=4,hidepid=invisible\n",
			&procMount{unix.MS_RDONLY | unix.MS_NOATIME, []string{"rw", "gid=4", "hidepid=invisible"}, false}, nil},
		"masks": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys /proc/sys ro - proc proc rw\n31 22 0:6 /null /proc/kcore rw - devtmpfs udev rw\n" +
			"32 30 0:99 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n33 32 0:98 / /proc/sys/fs/binfmt_misc rw - binfmt_misc binfmt_misc rw\n",
			&procMount{0, []string{"rw"}, false}, []string{"/proc/kcore", "/proc/sys"}},
		"two on one, the first hidden": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys/fs /proc/sys/fs rw - proc proc rw\n31 22 0:21 /sys /proc/sys rw - proc proc rw\n32 31 0:9 / /proc/sys rw - tmpfs none rw\n",
			&procMount{0, []string{"rw"}, false}, []string{"/proc/sys"}},
		"isolated before": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys /proc/sys rw - proc proc rw\n31 22 0:9 / /proc/7 rw - tmpfs none rw\n40 22 0:50 / /proc rw - proc proc rw\n41 40 0:21 /sys /proc/sys rw - proc proc rw\n",
			&procMount{0, []string{"rw"}, false}, []string{"/proc/sys"}},
		"unbindable": {"22 27 0:21 / /proc rw - proc proc rw\n30 22 0:21 /sys /proc/sys rw master:3 - proc proc rw\n31 30 0:9 / /proc/sys/fs rw unbindable - tmpfs none rw\n",
			&procMount{0, []string{"rw"}, true}, []string{"/proc/sys"}},
		"covered":  {"22 27 0:21 / /proc rw - proc proc rw\n23 22 0:9 / /proc rw - tmpfs none rw\n", nil, nil},
		"not proc": {"22 27 0:9 / /proc rw - tmpfs none rw\n", nil, nil},
		"cut":      {"22 27 0:21 / /proc\n\n - proc\n22 27 0:21 / /proc rw\n", nil, nil},
	} {
		got, below := procMounts(c.text)
		if (got == nil) != (c.want == nil) || got != nil && (got.flags != c.want.flags || !slices.Equal(got.options, c.want.options)) || got != nil && got.unbindable != c.want.unbindable || !slices.Equal(below, c.below) {
			t.Errorf("%s: got %+v, %q", name, got, below)
		}
	}
}

func TestProcOptions(t *testing.T) {
	p := &procMount{options: []string{"rw", "gid=4", "hidepid=2", "subset=pid"}}
	if got := p.data(false); got != "gid=4,hidepid=2,subset=pid" {
		t.Errorf("got %q", got)
	}
	if got := p.data(true); got != "hidepid=2,subset=pid" {
		t.Errorf("in a user namespace: got %q", got)
	}
}

// spawned is a child that is gone at the end of the test.
func spawned(t *testing.T, args ...string) Child {
	t.Helper()
	child, err := Spawn(Command{Args: args, Env: os.Environ(), Terminal: -1})
	check(t, err)
	t.Cleanup(func() {
		_ = unix.Kill(child.Pid, unix.SIGKILL) // it is not reaped, so it keeps its pid; there may be no pidfd
		_, _ = unix.Wait4(child.Pid, nil, 0, nil)
		_ = unix.Close(child.FD)
	})
	return child
}

// A word is read in whatever pieces it comes.
func TestWordOfAnIsolatedChild(t *testing.T) {
	child := spawned(t, "sleep", "1000")
	for name, c := range map[string]struct {
		tell func(Word)
		want Told
		err  error
	}{
		"all at once": {func(w Word) { w.Settled(nil); w.Started(7, false); w.Done(0x300) }, Told{Pid: 7, Done: true, Status: 0x300}, nil},
		"stays":       {func(w Word) { w.Settled(nil); w.Started(7, false); w.Stays(15) }, Told{Pid: 7, Done: true, Status: 15, Stays: true}, nil},
		"started":     {func(w Word) { w.Settled(nil); w.Started(7, false) }, Told{Pid: 7}, nil},
		"settled":     {func(w Word) { w.Settled(nil) }, Told{}, nil},
		"not mounted": {func(w Word) { w.Settled(refusedCall(callOpen, errors.New("why"))) }, Told{}, errors.New("open(/proc): it is not mounted")},
	} {
		w, err := NewWord()
		check(t, err)
		c.tell(w)
		limit := time.Minute
		if c.err != nil {
			limit = time.Millisecond // the child does not end, as it would
		}
		if err := w.AwaitSettled(child, limit); (err == nil) != (c.err == nil) || err != nil && err.Error() != c.err.Error() {
			t.Errorf("%s: got %v, want %v", name, err, c.err)
		}
		if got, _ := w.Told(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		if _, news := w.Told(); news {
			t.Errorf("%s: the same is news again", name)
		}
	}

	// What comes after the limit is not taken for something else.
	w, err := NewWord()
	check(t, err)
	check(t, w.AwaitSettled(child, time.Millisecond))
	for _, step := range []struct {
		tell func()
		want Told
	}{
		{func() {}, Told{}},
		{func() { w.Settled(nil) }, Told{}},
		{func() { w.Started(9, true) }, Told{Pid: 9, Unbound: true}},
		{func() { w.Done(0) }, Told{Pid: 9, Unbound: true, Done: true}},
	} {
		step.tell()
		if got, _ := w.Told(); got != step.want {
			t.Errorf("late: got %+v, want %+v", got, step.want)
		}
	}
}

// A call that is refused is told as it was.
func TestRefusalIsTold(t *testing.T) {
	for call := range calls {
		child := spawned(t, "true")
		w, err := NewWord()
		check(t, err)
		w.Settled(refusedCall(call, unix.EPERM))
		var refused *RefusedError
		if err := w.AwaitSettled(child, time.Minute); !errors.As(err, &refused) || refused.Call != calls[call] || refused.Err != syscall.EPERM {
			t.Errorf("%s: got %v", calls[call], err)
		}
	}
}
