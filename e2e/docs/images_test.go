package docs

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
)

// The recipes for containers are built and run by a real engine.

// The server in the images of the recipes: it starts a helper in a session of its own. What the helper saves is in a file: the
// engine may lose a line that is written just before the container's end.
const imageServer = `#!/bin/sh
	setsid sh -c 'trap "sleep 0.2; echo helper saved >/tmp/saved; exit" TERM; echo helper ready; while :; do sleep 1000 & wait; done' &
	trap 'echo server got TERM; exit 7' TERM
	echo "$@"
	while :; do wait; done`

// With these lines there is an image with a server and a probe, and with fini.
const (
	imageOfServer = "FROM busybox\nCOPY server check-health /bin/\n"
	imageOfBoth   = imageOfServer + "COPY --from=fini:0.1.0 /fini /fini\n"
)

// built is the image that a Dockerfile makes, on a busybox of this machine, beside the server, the probe, and other files.
func built(t *testing.T, text string, more map[string]string) (image string) {
	t.Helper()
	containers.NeedDocker(t)
	dir := t.TempDir()
	files := map[string]string{"server": imageServer, "check-health": "#!/bin/sh\nsetsid sleep 1000 &\nsleep 1000"}
	for name, text := range more {
		files[name] = text
	}
	files["Dockerfile"] = strings.NewReplacer("FROM busybox", "FROM "+example.Whole, "--from=fini:0.1.0",
		"--from="+example.Fini).Replace(text)
	for name, text := range files {
		rig.Put(t, filepath.Join(dir, name), text, 0o755)
	}
	return containers.Build(t, dir)
}

// stopped stops a container of a server's image once its helper is ready, and is what it said and saved.
func stopped(t *testing.T, c *containers.Container) string {
	t.Helper()
	c.Out.Want("--port=80")
	rig.Until(t, "the helper is ready", func() bool { return strings.Contains(c.Out.Text(), "helper ready\n") })
	containers.Docker(t, "stop", c.Name) // sends SIGKILL in the end, which would be 137
	return c.MustEnd(7) + "\n" + c.File("/tmp/saved")
}

// mustStopWell stops such a container, whose helper has its time.
func mustStopWell(t *testing.T, c *containers.Container) {
	t.Helper()
	out := stopped(t, c)
	rig.WantOnce(t, out, "server got TERM")
	rig.WantOnce(t, out, "helper saved")
}

func dockerfile(t *testing.T, text string) {
	c := containers.StartContainer(t, built(t, text, nil))
	rig.Until(t, "the server runs", func() bool { return strings.Contains(c.Exec("sh", "-c", "cat /proc/[0-9]*/comm"), "httpd\n") })
	containers.Docker(t, "stop", c.Name) // sends SIGKILL in the end, which would be 137
	c.MustEnd(128 + int(syscall.SIGTERM))
}

// healthCheck runs the check as Docker does, without a shell. The check takes too long, and leaves a process.
func healthCheck(t *testing.T, text string) {
	m := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD (\[.*\])$`).FindStringSubmatch(text)
	var argv []string
	if m == nil || json.Unmarshal([]byte(m[1]), &argv) != nil || argv[0] != "/fini" {
		t.Fatalf("no check in an exec form: %s", text)
	}
	trial{standIns: map[string]string{"check-health": "setsid sleep 1000 & sleep 1000"}, changes: []string{" 3s ", " 300ms "},
		script: "exec $BLOCK", status: 124}.
		run(t, strings.TrimPrefix(strings.Join(argv, " "), "/"))
}

// builds adds the last lines of a Dockerfile, with a program of this name.
func builds(t *testing.T, text string) { built(t, imageOfBoth+text, nil) }

// timeToStop: the helper needs more than the 5 s that it has by default.
func timeToStop(t *testing.T, text string) {
	m := regexp.MustCompile(`^docker run -d --name server (.*) example\ndocker stop server\n$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatal(text)
	}
	image := built(t, imageOfBoth+"ENTRYPOINT [\"/fini\", \"--\"]\nCMD [\"server\", \"--port=80\"]\n",
		map[string]string{"server": strings.Replace(imageServer, "sleep 0.2", "sleep 6", 1)})
	mustStopWell(t, containers.StartContainer(t, append(strings.Fields(m[1]), image)...))
}

// sandbox: in the container the model's commands have fini in front. One leaves a server to keep; one is cut off; one loses its
// client. The end of the container is the end of all.
func sandbox(t *testing.T, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	flags, ok := strings.CutPrefix(lines[0], "docker run -d --rm --name sandbox ")
	if len(lines) != 3 || !ok {
		t.Fatalf("%q", lines)
	}
	c := containers.StartContainer(t, strings.Fields(strings.Replace(flags, " example ", " "+built(t, imageOfBoth, nil)+" ", 1))...)
	call := func(limit, command string) *rig.Life {
		argv := strings.Fields(strings.NewReplacer(" sandbox ", " "+c.Name+" ", " bash -c \"$COMMAND\"", "", " 2m ",
			" "+limit+" ", "'", "").Replace(lines[1]))
		return rig.StartCmd(t, containers.Client(t, append(argv[1:], "sh", "-c", command)...))
	}
	runs := func() string {
		return regexp.MustCompile(`[^0-9]+`).ReplaceAllString(c.Exec("sh", "-c",
			"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 100[0-9] ' | sort -u"), " ")
	}
	mustRun := func(want string) {
		t.Helper()
		if got := strings.TrimSpace(runs()); got != want {
			t.Errorf("there run the sleeps %s, want %s", got, want)
		}
	}
	// What a shell has just started is a shell yet, with its streams and in its group.
	const untilRuns = `until tr "\000" " " </proc/$!/cmdline | grep -q "^sleep 100"; do :; done; `
	l := call("2m", `kill 1; KEEP=web setsid sleep 1001 >/dev/null 2>&1 & `+untilRuns+`sleep 1002 & `+untilRuns+`echo called`)
	if out := l.Out.Whole(); out != "called\n" {
		t.Errorf("it says %q", out)
	}
	l.MustHaveStatus(0)
	if said := l.Err.Whole(); !strings.Contains(said, "(sleep 1002)") {
		t.Errorf("fini says %q", said)
	}
	mustRun("1001")
	l = rig.OutOfTime(t, func(_ testing.TB, timeout string) *rig.Life {
		return call(strings.TrimPrefix(timeout, "--timeout="), `KEEP=1 sleep 1003 >/dev/null 2>&1 & KEEP=1 setsid sleep 1004 >/dev/null 2>&1 & `+untilRuns+`echo ready; sleep 1005`)
	})
	l.MustHaveStatus(124)
	l.Err.Want("fini: stopping the command: --timeout=")
	mustRun("1001 1004")
	l = call("2m", `echo ready; sleep 1006`)
	l.Out.Want("ready")
	l.Signal(syscall.SIGKILL)
	rig.Until(t, "the command without a client ends", func() bool { return !strings.Contains(runs(), "1006") })
	containers.Docker(t, "stop", c.Name)
	c.MustEnd(0)
}

// What docs/images.md changes is built and run before and after: before, what the server leaves is killed when PID 1 ends;
// after, it has its time.

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

// migrated is an image as a Dockerfile says it, where FROM is a busybox, apt-get installs from a folder, and what
// is downloaded is there already.
func migrated(t *testing.T, text string) (image string) {
	t.Helper()
	// The inits that an image's package manager is asked for, and what they are linked with.
	packages := map[string]string{"usr/bin/tini": need.Program(t, "tini-static"), "usr/bin/dumb-init": need.Program(t, "dumb-init"),
		"usr/bin/catatonit": need.Program(t, "catatonit")}
	linked, _ := exec.Command("ldd", packages["usr/bin/dumb-init"]).Output() // fails if it is static
	for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(linked), -1) {
		packages[m[1][1:]] = m[1]
	}
	files := map[string]string{"apt-get": "#!/bin/sh\n[ $1 = update ] || cp -r /packages/. /\n"}
	for name, file := range packages {
		files["packages/"+name] = rig.ReadFile(t, file)
		files["downloads/"+filepath.Base(name)] = files["packages/"+name]
	}
	text = regexp.MustCompile(`(?m)^ADD https://\S+/(tini|dumb-init)\S* (\S+)$`).ReplaceAllString(text,
		"COPY downloads /usr/lib/downloads\nCOPY downloads/$1 $2")
	if strings.Contains(text, "dumb-init") {
		text = strings.Replace(text, "\n", "\nRUN apt-get install its-libraries\n", 1)
	}
	return built(t, strings.Replace(text, "FROM debian:12\n",
		"FROM busybox\nENTRYPOINT []\nCOPY packages /packages\nCOPY apt-get /bin/\n", 1), files)
}

// mustMigrate stops a container whose PID 1 gives what the server leaves no time, and one after the change.
func mustMigrate(t *testing.T, diff string, start func(side string) *containers.Container) {
	t.Helper()
	before, after := sides(t, diff)
	if out := stopped(t, start(before)); strings.Contains(out, "helper saved") {
		t.Errorf("before the change the helper has its time too, so that this shows nothing: %s", out)
	}
	c := start(after)
	if strings.Contains(after, keptName) {
		rig.Until(t, "PID 1 is fini, called tini", func() bool { return strings.HasPrefix(c.Exec("tini", "--version"), "fini version ") })
	} else {
		c.MustBeFini()
	}
	mustStopWell(t, c)
}

// keptName is in what comes after a change that keeps the name of the init.
const keptName = `["/usr/bin/tini"`

func migratesImage(t *testing.T, diff string) {
	mustMigrate(t, diff, func(side string) *containers.Container { return containers.StartContainer(t, migrated(t, side)) })
}

func migratesRun(t *testing.T, diff string) {
	image := migrated(t, "FROM debian:12\nCOPY server /bin/\n")
	mustMigrate(t, diff, func(side string) *containers.Container {
		words := strings.NewReplacer("/usr/local/bin/fini:", rig.Fini+":", " example ", " "+image+" ").Replace(side)
		return containers.StartContainer(t, strings.Fields(words)[2:]...)
	})
}

// migrationGrep: the command that finds what to change names each line that a diff takes away and speaks of an init, nothing
// of what comes in its place, and what else people write.
func migrationGrep(t *testing.T, command string) {
	files := map[string]string{
		"alpine":       "RUN apk add --no-cache tini\n",
		"pip":          "RUN pip install dumb-init==1.2.5\n",
		"pod.yaml":     `command: ["/sbin/tini", "--"]`,
		"variable":     "ENV TINI_SUBREAPER=1\n",
		"run.sh":       "docker run \\\n    --init \\\n    example\n",
		"a tab":        "docker run \\\n\t--init \\\n\texample\n",
		"podman":       "podman run --rm --init example\n",
		"devcontainer": "{\n\t\"init\": true\n}\n",
		"same": "git submodule update --init\n  git submodule update --init\nterraform init\ninitial: true\nroutini\n" +
			"docker run example mysqld --init-file=/x\n  --init-file=/x\ndocker run example --initialize\n",
	}
	for i, b := range recipes.BlocksOf(t, "../docs/images.md") {
		if b.Kind == "diff" {
			before, after := sides(t, b.Text)
			name := "same, after "
			if strings.Contains(after, keptName) {
				name = "keeps its name, after "
			}
			files[b.Section+strconv.Itoa(i)], files[name+strconv.Itoa(i)] = before, after
		}
	}
	want := ""
	for name := range files {
		if !strings.HasPrefix(name, "same") {
			want += name + "\n"
		}
	}
	if strings.Count(want, "\n") < 10 {
		t.Errorf("only %q", want)
	}
	trial{files: files, script: `found=$(sh -c "$BLOCK") && echo "$found" | sed 's#^\./##; s/:.*//' | LC_ALL=C sort -u`,
		out: recipes.SortedLines(want)}.run(t, command)
}

// What docs/images.md says of a command that can't be run: fini's and tini's statuses, and those of the others.
func TestMigrateStatuses(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`The status is (\d+) if the command isn't found, and (\d+)\s+if\s+it can't be executed, as with tini.\s+In\s+both\s+cases,\s+dumb-init\s+exits\s+with\s+(\d+),\s+and\s+catatonit\s+with\s+(\d+)\.`).
		FindStringSubmatch(rig.ReadFile(t, "../docs/images.md"))
	if m == nil {
		t.Fatal("docs/images.md says it in other words")
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
