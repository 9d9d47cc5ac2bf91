package signals

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]syscall.Signal{
		"TERM":        unix.SIGTERM,
		"sigterm":     unix.SIGTERM,
		"15":          unix.SIGTERM,
		"CHLD":        unix.SIGCHLD,
		"CLD":         unix.SIGCHLD,
		"IO":          unix.SIGIO,
		"POLL":        unix.SIGIO,
		"32":          32,
		"RTMIN":       34,
		"RTMIN+0":     34,
		"RTMIN+3":     37,
		"sigrtmin+3":  37,
		"RTMAX":       64,
		"RTMAX-0":     64,
		"RTMAX-1":     63,
		"SIGRTMAX-30": 34,
		"64":          64,
	} {
		if got, err := Parse(name); err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", name, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for what, name := range map[string]string{
		"nothing":                  "",
		"zero, which only asks":    "0",
		"a negative number":        "-15",
		"a number with a plus":     "+15",
		"a number past the last":   "65",
		"a number past every int":  "99999999999999999999",
		"a hexadecimal number":     "0xf",
		"an unknown name":          "FOO",
		"below RTMIN":              "RTMIN-1",
		"past RTMAX, from RTMIN":   "RTMIN+31",
		"below RTMIN, from RTMAX":  "RTMAX-31",
		"a plus without a number":  "RTMIN+",
		"an offset without a sign": "RTMIN3",
		"the prefix alone":         "SIG",
		"the prefix twice":         "SIGSIGTERM",
		"a prefixed number":        "SIG15",
		"a space before":           " TERM",
		"a newline after a number": "15\n",
	} {
		sig, err := Parse(name)
		says := fmt.Sprint(err)
		if !strings.Contains(says, "RTMIN+3") || !strings.Contains(says, "1 to 64") || strings.Contains(says, "\n") {
			t.Errorf("%s: Parse(%q) = %d, %q; want a line that says what is accepted", what, name, sig, says)
		}
	}
}

func TestName(t *testing.T) {
	for sig, want := range map[syscall.Signal]string{
		1:  "SIGHUP",
		15: "SIGTERM",
		17: "SIGCHLD",
		29: "SIGIO",
		31: "SIGSYS",
		32: "32", // the C library's own, which kill -l leaves out
		33: "33",
		34: "SIGRTMIN",
		35: "SIGRTMIN+1",
		64: "SIGRTMIN+30",
		0:  "0",
		65: "65",
		-1: "-1",
	} {
		rig.Equal(t, fmt.Sprint(int(sig)), Name(sig), want)
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
			if sig != 0 {
				t.Fatalf("Parse(%q) = %d along with the error %v", name, sig, err)
			}
			return
		}
		if sig < 1 || sig > rtMax {
			t.Fatalf("Parse(%q) = %d", name, sig)
		}
		if sig == 32 || sig == 33 {
			return // they have a number and no name
		}
		if again, err := Parse(Name(sig)); err != nil || again != sig {
			t.Fatalf("Parse(%q) = %d, but Parse(%q) = %d, %v", name, sig, Name(sig), again, err)
		}
	})
}
