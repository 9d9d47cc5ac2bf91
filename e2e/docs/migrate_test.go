package docs

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
)

// What docs/migrate.md changes is built and run by a real engine, before and after: before, what the server
// leaves is killed when PID 1 ends; after, it has its time.

const migratePage = "../docs/migrate.md"

// sides are what stands in a diff before the change and after it.
func sides(t *testing.T, diff string) (before, after string) {
	t.Helper()
	for line := range strings.Lines(diff) {
		switch line[0] {
		case '-':
			before += line[1:]
		case '+':
			after += line[1:]
		case ' ':
			before, after = before+line[1:], after+line[1:]
		default:
			t.Fatalf("no line of a diff: %q", line)
		}
	}
	return before, after
}

// others are the inits that an image's package manager is asked for, and what they are linked with.
func others(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{
		"usr/bin/tini":      need.Program(t, "tini-static"),
		"usr/bin/dumb-init": need.Program(t, "dumb-init"),
		"usr/bin/catatonit": need.Program(t, "catatonit"),
	}
	linked, _ := exec.Command("ldd", files["usr/bin/dumb-init"]).Output() // fails if it is static
	for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(linked), -1) {
		files[m[1][1:]] = m[1]
	}
	return files
}

// migrated is an image as a Dockerfile says it, where FROM is a busybox, apt-get installs from a folder, and what
// is downloaded is there already.
func migrated(t *testing.T, text string) (image string) {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) { rig.Put(t, filepath.Join(dir, name), text, 0o755) }
	for name, file := range others(t) {
		put("packages/"+name, rig.ReadFile(t, file))
		put("downloads/"+filepath.Base(name), rig.ReadFile(t, file))
	}
	put("server", imageServer)
	put("apt-get", "#!/bin/sh\n[ $1 = update ] || cp -r /packages/. /\n")
	text = regexp.MustCompile(`(?m)^ADD https://\S+/(tini|dumb-init)\S* (\S+)$`).ReplaceAllString(text, "COPY downloads /usr/lib/downloads\nCOPY downloads/$1 $2")
	if strings.Contains(text, "dumb-init") {
		text = strings.Replace(text, "\n", "\nRUN apt-get install its-libraries\n", 1)
	}
	text = strings.Replace(text, "FROM debian:12\n", "FROM busybox\nENTRYPOINT []\nCOPY packages /packages\nCOPY apt-get /bin/\n", 1)
	put("Dockerfile", text)
	return builtIn(t, dir)
}

// mustCut stops a container whose PID 1 gives what the server leaves no time.
func mustCut(t *testing.T, c *containers.Container) {
	t.Helper()
	c.Out.Want("--port=80")
	rig.Until(t, "the helper is ready", func() bool { return strings.Contains(c.Out.Text(), "helper ready\n") })
	containers.Docker(t, "stop", c.Name)
	if out := c.MustEnd(7); strings.Contains(out, "helper saved") {
		t.Errorf("before the change the helper has its time too, so that this shows nothing: %s", out)
	}
}

// keptName is in what comes after a change that keeps the name of the init.
const keptName = `["/usr/bin/tini"`

func migratesImage(t *testing.T, diff string) {
	before, after := sides(t, diff)
	mustCut(t, containers.StartContainer(t, migrated(t, before)))
	c := containers.StartContainer(t, migrated(t, after))
	if strings.Contains(after, keptName) {
		rig.Until(t, "PID 1 is fini, called tini", func() bool { return strings.HasPrefix(c.Exec("tini", "--version"), "fini version ") })
	} else {
		c.MustBeFini()
	}
	mustStopWell(t, c)
}

func migratesRun(t *testing.T, diff string) {
	image := migrated(t, "FROM debian:12\nCOPY server /bin/\n")
	run := func(line string) *containers.Container {
		words := strings.Fields(strings.NewReplacer("/usr/local/bin/fini:", containers.FiniFile(t)+":", " example ", " "+image+" ").Replace(line))
		return containers.StartContainer(t, words[2:]...)
	}
	before, after := sides(t, diff)
	mustCut(t, run(before))
	c := run(after)
	c.MustBeFini()
	mustStopWell(t, c)
}

// The command that finds what to change names each line that a diff takes away and speaks of an init, nothing of
// what comes in its place, and what else people write.
func migrationGrep(t *testing.T, command string) {
	dir := t.TempDir()
	put := func(name, text string) { rig.Put(t, filepath.Join(dir, name), text, 0o644) }
	var want []string
	for _, b := range recipes.BlocksOf(t, migratePage) {
		if b.Kind != "diff" {
			continue
		}
		name := fmt.Sprintf("%s %d", b.Section, len(want))
		before, after := sides(t, b.Text)
		put(name, before)
		put("after "+name, after)
		if want = append(want, name); strings.Contains(after, keptName) {
			want = append(want, "after "+name)
		}
	}
	for name, text := range map[string]string{
		"alpine":       "RUN apk add --no-cache tini\n",
		"pip":          "RUN pip install dumb-init==1.2.5\n",
		"pod.yaml":     `command: ["/sbin/tini", "--"]`,
		"variable":     "ENV TINI_SUBREAPER=1\n",
		"run.sh":       "docker run \\\n    --init \\\n    example\n",
		"a tab":        "docker run \\\n\t--init \\\n\texample\n",
		"podman":       "podman run --rm --init example\n",
		"devcontainer": "{\n\t\"init\": true\n}\n",
		"without-a-change": "git submodule update --init\n  git submodule update --init\nterraform init\ninitial: true\nroutini\n" +
			"docker run example mysqld --init-file=/x\n  --init-file=/x\ndocker run example --initialize\n",
	} {
		put(name, text)
		if name != "without-a-change" {
			want = append(want, name)
		}
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[string]bool{}
	for line := range bytes.Lines(out) {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(line), "./"), ":")
		found[name] = true
	}
	for _, name := range want {
		if !found[name] {
			t.Errorf("it does not find %s", name)
		}
	}
	for name := range found {
		if !slices.Contains(want, name) {
			t.Errorf("it finds %s", name)
		}
	}
	if len(want) < 10 {
		t.Errorf("only %q", want)
	}
}

// What docs/migrate.md says of a command that can't be run: fini's and tini's statuses, and those of the others.
func TestMigrateStatuses(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`The status is (\d+) if the command isn't found, and (\d+) if it can't be executed, as with tini. dumb-init exits with (\d+)\s+then, and catatonit with (\d+)\.`).
		FindStringSubmatch(rig.ReadFile(t, "../docs/migrate.md"))
	if m == nil {
		t.Fatal("docs/migrate.md says it in other words")
	}
	for init, want := range map[string][2]string{
		rig.Fini: {m[1], m[2]}, need.Program(t, "tini-static"): {m[1], m[2]},
		need.Program(t, "dumb-init"): {m[3], m[3]}, need.Program(t, "catatonit"): {m[4], m[4]},
	} {
		for i, command := range []string{"/no/such/command", "/etc/passwd"} {
			cmd := exec.Command(init, "--", command)
			_ = cmd.Run()
			if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != want[i] {
				t.Errorf("%s: status %s of %s, want %s", init, got, command, want[i])
			}
		}
	}
}
