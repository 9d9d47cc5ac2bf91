package proc

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/self"
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
		rig.Equal(t, what, ParseStart([]byte(c.text)), c.want)
	}
}

// statusText is what the kernel writes, as far as it is read.
const statusText = "Name:\tsleep\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\nNgid:\t0\nPid:\t42\nPPid:\t7\n" +
	"TracerPid:\t9\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t\nVmExe:\t      16 kB\nThreads:\t3\n"

// filesOf are the files of a directory that has one file with this text.
func filesOf(t testing.TB, name, text string) *Files {
	t.Helper()
	dir := t.TempDir()
	rig.Put(t, dir+"/"+name, text, 0o600)
	f := In(int(self.Open(t, dir, os.O_RDONLY).Fd()))
	return &f
}

func TestEach(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for what, c := range map[string]struct {
		text  string
		limit int
		want  []string // with a "+" for a part that is not whole
	}{
		"parts":       {"a b c ", MaxText, []string{"a", "b", "c", "+"}},
		"no end":      {"a b", MaxText, []string{"a", "b+"}},
		"long":        {"a " + long + " b ", MaxText, []string{"a", long[:4096] + "+", "b", "+"}},
		"very long":   {long + long + " b", MaxText, []string{long[:4096] + "+", "b+"}},
		"the limit":   {"a " + long[:4000] + " " + long, 1, []string{"a", long[:4000]}},
		"to be ended": {"a end c", MaxText, []string{"a", "end"}},
	} {
		var got []string
		err := filesOf(t, "f", c.text).Each("f", ' ', c.limit, func(part []byte, whole bool) (more bool) {
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
		if got, err := filesOf(t, "pids", text).ReadPids("pids"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %d pids, %v, want %d", text, len(got), err, len(want))
		}
	}
}

func TestStatus(t *testing.T) {
	plain := Status{Name: "sleep", State: 'S', Group: 42, Parent: 7, Threads: 3, User: 2, Code: "      16 kB", Descriptors: 64}
	odd, zombie, nohup := plain, plain, plain
	nohup.Ignored = 1
	odd.Name = "\nUid:\t0\\"
	zombie.State, zombie.Code = 'Z', ""
	for what, c := range map[string]struct {
		text string
		want Status
	}{
		"plain":                    {statusText, plain},
		"name that looks like one": {strings.Replace(statusText, "sleep", `\nUid:`+"\t0"+`\\`, 1), odd},
		"without memory":           {strings.NewReplacer("VmExe:\t      16 kB\n", "", "S (sleeping)", "Z (zombie)").Replace(statusText), zombie},
		"many groups":              {strings.Replace(statusText, "Groups:\t", "Groups:\t"+strings.Repeat("1000000 ", 65536), 1), plain},
		"SIGHUP is ignored":        {statusText + "SigIgn:\t0000000000000001\n", nohup},
		"more":                     {statusText + "SigQ:\t0/1\n", plain},
	} {
		if got, err := filesOf(t, "status", c.text).StatusIn("."); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, c.want)
		}
	}
	for _, text := range []string{"", "\n", "Uid:\t0\t0\t0\t0\n"} {
		if got, err := filesOf(t, "status", text).StatusIn("."); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestHasAutoreap(t *testing.T) {
	for release, want := range map[string]bool{
		"2.6.32-754.el6": false, "5.15.0-139-generic": false, "6.18.44": false, "6.99": false, "7.0.12": false, "7.0-rc1": false,
		"7.1.0": true, "7.1": true, "7.1-rc2": true, "7.10.3-arch1-1": true, "8.0.0": true, "10.0": true,
		"": true, "x": true, "7": true, "7.x": true,
	} {
		rig.Equal(t, fmt.Sprintf("hasAutoreap(%q)", release), hasAutoreap(release), want)
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
		start := ParseStart(text)
		if start < 0 || start%Tick != 0 {
			t.Fatalf("ParseStart(%q) = %v", text, start)
		}
		// No name shifts the fields.
		again := statOf("42", string(text), fmt.Sprintf("S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0", start/Tick))
		if got := ParseStart([]byte(again)); got != start {
			t.Fatalf("ParseStart(%q) = %v, want %v", again, got, start)
		}
	})
}

func FuzzStatus(f *testing.F) {
	for _, text := range []string{statusText, "", "Uid:\t0\n", "\nUid:\t0\nGid:\t0\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := filesOf(t, "status", text).StatusIn(".")
		if err == nil && !strings.Contains(text, "State:\t"+string([]byte{s.State})) {
			t.Fatalf("the status %q is read as %+v", text, s)
		}
	})
}
