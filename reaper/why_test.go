package reaper

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
)

// elf is the beginning of an ELF file; its numbers are little-endian.
func elf(class byte, machine int) string {
	return elfMagic + string([]byte{class, 1}) + strings.Repeat("\x00", 10) + "\x02\x00" +
		string([]byte{byte(machine), byte(machine >> 8)}) + strings.Repeat("\x00", 100)
}

func TestForeign(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{elf(2, 22), "it is for s390x, this is "},
		{elf(2, 21), "it is for ppc64, this is "},
		{elf(2, 243), "it is for riscv64, this is "},
		{elf(1, 40), "it is for arm, this is "},
		{elf(2, 999), "it is for another machine, number 999, this is "},
		{elfMagic + "\x02\x01\x01\x00", "not for Linux"},
		{"MZ\x90\x00", "not for Linux"},
		{"\xcf\xfa\xed\xfe\x07\x00\x00\x01", "not for Linux"}, // for macOS
		{"MZqFpD='\n\n\x00", "<nil>"},                         // a script for every system, by cosmopolitan
		{"MZ=3\necho $MZ\n", "<nil>"},
		{"exit 0\n", "<nil>"},
		{"", "<nil>"},
	} {
		if got := fmt.Sprint(foreign(c.text)); !strings.Contains(got, c.want) {
			t.Errorf("%.20q: %q, want %q", c.text, got, c.want)
		}
	}
	if own := map[string]int{"amd64": 62, "arm64": 183}[runtime.GOARCH]; own != 0 {
		if got := foreign(elf(2, own)).Error(); !strings.HasSuffix(got, ", as this is, but the kernel does not take it") {
			t.Error(got)
		}
	}
}

func TestNotFoundNamesTheInterpreter(t *testing.T) {
	dynamic := []byte(elf(2, 62) + strings.Repeat("\x00", 100))
	dynamic[32], dynamic[54], dynamic[56] = 64, 56, 1 // one header of a segment, behind the file's
	dynamic[64], dynamic[64+8], dynamic[64+32] = ptInterp, 130, 9
	copy(dynamic[130:], "/lib/ld-x")
	path := filepath.Join(t.TempDir(), "x")
	for _, c := range []struct{ text, want string }{
		{"#!/no/such\n", ": /no/such"},
		{"#! \t/no/such\t-x\n", ": /no/such"},
		{"#!/bin/sh\r\n", `: "/bin/sh\r" is /bin/sh and a Windows line end; sed -i 's/\r$//' ` + path + " removes those"},
		{"#!/no/such", ": /no/such"},
		{string(dynamic), ": /lib/ld-x; it is linked for another C library than there is here"},
		{"#!", ""},
		{"", ""},
	} {
		check.Put(t, path, c.text, 0o755)
		check.Equal(t, fmt.Sprintf("%.20q", c.text), notFound(path).Error(), "its interpreter was not found"+c.want)
	}
}

// Whatever a file holds, it is looked at without a panic.
func FuzzWhy(f *testing.F) {
	f.Add(elf(2, 62))
	f.Add("#!/bin/sh\r\n")
	f.Add("\xca\xfe\xba\xbe\x00\x00\x00\x02")
	f.Fuzz(func(_ *testing.T, text string) {
		_ = foreign(text)
		_ = interpreterOf(text)
		_ = elfFile(text).loader()
	})
}
