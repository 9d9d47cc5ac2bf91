package host

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Version returns the output of --version. It ends in seven hexadecimal digits, because Docker expects that of an init.
func Version() string {
	revision := "0000000"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 7 {
				revision = s.Value[:7]
			}
		}
	}
	return fmt.Sprintf("fini version %s - git.%s", VersionNumber(), revision)
}

// VersionNumber returns only the number of the version.
func VersionNumber() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v, found := strings.CutPrefix(info.Main.Version, "v"); found && !strings.HasPrefix(v, "0.0.0-") {
			return v
		}
	}
	return "0.1.0"
}
