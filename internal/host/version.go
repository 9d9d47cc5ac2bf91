package host

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Version ends in seven hexadecimal digits, because Docker matches the output of `<init> --version` against a pattern.
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

// LimitedBuild is the message of a build whose first instructions are the Go runtime's, which changes what fini has
// inherited. See entry.Linked.
const LimitedBuild = "a build with limits, as go install makes them: the command may see other ignored and blocked signals " +
	"than without fini, and /dev/null for a closed stream; make build has no such limits, on amd64 and arm64"

// VersionNumber is the version without the rest of the line.
func VersionNumber() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v, found := strings.CutPrefix(info.Main.Version, "v"); found && !strings.HasPrefix(v, "0.0.0-") {
			return v
		}
	}
	return "0.1.0"
}
