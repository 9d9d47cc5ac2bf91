package orphans

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestParseStat(t *testing.T) {
	plain := Process{Pid: 42, Parent: 7, Group: 8, Session: 9, Name: "sleep", State: 'S',
		Threads: 3, Start: 47110 * time.Millisecond, pidfd: -1}
	named := func(name string) Process {
		p := plain
		p.Name = name
		return p
	}
	daemon, zombie, late := plain, plain, plain
	daemon.Group, daemon.Session = 0, 0
	zombie.State, zombie.Threads, zombie.Parent = 'Z', 1, 1
	late.Start = 9223372036854775800 * time.Nanosecond / tick * tick
	for what, c := range map[string]struct {
		text string
		want Process
	}{
		"plain":                      {statOf("42", "sleep", statFields+statTail), plain},
		"as short as can be":         {statOf("42", "sleep", "S 7 8 9 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 4711"), plain},
		"no newline at the end":      {strings.TrimSuffix(statOf("42", "sleep", statFields), "\n"), plain},
		"fields of a newer kernel":   {statOf("42", "sleep", statFields+statTail+" 1 2 3"), plain},
		"name with )":                {statOf("42", "a)b", statFields), named("a)b")},
		"name with (":                {statOf("42", "(((", statFields), named("(((")},
		"name that is )":             {statOf("42", ")", statFields), named(")")},
		"name with spaces":           {statOf("42", " a b ", statFields), named(" a b ")},
		"name with newlines":         {statOf("42", "\na\n", statFields), named("\na\n")},
		"empty name":                 {statOf("42", "", statFields), named("")},
		"name that is no UTF-8":      {statOf("42", "\xff\xfe", statFields), named("\xff\xfe")},
		"name that looks like stat":  {statOf("42", "a) R 1 (", statFields), named("a) R 1 (")},
		"name that ends like a stat": {statOf("42", "x) Z 1 1 1 0 -1", statFields), named("x) Z 1 1 1 0 -1")},
		"no terminal, thus negative": {statOf("42", "sleep", strings.Replace(statFields, "34816 8", "0 -1", 1)), plain},
		"negative priority":          {statOf("42", "sleep", strings.Replace(statFields, "20 0 3", "-100 -20 3", 1)), plain},
		"negative terminal":          {statOf("42", "sleep", strings.Replace(statFields, "34816", "-2147483648", 1)), plain},
		"group of another namespace": {statOf("42", "sleep", strings.Replace(statFields, "8 9", "0 0", 1)), daemon},
		"zombie": {statOf("42", "sleep",
			"Z 1 8 9 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"), zombie},
		"the latest start there can be": {statOf("42", "sleep",
			strings.Replace(statFields, "4711", fmt.Sprint(int64(late.Start/tick)), 1)), late},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := parseStat([]byte(c.text))
			if err != nil || got != c.want {
				t.Errorf("parseStat(%q)\n = %+v, %v\nwant %+v", c.text, got, err, c.want)
			}
		})
	}
}

func TestParseStatRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"nothing":                "",
		"a newline":              "\n",
		"a pid alone":            "42",
		"no name":                "42 S 7 8 9",
		"an open name":           "42 (sleep",
		"a name and no more":     "42 (sleep)",
		"brackets turned round":  "42 )sleep( " + statFields,
		"no pid":                 "(sleep) " + statFields,
		"a pid that is no pid":   statOf("x", "sleep", statFields),
		"a huge pid":             statOf("99999999999999999999", "sleep", statFields),
		"one field too few":      statOf("42", "sleep", "S 7 8 9 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0"),
		"a state of two letters": statOf("42", "sleep", "S"+statFields),
		"a parent in letters":    statOf("42", "sleep", strings.Replace(statFields, "7", "x", 1)),
		"a huge parent":          statOf("42", "sleep", strings.Replace(statFields, "7", "9223372036854775808", 1)),
		"a huge group":           statOf("42", "sleep", strings.Replace(statFields, "8", "99999999999999999999", 1)),
		"a session in letters":   statOf("42", "sleep", strings.Replace(statFields, "9", "x", 1)),
		"threads in letters":     statOf("42", "sleep", strings.Replace(statFields, "0 3 0", "0 x 0", 1)),
		"a start in letters":     statOf("42", "sleep", strings.Replace(statFields, "4711", "x", 1)),
		"a negative start":       statOf("42", "sleep", strings.Replace(statFields, "4711", "-1", 1)),
		"a huge start":           statOf("42", "sleep", strings.Replace(statFields, "4711", "18446744073709551615", 1)),
		"a start past a Duration": statOf("42", "sleep",
			strings.Replace(statFields, "4711", fmt.Sprint(int64(1<<63-1)/int64(tick)+1), 1)),
	} {
		t.Run(what, func(t *testing.T) {
			if got, err := parseStat([]byte(text)); err == nil {
				t.Errorf("parseStat(%q) = %+v, want an error", text, got)
			}
		})
	}
}

// The kernel's own text, so that the cases above are not about a format that nobody
// writes.
func TestParseStatOfSelf(t *testing.T) {
	text, err := os.ReadFile("/proc/self/stat")
	need.That(t, err == nil, "/proc")
	p, err := parseStat(text)
	if err != nil {
		t.Fatal(err)
	}
	if p.Pid != os.Getpid() || p.Parent != os.Getppid() || p.Threads < 1 || !p.Alive() {
		t.Errorf("parseStat(%q) = %+v", text, p)
	}
	if now := uptime(t); p.Start <= 0 || p.Start > now {
		t.Errorf("this process started at %v, and it is %v", p.Start, now)
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

// statusText is what the kernel writes, up to what is read of it.
const statusText = "Name:\tsleep\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\nNgid:\t0\nPid:\t42\nPPid:\t7\n" +
	"TracerPid:\t9\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\n"

func TestParseStatus(t *testing.T) {
	want := status{uids: "1\t2\t3\t4", gids: "5\t6\t7\t8"}
	for what, c := range map[string]struct {
		text string
		want status
		ok   bool
	}{
		"plain":                   {statusText, want, true},
		"name that looks like it": {strings.Replace(statusText, "sleep", `\nUid:\t0`, 1), want, true},
		"cut behind the group":    {statusText[:strings.Index(statusText, "FDSize")], want, true},
		"cut in the group":        {statusText[:strings.Index(statusText, "8\nFDSize")+1], status{}, false},
		"nothing":                 {"", status{}, false},
	} {
		t.Run(what, func(t *testing.T) {
			got, ok := parseStatus([]byte(c.text))
			if ok != c.ok || ok && got != c.want {
				t.Errorf("parseStatus(%q) = %+v, %t, want %+v, %t", c.text, got, ok, c.want, c.ok)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	for _, text := range []string{
		statOf("42", "sleep", statFields+statTail),
		statOf("42", "a) R 1 (", statFields),
		statOf("42", ")\n(", statFields),
		statOf("42", "", "Z 1 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711"),
		statOf("42", "sleep", "S 7 8 9"),
		statOf("-1", "sleep", statFields),
		"42 )(", "42 (", "", "()",
	} {
		f.Add([]byte(text))
	}
	if own, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parseStat(text)
		if err != nil {
			if p != (Process{}) {
				t.Fatalf("parseStat(%q) = %+v along with the error %v", text, p, err)
			}
			return
		}
		if p.Start < 0 || p.Start%tick != 0 {
			t.Fatalf("parseStat(%q): it started at %v", text, p.Start)
		}
		if p.pidfd != -1 {
			t.Fatalf("parseStat(%q): pidfd %d, but 0 and up are descriptors of somebody", text, p.pidfd)
		}
		if !bytes.Contains(text, []byte("("+p.Name+")")) {
			t.Fatalf("parseStat(%q): its name is %q", text, p.Name)
		}
		// What was understood must be understood again in the kernel's own words:
		// the name in it can't shift the fields.
		again := statOf(fmt.Sprint(p.Pid), p.Name, fmt.Sprintf("%c %d %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 %d 0 %d 0",
			p.State, p.Parent, p.Group, p.Session, p.Threads, p.Start/tick))
		if p.State >= 0x80 {
			return // %c would write it as two bytes
		}
		if q, err := parseStat([]byte(again)); err != nil || q != p {
			t.Fatalf("parseStat(%q) = %+v, but parseStat(%q) = %+v, %v", text, p, again, q, err)
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

func FuzzParseStatus(f *testing.F) {
	for _, text := range []string{statusText, "", "Uid:\t0\n", "\nUid:\t0\nGid:\t0\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, ok := parseStatus(text)
		if !ok {
			return
		}
		for _, line := range []string{"\nUid:\t" + s.uids + "\n", "\nGid:\t" + s.gids + "\n"} {
			if !bytes.Contains(text, []byte(line)) || strings.Count(line, "\n") != 2 {
				t.Fatalf("parseStatus(%q) = %+v, but there is no line %q", text, s, line)
			}
		}
	})
}
