package signals

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		sig    syscall.Signal
		name   string
		others string // which Parse takes too
	}{
		{1, "SIGHUP", "HUP Hup 1"},
		{15, "SIGTERM", "TERM sigterm 15"},
		{17, "SIGCHLD", "CHLD CLD"},
		{29, "SIGIO", "IO POLL"},
		{31, "SIGSYS", ""},
		{32, "32", ""}, // the C library's own, which kill -l leaves out
		{33, "33", ""},
		{34, "SIGRTMIN", "RTMIN RTMIN+0 SIGRTMAX-30"},
		{35, "SIGRTMIN+1", ""},
		{37, "SIGRTMIN+3", "RTMIN+3 sigrtmin+3"},
		{63, "SIGRTMIN+29", "RTMAX-1"},
		{64, "SIGRTMIN+30", "RTMAX RTMAX-0 64"},
	} {
		check.Equal(t, fmt.Sprint("the name of ", int(c.sig)), Name(c.sig), c.name)
		for _, name := range append(strings.Fields(c.others), c.name) {
			if got, err := Parse(name); err != nil || got != c.sig {
				t.Errorf("Parse(%q) = %d, %v; want %d", name, got, err, c.sig)
			}
		}
	}
	for _, none := range []syscall.Signal{-1, 0, 65} {
		check.Equal(t, "the name of no signal", Name(none), strconv.Itoa(int(none)))
	}
}

func TestParseRefuses(t *testing.T) {
	for what, names := range map[string][]string{
		"not from 1 to 64": {"0", "-15", "+15", "65", "99999999999999999999"},
		"not decimal":      {"0xf", "15\n"},
		"no name":          {"", "FOO", "SIG", "SIGSIGTERM", "SIG15", " TERM"},
		"past RTMAX":       {"RTMIN+31"},
		"below RTMIN":      {"RTMIN-1", "RTMAX-31"},
		"no offset":        {"RTMIN+", "RTMIN3"},
	} {
		for _, name := range names {
			sig, err := Parse(name)
			says := fmt.Sprint(err)
			if !strings.Contains(says, "RTMIN+3") || !strings.Contains(says, "1 to 64") || strings.Contains(says, "\n") {
				t.Errorf("%s: Parse(%q) = %d, %q; want a line that says what is accepted", what, name, sig, says)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for sig := range syscall.Signal(rtMax + 2) {
		f.Add(Name(sig))
	}
	for _, name := range []string{"sigterm", "RTMIN+3", "RTMAX-1", "", "-15", "+15", "SIGSIGTERM", " TERM", "RTMIN+-1", "SIG\xff", "CLD"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		sig, err := Parse(name)
		if err != nil {
			check.Equal(t, "the signal along with an error", sig, syscall.Signal(0))
			return
		}
		again, err := Parse(Name(sig))
		if sig < 1 || sig > rtMax || again != sig || err != nil {
			t.Errorf("Parse(%q) = %d, but Parse(%q) = %d, %v", name, sig, Name(sig), again, err)
		}
	})
}

// It is no error if nobody is there to get the signal.
func TestTo(t *testing.T) {
	const nobody = 1 << 30 // no pid is that large
	check.NoError(t, errors.Join(To(nobody, syscall.SIGTERM), ToGroup(nobody, syscall.SIGTERM)))
	err := To(os.Getpid(), 1000)
	check.Equal(t, "of no signal", errors.Is(err, syscall.EINVAL), true)
}

// A poll that has succeeded is no error, nor is one that the kernel refuses a success: either would be polled again.
func TestRawPoll(t *testing.T) {
	none := []unix.PollFd{{Fd: -1}}
	check.NoError(t, rawPoll(none, 0))
	check.Equal(t, "of a negative time", rawPoll(none, -1), error(unix.EINVAL))
}
