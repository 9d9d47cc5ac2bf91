package orphans

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// statOf is the text of /proc/PID/stat for a process of this name; the numbers are
// fields 3 to 24 of a real one.
func statOf(pid, name, fields string) string {
	return pid + " (" + name + ") " + fields + "\n"
}

const (
	statFields = "S 7 8 9 34816 8 4194304 220 0 0 0 1 2 0 0 20 0 3 0 4711 5660672 256"
	statTail   = " 18446744073709551615 94 95 140 0 0 0 0 3686404 1 1 0 0 17 0 0 0 0 0 0 96 97 98 140 141 141 142 0"
)

func TestParseStart(t *testing.T) {
	const want = 47110 * time.Millisecond
	for what, c := range map[string]struct {
		text string
		want time.Duration
	}{
		"plain":                      {statOf("42", "sleep", statFields+statTail), want},
		"as short as can be":         {statOf("42", "sleep", "S 7 8 9 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 4711"), want},
		"no newline at the end":      {strings.TrimSuffix(statOf("42", "sleep", statFields), "\n"), want},
		"fields of a newer kernel":   {statOf("42", "sleep", statFields+statTail+" 1 2 3"), want},
		"name with )":                {statOf("42", "a)b", statFields), want},
		"name with newlines":         {statOf("42", "\na\n", statFields), want},
		"name that looks like stat":  {statOf("42", "a) R 1 (", statFields), want},
		"name that ends like a stat": {statOf("42", "x) Z 1 1 1 0 -1", statFields), want},
		"negative priority":          {statOf("42", "sleep", strings.Replace(statFields, "20 0 3", "-100 -20 3", 1)), want},
		"too late to be":             {statOf("42", "sleep", strings.Replace(statFields, "4711", "9223372036854775807", 1)), 0},
		"negative":                   {statOf("42", "sleep", strings.Replace(statFields, "4711", "-1", 1)), 0},
		"too few fields":             {statOf("42", "sleep", "S 7 8 9"), 0},
		"nothing":                    {"", 0},
	} {
		if got := parseStart([]byte(c.text)); got != c.want {
			t.Errorf("%s: parseStart(%q) = %v, want %v", what, c.text, got, c.want)
		}
	}
}

// The kernel's own text, so that the cases above are not about a format that nobody
// writes.
func TestParseStartOfSelf(t *testing.T) {
	text, err := os.ReadFile("/proc/self/stat")
	need.That(t, err == nil, "/proc")
	if start, now := parseStart(text), uptime(t); start <= 0 || start > now {
		t.Errorf("this process started at %v, and it is %v", start, now)
	}
}

func TestAlive(t *testing.T) {
	for _, c := range []struct {
		state   byte
		threads int
		want    bool
	}{
		{'R', 1, true}, {'S', 1, true}, {'D', 1, true}, {'T', 1, true}, {'t', 1, true}, {'I', 1, true},
		{'Z', 1, false}, {'Z', 0, false}, {'X', 1, false}, {'X', 0, false},
		{'Z', 2, true}, // only its first thread has ended
	} {
		if got := (Process{State: c.state, Threads: c.threads}).Alive(); got != c.want {
			t.Errorf("state %c with %d threads: Alive = %t, want %t", c.state, c.threads, got, c.want)
		}
	}
}

func TestParsePids(t *testing.T) {
	for what, c := range map[string]struct {
		text string
		want []int
	}{
		"none":             {"", nil},
		"one":              {"42 ", []int{42}},
		"some":             {"1 42 4194304 ", []int{1, 42, 4194304}},
		"a newline":        {"42 43\n", []int{42, 43}},
		"pids that are no": {"0 -1 x 42 4x 99999999999999999999 43 ", []int{42, 43}},
	} {
		t.Run(what, func(t *testing.T) {
			if got := parsePids([]byte(c.text)); !slices.Equal(got, c.want) {
				t.Errorf("parsePids(%q) = %v, want %v", c.text, got, c.want)
			}
		})
	}
}

// statusText is what the kernel writes, as far as it is read.
const statusText = "Name:\tsleep\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\nNgid:\t0\nPid:\t42\nPPid:\t7\n" +
	"TracerPid:\t9\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t\nVmExe:\t      16 kB\nThreads:\t3\n"

// statusOf is what is read from that text.
func statusOf(t testing.TB, dir, text string) (status, error) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "status"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	f := files{proc: fd, buf: make([]byte, 4<<10)}
	return f.statusIn(".")
}

func TestStatus(t *testing.T) {
	plain := status{name: "sleep", state: 'S', group: 42, parent: 7, threads: 3, user: 2,
		uids: "1\t2\t3\t4", gids: "5\t6\t7\t8", code: "      16 kB"}
	odd, zombie := plain, plain
	odd.name = "\nUid:\t0\\"
	zombie.state, zombie.code = 'Z', ""
	for what, c := range map[string]struct {
		text string
		want status
	}{
		"plain":                    {statusText, plain},
		"name that looks like one": {strings.Replace(statusText, "sleep", `\nUid:`+"\t0"+`\\`, 1), odd},
		"without memory":           {strings.NewReplacer("VmExe:\t      16 kB\n", "", "S (sleeping)", "Z (zombie)").Replace(statusText), zombie},
		"many groups":              {strings.Replace(statusText, "Groups:\t", "Groups:\t"+strings.Repeat("1000000 ", 65536), 1), plain},
		"more":                     {statusText + "SigQ:\t0/1\n", plain},
	} {
		if got, err := statusOf(t, t.TempDir(), c.text); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, c.want)
		}
	}
	for _, text := range []string{"", "\n", "Uid:\t0\t0\t0\t0\n"} {
		if got, err := statusOf(t, t.TempDir(), text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
	for code, want := range map[string]bool{"       0 kB": true, "      16 kB": false, "": false} {
		if got := (status{code: code}).inExec(); got != want {
			t.Errorf("with code of %q: inside execve is %t", code, got)
		}
	}
}

func FuzzParseStart(f *testing.F) {
	for _, text := range []string{
		statOf("42", "sleep", statFields+statTail), statOf("42", "a) R 1 (", statFields), statOf("42", ")\n(", statFields),
		statOf("42", "sleep", "S 7 8 9"), "42 )(", "42 (", "", "()",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		start := parseStart(text)
		if start < 0 || start%tick != 0 {
			t.Fatalf("parseStart(%q) = %v", text, start)
		}
		// No name shifts the fields.
		again := statOf("42", string(text), fmt.Sprintf("S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0", start/tick))
		if got := parseStart([]byte(again)); got != start {
			t.Fatalf("parseStart(%q) = %v, want %v", again, got, start)
		}
	})
}

func FuzzParsePids(f *testing.F) {
	for _, text := range []string{"", "42 ", "1 42 4194304 ", "0 -1 x 99999999999999999999", "\n\t 7"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		pids := parsePids(text)
		var again []byte
		for _, pid := range pids {
			// kill(2) means a group, or everybody, by 0 and below.
			if pid < 1 {
				t.Fatalf("parsePids(%q) has %d in it", text, pid)
			}
			again = fmt.Appendf(again, "%d ", pid)
		}
		if got := parsePids(again); !slices.Equal(got, pids) {
			t.Fatalf("parsePids(%q) = %v, but parsePids(%q) = %v", text, pids, again, got)
		}
	})
}

func FuzzStatus(f *testing.F) {
	for _, text := range []string{statusText, "", "Uid:\t0\n", "\nUid:\t0\nGid:\t0\n"} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := statusOf(t, dir, string(text))
		if err == nil && s.uids != "" && !bytes.Contains(text, []byte("Uid:\t"+s.uids+"\n")) {
			t.Fatalf("the status %q is read as %+v", text, s)
		}
	})
}
