package proc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"golang.org/x/sys/unix"
)

// statOf is the text of /proc/PID/stat for a process of this name, with the fields of a real one.
func statOf(name string) string { return "42 (" + name + ") " + statFields }

const statFields = "S 7 8 9 34816 8 4194304 220 0 0 0 1 2 0 0 20 0 3 0 4711 5660672 256 18446744073709551615 94 95 140 0 0 0 0 " +
	"3686404 1 1 0 0 17 0 0 0 0 0 0 96 97 98 140 141 141 142 0\n"

func TestParseStart(t *testing.T) {
	const want = 47110 * time.Millisecond
	plain := statOf("sleep")
	for what, c := range map[string]struct {
		text string
		want time.Duration
	}{
		"plain":                      {plain, want},
		"as short as can be":         {"42 (sleep) S 7 8 9 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 4711\n", want},
		"no newline at the end":      {strings.TrimSuffix(plain, "\n"), want},
		"name that looks like stat":  {statOf("a) R 1 ("), want},
		"name that ends like a stat": {statOf("x) Z 1 1 1 0 -1"), want},
		"negative priority":          {strings.Replace(plain, "20 0 3", "-100 -20 3", 1), want},
		"too late to be":             {strings.Replace(plain, "4711", "9223372036854775807", 1), 0},
		"negative":                   {strings.Replace(plain, "4711", "-1", 1), 0},
		"too few fields":             {"42 (sleep) S 7 8 9\n", 0},
		"nothing":                    {"", 0},
	} {
		check.Equal(t, what, ParseStart([]byte(c.text)), c.want)
	}
}

func TestParseExiting(t *testing.T) {
	for flags, want := range map[string]bool{"4194304": false, "4194308": true, "4": true, "0": false, "x": false} { // see PF_EXITING
		check.Equal(t, flags, ParseExiting([]byte(strings.Replace(statOf("sleep"), "4194304", flags, 1))), want)
	}
}

// statusText is what the kernel writes, as far as it is read.
const statusText = "Name:\tsleep\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\nNgid:\t0\nPid:\t42\nPPid:\t7\n" +
	"TracerPid:\t9\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t\nVmExe:\t      16 kB\nThreads:\t3\n"

func TestEach(t *testing.T) {
	files, file, long := In(unix.AT_FDCWD), t.TempDir()+"/file", strings.Repeat("x", 5000)
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
		err := files.Each(check.Put(t, file, c.text, 0o600), ' ', c.limit, func(part []byte, whole bool) (more bool) {
			got = append(got, string(part)+map[bool]string{false: "+"}[whole])
			return string(part) != "end"
		})
		check.NoError(t, err)
		check.MustRecord(t, what, got, c.want...)
	}
}

func TestReadPids(t *testing.T) {
	files, file, many := In(unix.AT_FDCWD), t.TempDir()+"/children", []int(nil)
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
		if got, err := files.ReadPids(check.Put(t, file, text, 0o600)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %d pids, %v, want %d", text, len(got), err, len(want))
		}
	}
}

func TestStatus(t *testing.T) {
	plain := Status{Name: "sleep", State: 'S', TGID: 42, Parent: 7, Threads: 3, User: 2, Code: "      16 kB", Descriptors: 64}
	files, dir, odd, zombie, nohup := In(unix.AT_FDCWD), t.TempDir(), plain, plain, plain
	odd.Name = "\nUid:\t0\\"
	zombie.State, zombie.Code = 'Z', ""
	nohup.Ignored = 1
	for what, c := range map[string]struct {
		text string
		want Status // the zero value if the text is none
	}{
		"plain":                    {statusText, plain},
		"name that looks like one": {strings.Replace(statusText, "sleep", `\nUid:`+"\t0"+`\\`, 1), odd},
		"without memory":           {strings.NewReplacer("VmExe:\t      16 kB\n", "", "S (sleeping)", "Z (zombie)").Replace(statusText), zombie},
		"many groups":              {strings.Replace(statusText, "Groups:\t", "Groups:\t"+strings.Repeat("1000000 ", 65536), 1), plain},
		"SIGHUP is ignored":        {statusText + "SigIgn:\t0000000000000001\n", nohup},
		"more":                     {statusText + "SigQ:\t0/1\n", plain},
		"nothing":                  {"", Status{}},
		"an empty line":            {"\n", Status{}},
		"no state":                 {"Uid:\t0\t0\t0\t0\n", Status{}},
	} {
		check.Put(t, dir+"/status", c.text, 0o600)
		got, err := files.StatusIn(dir)
		if err != nil {
			got = Status{}
		}
		check.Equal(t, what, got, c.want)
	}
}

func TestHasAutoreap(t *testing.T) {
	for release, want := range map[string]bool{
		"2.6.32-754.el6": false, "5.15.0-139-generic": false, "6.18.44": false, "6.99": false, "7.0.12": false, "7.0-rc1": false,
		"7.1.0": true, "7.1": true, "7.1-rc2": true, "7.10.3-arch1-1": true, "8.0.0": true, "10.0": true,
		"": true, "x": true, "7": true, "7.x": true,
	} {
		check.Equal(t, fmt.Sprintf("hasAutoreap(%q)", release), hasAutoreap(release), want)
	}
}

func FuzzParseStart(f *testing.F) {
	for _, text := range []string{
		statOf("sleep"), statOf("a) R 1 ("), statOf(")\n("), "42 (sleep) S 7 8 9\n", "42 )(", "42 (", "", "()",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		start := ParseStart(text)
		if start < 0 || start%Tick != 0 {
			t.Fatalf("ParseStart(%q) = %v", text, start)
		}
		// No name shifts the fields.
		again := fmt.Sprintf("42 (%s) S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0\n", text, start/Tick)
		check.Equal(t, "the start in "+again, ParseStart([]byte(again)), start)
	})
}

func FuzzStatus(f *testing.F) {
	for _, text := range []string{statusText, "", "Uid:\t0\n", "\nUid:\t0\nGid:\t0\n"} {
		f.Add(text)
	}
	files, dir := In(unix.AT_FDCWD), f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		check.Put(t, dir+"/status", text, 0o600)
		s, err := files.StatusIn(dir)
		if err == nil && !strings.Contains(text, "State:\t"+string([]byte{s.State})) {
			t.Fatalf("the status %q is read as %+v", text, s)
		}
	})
}

// Sessions prove an adoption, or they don't: a living parent is never taken for one that has adopted.
func TestAdopted(t *testing.T) {
	for name, c := range map[string]struct {
		child, session, parent, parentSession int
		want                                  bool
	}{
		"of its parent's session":                   {20, 5, 10, 5, false},
		"it leads its session":                      {20, 20, 10, 5, false},
		"the parent has made a session since":       {20, 5, 10, 10, false},
		"the parent is of another session":          {20, 5, 10, 7, true},
		"of PID 1, whose session is older":          {20, 5, 1, 1, true},
		"of PID 1, which is of the session of boot": {20, 5, 1, 0, true},
		"of PID 1, in its session":                  {20, 1, 1, 1, false},
	} {
		check.Equal(t, name, Adopted(c.child, c.session, c.parent, c.parentSession), c.want)
	}
}
