package orphans

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/internal/tests/check"
	"golang.org/x/sys/unix"
)

func TestMatches(t *testing.T) {
	for what, c := range map[string]struct {
		pattern, name, executable string
		want                      bool
	}{
		"the name":                  {"gpg-agent", "gpg-agent", "", true},
		"the executable":            {"java", "Gradle", "java", true},
		"a part":                    {"gpg", "gpg-agent", "gpg-agent", false},
		"a pattern":                 {"gpg-*", "gpg-agent", "", true},
		"a pattern and executable":  {"*-agent", "x", "ssh-agent", true},
		"any":                       {"*", "a b", "", true},
		"an unknown executable":     {"?*", "", "", false},
		"a name that was cut":       {"buildkitd-rootless", "buildkitd-rootl", "", true},
		"not cut":                   {"buildkitd-rootless", "buildkitd", "", false},
		"cut otherwise":             {"buildkitd-rootless", "buildkitd-xxxxx", "", false},
		"a pattern is not cut":      {"buildkitd-rootl*ss", "buildkitd-rootl", "", false},
		"a name with a slash":       {"kworker*", "kworker/0:1", "", true},
		"another kind of pattern":   {"cmd:*", "cmd:", "", false},
		"a broken pattern is none":  {"[", "[", "[", false},
		"a name that is a pattern":  {"sleep", "*", "*", false},
		"an executable of 15 bytes": {"exactly15bytes!!", "x", "exactly15bytes!", false},
	} {
		check.Equal(t, what, matches([]string{"no", c.pattern}, c.name, c.executable), c.want)
	}
}

func TestMemoryMatches(t *testing.T) {
	files, dir, long := filesIn(unix.AT_FDCWD), t.TempDir(), strings.Repeat("x", 10_000)
	for what, c := range map[string]struct {
		patterns         []string
		cmdline, environ string
		want             memory
	}{
		"a command line":           {[]string{"cmd:*GradleDaemon*"}, "/jdk/bin/java\x00-cp\x00/a b\x00org.gradle.GradleDaemon\x008.5\x00", "", memory{matches: true, read: true}},
		"its words":                {[]string{"cmd:/bin/sh -c ? b"}, "/bin/sh\x00-c\x00a b\x00", "", memory{matches: true, read: true}},
		"an empty word at the end": {[]string{"cmd:a"}, "a\x00\x00", "", memory{matches: true, read: true}},
		"a long one":               {[]string{"cmd:x*z"}, long + "\x00z\x00", "", memory{matches: true, read: true}},
		"a part":                   {[]string{"cmd:java"}, "java\x00-version\x00", "", memory{read: true}},
		"the second pattern":       {[]string{"cmd:a", "env:A=b"}, "b\x00", "B=b\x00A=b\x00", memory{matches: true, read: true}},
		"a variable":               {[]string{"env:BUILD_ID=dontKillMe"}, "", "PATH=/bin\x00BUILD_ID=dontKillMe\x00", memory{matches: true, read: true}},
		"another value":            {[]string{"env:BUILD_ID=dontKillMe"}, "", "BUILD_ID=17\x00", memory{read: true}},
		"the end of another name":  {[]string{"env:ID=17"}, "", "BUILD_ID=17\x00", memory{read: true}},
		"a pattern of values":      {[]string{"env:A=*/b"}, "", "A=/a/b\x00", memory{matches: true, read: true}},
		"no environment":           {[]string{"env:A="}, "", "", memory{read: true}},
		"a process that exits":     {[]string{"cmd:*"}, "", "", memory{}},
	} {
		check.Put(t, dir+"/cmdline", c.cmdline, 0o600)
		check.Put(t, dir+"/environ", c.environ, 0o600)
		check.Equal(t, what, files.memory(dir, c.patterns), c.want)
	}
}

// Who is left alone is marked and lives, with all that descends from it, and nobody else.
func TestAllow(t *testing.T) {
	tree, f := New(), newFamily(t)
	linked := check.Linked(t, "daemon-by-file")
	byFile := command("@named", "other", "@stay", "byFile")
	byFile.Path = linked
	f.start(byFile)
	f.grow("@named agent @fork agent @fork below @stay deep", "@fork parent @named agent @stay inner", "@named agent @stay main")
	check.NoError(t, os.Remove(linked)) // a program may be replaced while it runs
	tree.Allow([]string{"agent", "daemon-by-file"}, f.pids["main"])

	stay := []string{"agent", "below", "deep", "byFile", "inner"}
	for label, p := range f.find(t, tree) {
		check.Equal(t, label+" is allowed", p.Allowed, slices.Contains(stay, label))
	}
	f.mustBe(t, "Kill hit", killed(t, tree.Kill), "parent", "main")
	for _, label := range []string{"parent", "main"} {
		_, _ = unix.Wait4(f.pids[label], nil, 0, nil)
	}
	f.mustBe(t, "when one has come to this process since, Kill hit", killed(t, tree.Kill))
	f.find(t, tree, stay...)
}
