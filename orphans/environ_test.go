package orphans

import (
	"maps"
	"strings"
	"testing"
)

func TestEnviron(t *testing.T) {
	long := strings.Repeat("x", 20000)
	names := []string{"FIRST", "TWICE", "LONG", "EMPTY", "LAST", "NONE"}
	for text, want := range map[string]map[string]string{
		"FIRST=a=b\x00XFIRST=no\x00FIRSTX=no\x00TWICE=1\x00TWICE=2\x00NONE\x00=odd\x00\x00EMPTY=\x00LONG=" + long + "\x00LAST=\xff z\x00": {
			"FIRST": "a=b", "TWICE": "1", "EMPTY": "", "LONG": long[:maxValue], "LAST": "\xff z"},
		strings.Repeat("f="+long+"\x00", 20) + "LAST=is not read\x00": {},
		"": {},
	} {
		if got, err := filesOf(t, "environ", text).environ(".", names); err != nil || !maps.Equal(got, want) {
			t.Errorf("%.40q: %.100q, %v", text, got, err)
		}
	}
}
