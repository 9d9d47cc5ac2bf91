package check

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// MustRecord asserts that a recorder has written the given lines.
func MustRecord(t testing.TB, who string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", who, got, want)
	}
}

// Equal asserts that got is equal to want.
func Equal(t testing.TB, what string, got, want any) {
	t.Helper()
	format := "%s: %+v, want %+v"
	switch got.(type) {
	case string, []string:
		format = "%s: %.300q, want %.300q"
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf(format, what, got, want)
	}
}

// NoError ends the test if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func MustKill(t testing.TB, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("cannot send %v to %d: %v", sig, pid, err)
	}
}

// MustStay asserts that a process is currently alive.
func MustStay(t testing.TB, who string, pid int) {
	t.Helper()
	if procfs.StatOf(pid).Gone() {
		t.Errorf("%s has ended", who)
	}
}

// WantOnce asserts that text contains the line exactly once.
func WantOnce(t testing.TB, text, line string) {
	t.Helper()
	n := 0
	for got := range strings.SplitSeq(text, "\n") {
		if got == line {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d times %q, want it once, in:\n%s", n, line, text)
	}
}

func MustParse(t *testing.T, text []byte, value any) {
	t.Helper()
	if err := json.Unmarshal(text, value); err != nil {
		t.Fatalf("%v: %.200q", err, text)
	}
}
