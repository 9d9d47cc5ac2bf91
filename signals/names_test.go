package signals

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]syscall.Signal{
		"TERM":        unix.SIGTERM,
		"SIGTERM":     unix.SIGTERM,
		"sigterm":     unix.SIGTERM,
		"SigTerm":     unix.SIGTERM,
		"15":          unix.SIGTERM,
		"1":           unix.SIGHUP,
		"KILL":        unix.SIGKILL,
		"usr1":        unix.SIGUSR1,
		"CHLD":        unix.SIGCHLD,
		"CLD":         unix.SIGCHLD,
		"SIGCLD":      unix.SIGCHLD,
		"IO":          unix.SIGIO,
		"POLL":        unix.SIGIO,
		"SIGPOLL":     unix.SIGIO,
		"SYS":         unix.SIGSYS,
		"31":          unix.SIGSYS,
		"32":          32,
		"34":          34,
		"RTMIN":       34,
		"rtmin":       34,
		"SIGRTMIN":    34,
		"RTMIN+0":     34,
		"RTMIN+3":     37,
		"sigrtmin+3":  37,
		"SIGRTMIN+30": 64,
		"RTMAX":       64,
		"RTMAX-0":     64,
		"RTMAX-1":     63,
		"SIGRTMAX-30": 34,
		"64":          64,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(name)
			if err != nil || got != want {
				t.Errorf("Parse(%q) = %d, %v; want %d", name, got, err, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for what, name := range map[string]string{
		"nothing":                    "",
		"zero, which only asks":      "0",
		"a negative number":          "-15",
		"a number with a plus":       "+15",
		"a number past the last":     "65",
		"a number past every int":    "99999999999999999999",
		"a hexadecimal number":       "0xf",
		"a number with a fraction":   "15.0",
		"an unknown name":            "FOO",
		"below RTMIN":                "RTMIN-1",
		"past RTMAX, from RTMIN":     "RTMIN+31",
		"past RTMAX":                 "RTMAX+1",
		"below RTMIN, from RTMAX":    "RTMAX-31",
		"a plus without a number":    "RTMIN+",
		"an offset without a sign":   "RTMIN3",
		"an offset with two signs":   "RTMIN+-1",
		"an offset with a plus more": "RTMIN++1",
		"an offset past every int":   "RTMIN+4294967297",
		"the prefix alone":           "SIG",
		"the prefix twice":           "SIGSIGTERM",
		"the prefix twice, apart":    "SIGSIG TERM",
		"a prefixed number":          "SIG15",
		"a space before":             " TERM",
		"a space after":              "TERM ",
		"a space before a number":    " 15",
		"a newline after a number":   "15\n",
		"two names":                  "TERM,INT",
		"a NUL byte":                 "TERM\x00",
	} {
		t.Run(what, func(t *testing.T) {
			sig, err := Parse(name)
			if err == nil {
				t.Fatalf("Parse(%q) = %d, want an error", name, sig)
			}
			for _, part := range []string{"RTMIN+3", "1 to 64"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error %q does not say that %s is accepted", err, part)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is more than one line: %q", err)
			}
		})
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
		if got := Name(sig); got != want {
			t.Errorf("Name(%d) = %q, want %q", int(sig), got, want)
		}
	}
}

func TestNameIsParsedBack(t *testing.T) {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		if got, err := Parse(Name(sig)); err != nil || got != sig {
			t.Errorf("Parse(Name(%d)) = Parse(%q) = %d, %v", int(sig), Name(sig), got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{
		"TERM", "SIGTERM", "15", "sigterm", "RTMIN", "RTMIN+3", "SIGRTMIN+30", "RTMAX", "RTMAX-1", "64",
		"", "0", "-15", "+15", "65", "FOO", "RTMIN-1", "RTMIN+31", "RTMAX+1", "SIG", "SIGSIGTERM", " TERM",
		"RTMIN+-1", "SIG\xff", "CLD", "32",
	} {
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
