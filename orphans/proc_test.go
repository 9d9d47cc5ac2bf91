package orphans

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// statusText is what the kernel writes, as far as it is read.
const statusText = "Name:\tsleep\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\nNgid:\t0\nPid:\t42\nPPid:\t7\n" +
	"TracerPid:\t9\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t\nVmExe:\t      16 kB\nThreads:\t3\n"

// filesOf are the files of a directory that has one file with this text.
func filesOf(t testing.TB, name, text string) *files {
	t.Helper()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	f := filesIn(fd)
	return &f
}

func TestEach(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for what, c := range map[string]struct {
		text  string
		limit int
		want  []string // with a "+" for a part that is not whole
	}{
		"parts":       {"a b c ", maxText, []string{"a", "b", "c", "+"}},
		"no end":      {"a b", maxText, []string{"a", "b+"}},
		"long":        {"a " + long + " b ", maxText, []string{"a", long[:4096] + "+", "b", "+"}},
		"very long":   {long + long + " b", maxText, []string{long[:4096] + "+", "b+"}},
		"the limit":   {"a " + long[:4000] + " " + long, 1, []string{"a", long[:4000]}},
		"to be ended": {"a end c", maxText, []string{"a", "end"}},
	} {
		var got []string
		err := filesOf(t, "f", c.text).each("f", ' ', c.limit, func(part []byte, whole bool) (more bool) {
			got = append(got, string(part)+map[bool]string{false: "+"}[whole])
			return string(part) != "end"
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", what, got, err, c.want)
		}
	}
}

func TestReadPids(t *testing.T) {
	var many []int
	for i := range 30000 {
		many = append(many, 1+i*137%4194304)
	}
	for text, want := range map[string][]int{
		"":                                   nil,
		"42 ":                                {42},
		"1 42 4194304 ":                      {1, 42, 4194304},
		"0 -1 x 4x 99999999999999999999 43 ": {43},
		strings.Repeat("7", 1<<20):           nil,
		strings.Trim(fmt.Sprint(many), "[]"): many,
	} {
		if got, err := filesOf(t, "pids", text).readPids("pids"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %d pids, %v, want %d", text, len(got), err, len(want))
		}
	}
}

func TestStatus(t *testing.T) {
	plain := status{name: "sleep", state: 'S', group: 42, parent: 7, threads: 3, user: 2, code: "      16 kB"}
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
		if got, err := filesOf(t, "status", c.text).statusIn("."); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, c.want)
		}
	}
	for _, text := range []string{"", "\n", "Uid:\t0\t0\t0\t0\n"} {
		if got, err := filesOf(t, "status", text).statusIn("."); err == nil {
			t.Errorf("%q is read as %+v", text, got)
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

func FuzzStatus(f *testing.F) {
	for _, text := range []string{statusText, "", "Uid:\t0\n", "\nUid:\t0\nGid:\t0\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := filesOf(t, "status", text).statusIn(".")
		if err == nil && !strings.Contains(text, "State:\t"+string([]byte{s.state})) {
			t.Fatalf("the status %q is read as %+v", text, s)
		}
	})
}
