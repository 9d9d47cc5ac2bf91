package e2e

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/need"
)

// The recipes that the pages show are run as they stand there, with the real program where it
// can be had, and with a stand-in for what is the reader's own: a server, tests, a backup.

// A recipe is the test of each block that has all of these words.
type recipe struct {
	kind, has string
	run       func(t *testing.T, text string)
}

var recipes = []recipe{
	{"sh", "make demo", isScript}, // see TestPagesCommandLines
	{"sh", "fini -- make test", inFront},
	{"sh", "fini --isolate -- make test", isScript}, // see isolate_test.go
	{"sh", "dpkg -i", isScript},                     // see releaseReadme
	{"dockerfile", "HEALTHCHECK", healthCheck},
	{"dockerfile", "/usr/local/bin/fini", jobImage},
	{"dockerfile", "COPY --from=fini", dockerfile},
	{"sh", "docker push", isScript},
	{"yaml", "- run: fini", isYAML}, // see TestReadmeCIRecipe
	{"yaml", "shell: bash", serverForLaterSteps},
	{"yaml", "upload-artifact", isYAML},
	{"yaml", "shell: \"fini", githubWorkflow},
	{"yaml", "script:", gitlabJob},
	{"yaml", "entrypoint:", composed},
	{"yaml", "image:\n        reference:", kubernetesVolume},
	{"yaml", "--install=", kubernetesInit},
	{"yaml", "exec:", execProbe},
	{"json", "", mcpServers},
	{"python", "def shell(", agentsShell},
	{"ini", "[Service]", systemdUnit},
	{"cron", "", cronJob},
	{"sh", "ssh host", overSSH},
	{"sh", "setsid -f", inBackground},
	{"make", ".SHELLFLAGS", makesShell},
	{"sh", `exec fini -q -- sh "$@"`, npmScript},
	{"ini", "script-shell", func(*testing.T, string) {}}, // see npmScript
	{"python", "@pytest.fixture", pytestFixture},
	{"go", "func TestServer", goTest},
	{"go", "FINI_TEST", leakInGoTest},
	{"js", "node:test", leakInNodeTest},
	{"js", "require('fini-init')", embedsNode},
	{"js", "StdioClientTransport", embedsTransport},
	{"python", "import fini_init", embedsPython},
	{"go", "func Run(", embedsGo},
	{"js", "handleTestEvent", leakInJest},
	{"bats", "FINI_TEST", leakInBats},
	{"sh", "jq -nr 'def xml", leaksAsJUnit},
	{"sh", "jq -nr", leakRanking},
	{"sh", "--cap-drop=ALL", isScript},      // see TestDropInPodman
	{"sh", "dockerd --init-path", isScript}, // see TestDropInPodman
	{"sh", "go test ./e2e", isScript},       // see TestPagesCommandLines
	{"sh", "grep -rn", migrationGrep},
	{"diff", "FROM ", migratesImage},
	{"diff", "docker run", migratesRun},
	{"diff", "services:", migratesCompose},
	{"diff", "init-path", migratesEngine},
}

func TestRecipes(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, page := range pages(t) {
		for _, b := range blocksOf(t, page) {
			if b.kind == "console" || seen[b.text] { // see TestPagesExamples
				continue
			}
			seen[b.text] = true
			n := slices.IndexFunc(recipes, func(r recipe) bool { return r.kind == b.kind && strings.Contains(b.text, r.has) })
			if n < 0 {
				t.Errorf("%s, %s: no test runs this block of %q:\n%s", page, b.section, b.kind, b.text)
				continue
			}
			t.Run(b.section, func(t *testing.T) {
				t.Parallel()
				recipes[n].run(t, b.text)
			})
		}
	}
}

// releaseReadme looks for each file that the README installs.
func releaseReadme(t *testing.T, r release) {
	found := 0
	for _, m := range regexp.MustCompile(`dist/(\S+)`).FindAllStringSubmatch(blockWith(t, "../README.md", "dpkg -i"), -1) {
		r.file(t, m[1])
		found++
	}
	if found < 8 {
		t.Errorf("only %d files", found)
	}
}

// A recipeDir is a directory in which a recipe is run, with stand-ins on PATH, and fini.
type recipeDir struct {
	t      *testing.T
	dir    string
	cgroup *cgroup
	env    []string
}

func newRecipeDir(t *testing.T, standIns map[string]string) *recipeDir {
	t.Helper()
	k := &recipeDir{t: t, dir: t.TempDir(), cgroup: newCgroup(t)}
	for name, script := range standIns {
		k.file("bin/"+name, "#!/bin/sh\n"+script+"\n", 0o755)
	}
	k.env = append(os.Environ(), "PATH="+filepath.Join(k.dir, "bin")+":"+filepath.Dir(finiPath)+":"+os.Getenv("PATH"))
	return k
}

func (k *recipeDir) file(name, text string, mode os.FileMode) string {
	k.t.Helper()
	name = filepath.Join(k.dir, name)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(text), mode)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return name
}

func (k *recipeDir) start(argv ...string) *life {
	k.t.Helper()
	argv = k.cgroup.wrap(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = k.dir, k.env
	return startCmd(k.t, cmd)
}

// mustBeEmpty waits for the end of all that was started.
func (k *recipeDir) mustBeEmpty() {
	k.t.Helper()
	until(k.t, "nothing runs any more", func() bool { return len(k.cgroup.alive()) == 0 })
}

// mustLeaveNothing asserts that all ends with what was started, and returns what it wrote.
func (k *recipeDir) mustLeaveNothing(l *life, status int) string {
	k.t.Helper()
	out := l.Out.whole() // to EOF
	if got := l.status(); got != status {
		k.t.Errorf("status %d, want %d; stdout %s; stderr %s", got, status, out, l.Err.text())
	}
	if left := k.cgroup.names(); len(left) > 0 {
		k.t.Errorf("still running: %q; stderr: %s", left, l.Err.text())
	}
	return out
}

// A leaky script ends at once, and leaves a process behind that holds its output.
const leaky = "setsid sleep 1000 & echo done"

// A serving one says that it is ready, ends at SIGTERM, and says so.
const serving = `trap 'echo "$0 got TERM"; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done`

func isScript(t *testing.T, text string) {
	l := startCmd(t, exec.Command("/bin/sh", "-n", "-c", text))
	l.mustEnd(0)
}

// fromYAML is a block as JSON would have it.
func fromYAML(t *testing.T, text string) any {
	t.Helper()
	cmd := exec.Command(debianPython(t, "yaml"), "-c", "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("no YAML: %v\n%s", err, text)
	}
	var value any
	if err := json.Unmarshal(out, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func isYAML(t *testing.T, text string) { fromYAML(t, text) }

// at is what a path of names and numbers leads to.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				t.Fatalf("there is no %v", path)
			}
			value = list[step]
		}
	}
	if value == nil {
		t.Fatalf("there is no %v", path)
	}
	return value
}

func words(t *testing.T, value any) (all []string) {
	t.Helper()
	list, ok := value.([]any)
	if !ok {
		t.Fatalf("no list: %v", value)
	}
	for _, word := range list {
		all = append(all, fmt.Sprint(word))
	}
	return all
}

func inFront(t *testing.T, text string) {
	k := newRecipeDir(t, map[string]string{"make": leaky})
	if out := k.mustLeaveNothing(k.start("/bin/sh", "-c", text), 0); out != "done\n" {
		t.Errorf("it says %q", out)
	}
}

// The runner's cancel is that of githubCancel, ten times as fast. Bash is gone when it sends
// SIGTERM, and fini by SIGKILL after that; who cleans up since SIGINT takes longer.
func githubWorkflow(t *testing.T, text string) {
	need.Program(t, "bash")
	workflow := fromYAML(t, text)
	shell := strings.Fields(at(t, workflow, "defaults", "run", "shell").(string))
	steps := at(t, workflow, "jobs", "tests", "steps").([]any)
	line := at(t, steps[len(steps)-1], "run").(string)
	k := newRecipeDir(t, map[string]string{"make": `
		trap 'echo deleting; sleep 1.5; echo deleted; exit 1' INT
		trap 'echo at it already' TERM
		setsid sleep 1000 &
		echo ready
		while :; do sleep 0.1; done`})
	file := k.file("step.sh", line+"\necho the step goes on\n", 0o644)
	for _, fini := range []bool{true, false} {
		argv := slices.Clone(shell)
		if argv[len(argv)-1] = file; !fini {
			argv = argv[slices.Index(argv, "bash"):]
		}
		argv = k.cgroup.wrap(argv...)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = k.env
		s := &step{startCmd(t, cmd), k.cgroup}
		_ = s.Stdin.Close() // as the runner does
		s.Out.want("ready")
		s.githubCancel()
		if !fini {
			s.mustHaveStatus(128 + int(syscall.SIGTERM))
			if len(k.cgroup.alive()) == 0 || strings.Contains(s.Out.text(), "deleting") {
				t.Errorf("without fini the tests hear of the cancel too, so that this shows nothing: %s", s.Out.text())
			}
			return
		}
		s.Out.want("deleted")
		s.Out.whole() // to EOF
		s.mustHaveStatus(128 + int(syscall.SIGKILL))
		s.mustBeGone()
		wantOnce(t, s.Out.text(), "deleting")
	}
}

func gitlabJob(t *testing.T, text string) {
	need.Program(t, "bash")
	line := words(t, at(t, fromYAML(t, text), "tests", "script"))[0]
	k := newRecipeDir(t, map[string]string{"make": "setsid sleep 1000 & " + serving})
	argv := k.cgroup.wrap(gitlab(line)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = k.dir, k.env, ownGroup
	s := &step{startCmd(t, cmd), k.cgroup}
	s.Out.want("ready")
	s.signalGroup(syscall.SIGTERM)
	if out := s.Out.whole(); strings.Count(out, "got TERM") != 1 {
		t.Errorf("the job says %q", out)
	}
	s.mustBeGone()
}

// The server in the images of the recipes: it starts a helper in a session of its own.
const (
	imageServer = `#!/bin/sh
		setsid sh -c 'trap "sleep 0.2; echo helper saved; exit" TERM; echo helper ready; while :; do sleep 1000 & wait; done' &
		trap 'echo server got TERM; exit 7' TERM
		echo "$@"
		while :; do wait; done`
	imageProbe = "#!/bin/sh\nsetsid sleep 1000 &\nsleep 1000"
)

// With these lines there is an image with fini, a server and a probe.
const imageOfServer = "FROM busybox\nCOPY server check-health /bin/\n"

// built is the image that a Dockerfile makes.
func built(t *testing.T, text string) (image string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"server": imageServer, "check-health": imageProbe, "Dockerfile": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return builtIn(t, dir)
}

// builtIn is the image that a folder's Dockerfile makes, on a busybox of this machine.
func builtIn(t *testing.T, dir string) (image string) {
	t.Helper()
	need.That(t, dockerWorks(), "a running Docker engine, which e2e/dockerd.sh starts")
	example := buildExample(t, needStaticBusybox(t))
	file := filepath.Join(dir, "Dockerfile")
	text := strings.NewReplacer("FROM busybox", "FROM "+example.whole, "--from=fini:0.1.0", "--from="+example.fini).Replace(readFile(t, file))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	image = dockerName("recipe")
	cmd := dockerCommand(t, "build", "-q", "-t", image, dir)
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("docker build: %v: %s", err, out)
	}
	t.Cleanup(func() { docker(t, "rmi", image) })
	return image
}

// mustStopWell stops a container of a server's image, whose helper has its time.
func mustStopWell(t *testing.T, c *container) {
	t.Helper()
	c.Out.want("--port=80")
	until(t, "the helper is ready", func() bool { return strings.Contains(c.Out.text(), "helper ready\n") })
	docker(t, "stop", c.name) // sends SIGKILL in the end, which would be 137
	out := c.mustEnd(7)
	wantOnce(t, out, "server got TERM")
	wantOnce(t, out, "helper saved")
}

func dockerfile(t *testing.T, text string) {
	c := startContainer(t, built(t, text))
	until(t, "the server runs", func() bool { return strings.Contains(c.exec("ps"), " httpd ") })
	docker(t, "stop", c.name) // sends SIGKILL after 10 s, which would be 137
	c.mustEnd(128 + int(syscall.SIGTERM))
}

// jobImage has fini on PATH.
func jobImage(t *testing.T, text string) {
	c := startContainer(t, built(t, text), "fini", "--version")
	if out := c.mustEnd(0); !strings.HasPrefix(out, "fini version ") {
		t.Errorf("it says %q", out)
	}
}

// healthCheck runs the check as Docker does, without a shell. The check takes too long, and leaves a process.
func healthCheck(t *testing.T, text string) {
	m := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD (\[.*\])$`).FindStringSubmatch(text)
	var argv []string
	if m == nil || json.Unmarshal([]byte(m[1]), &argv) != nil || argv[0] != "/fini" {
		t.Fatalf("no check in an exec form: %s", text)
	}
	k := newRecipeDir(t, map[string]string{"check-health": "setsid sleep 1000 & sleep 1000"})
	argv[0] = finiPath
	argv[slices.Index(argv, "3s")] = "300ms"
	k.mustLeaveNothing(k.start(argv...), 124)
}

// serverForLaterSteps runs a step that starts a server: by its own shell, under which the server goes on, and by the shell
// of the workflow, which stops the server unless its name is allowed.
func serverForLaterSteps(t *testing.T, text string) {
	need.Program(t, "bash")
	step := fromYAML(t, text).([]any)[0]
	if shell := at(t, step, "shell"); shell != "bash" {
		t.Errorf("the shell is %v", shell)
	}
	workflow := fromYAML(t, blockWith(t, "../docs/recipes.md", "shell: \"fini"))
	inFront := strings.Fields(at(t, workflow, "defaults", "run", "shell").(string))
	bash := inFront[slices.Index(inFront, "bash"):]
	for _, c := range []struct {
		argv   []string
		env    string
		leaves bool
	}{
		{bash, "", true},
		{inFront, "", false},
		{inFront, "FINI_ALLOW_ORPHAN=start-server", true},
	} {
		k := newRecipeDir(t, map[string]string{"start-server": "exec >/dev/null 2>&1; mkfifo ready; read line <ready"})
		if c.env != "" {
			k.env = append(k.env, c.env)
		}
		argv := slices.Clone(c.argv)
		argv[len(argv)-1] = k.file("step.sh", at(t, step, "run").(string)+"\nuntil [ -p ready ]; do :; done\n", 0o644)
		if got := k.start(argv...).status(); got != 0 {
			t.Errorf("%q: status %d", argv, got)
		}
		if left := k.cgroup.names(); (len(left) > 0) != c.leaves {
			t.Errorf("%q leaves %q", argv, left)
		}
	}
}

func composed(t *testing.T, text string) {
	service := at(t, fromYAML(t, text), "services", "server")
	if exec.Command("docker", "compose", "version").Run() == nil {
		file := filepath.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		docker(t, "compose", "-f", file, "config", "-q")
	}
	if at(t, service, "init") != false {
		t.Error("init is not off")
	}
	entry := words(t, at(t, service, "entrypoint"))
	grace := strings.TrimSuffix(at(t, service, "stop_grace_period").(string), "s")
	flags := []string{"--init=false", "--stop-timeout", grace, "--entrypoint", entry[0]}
	for name, value := range at(t, service, "environment").(map[string]any) {
		flags = append(flags, "-e", fmt.Sprintf("%s=%v", name, value))
	}
	flags = append(append(flags, built(t, imageOfServer)), entry[1:]...)
	mustStopWell(t, startContainer(t, append(flags, words(t, at(t, service, "command"))...)...))
}

// PID 1 of the container reaps nothing.
func execProbe(t *testing.T, text string) {
	probe := at(t, fromYAML(t, text), "readinessProbe")
	line := words(t, at(t, probe, "exec", "command"))
	for i := range line {
		line[i] = strings.Replace(line[i], "3s", "300ms", 1)
	}
	c := startContainer(t, "--entrypoint", "sleep", built(t, imageOfServer), "1000")
	out, err := dockerCommand(t, append([]string{"exec", c.name}, line...)...).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 124 {
		t.Errorf("the probe ends with %v: %s", err, out)
	}
	if n := c.zombies(); n > 0 {
		t.Errorf("%d zombies", n)
	}
	if list := c.exec("ps"); strings.Contains(list, "check-health") || strings.Count(list, "sleep") != 1 {
		t.Errorf("left of the probe: %s", list)
	}
	c.exec("sh", "-c", "sleep 0.01 & exit")
	until(t, "without fini there is a zombie", func() bool { return c.zombies() == 1 })
}

// podFromRecipe is a pod's manifest, on images of podman's, and an engine that has them.
func podFromRecipe(t *testing.T, text string) (e *engine, manifest, fini, base string) {
	t.Helper()
	pod := fromYAML(t, text)
	container := at(t, pod, "spec", "containers", 0)
	command := words(t, at(t, container, "command"))
	mount := at(t, container, "volumeMounts", 0)
	if at(t, pod, "kind") != "Pod" || at(t, mount, "name") != at(t, pod, "spec", "volumes", 0, "name") ||
		!slices.Equal(command, []string{at(t, mount, "mountPath").(string) + "/fini", "--"}) {
		t.Errorf("fini is not where the pod looks for it:\n%s", text)
	}
	need.Root(t, "for podman")
	need.Program(t, "runc")
	e = &engine{client: podmanClient(t), env: podmanConfig(t)}
	base, fini = "localhost/fini-e2e:base", "localhost/fini-e2e:fini"
	podmanImages(t, e, base)
	dir := t.TempDir()
	for name, text := range map[string]string{"fini": readFile(t, finiPath), "Dockerfile": "FROM scratch\nCOPY fini /fini\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e.must(t, "build", "-q", "-t", fini, dir)
	dir = t.TempDir()
	for name, text := range map[string]string{"server": imageServer, "Dockerfile": "FROM " + base + "\nCOPY server /bin/server\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	server := "localhost/fini-e2e:server"
	e.must(t, "build", "-q", "-t", server, dir)
	manifest = strings.NewReplacer(
		"image: example\n", "image: "+server+"\n      imagePullPolicy: Never\n",
		"image: fini:0.1.0\n", "image: "+fini+"\n      imagePullPolicy: Never\n",
	).Replace(text)
	return e, manifest, fini, server
}

func (e *engine) mustStopWell(t *testing.T, name string) {
	t.Helper()
	until(t, "the helper is ready", func() bool { return strings.Contains(e.must(t, "logs", name), "helper ready") })
	e.must(t, "stop", name)
	if got := e.must(t, "wait", name); got != "7" {
		t.Errorf("status %s, want 7", got)
	}
	log := e.must(t, "logs", name)
	wantOnce(t, log, "server got TERM")
	wantOnce(t, log, "helper saved")
}

// podman knows volumes of images, but not in a pod's manifest.
func kubernetesVolume(t *testing.T, text string) {
	e, _, fini, server := podFromRecipe(t, text)
	container := at(t, fromYAML(t, text), "spec", "containers", 0)
	command := words(t, at(t, container, "command"))
	e.must(t, append([]string{"run", "-d", "--network", "none", "--name", "fini-e2e-volume",
		"--mount", "type=image,source=" + fini + ",destination=" + filepath.Dir(command[0]),
		"--entrypoint", command[0], server, command[1]}, words(t, at(t, container, "args"))...)...)
	t.Cleanup(func() { e.must(t, "rm", "-f", "-t", "0", "fini-e2e-volume") })
	e.mustStopWell(t, "fini-e2e-volume")
}

// The two containers by hand: podman's play kube looks for the end of an init container too early
// for one that ends at once.
func kubernetesInit(t *testing.T, text string) {
	e, _, fini, server := podFromRecipe(t, text)
	const volume = "fini-e2e-init"
	e.must(t, "volume", "create", volume)
	t.Cleanup(func() { e.must(t, "volume", "rm", "-f", volume) })
	const name = "fini-e2e-init-server"
	start := func(image string, container any, more []string, flags ...string) {
		command := words(t, at(t, container, "command"))
		mount := volume + ":" + at(t, container, "volumeMounts", 0, "mountPath").(string)
		flags = append([]string{"run", "--network", "none", "-v", mount, "--entrypoint", command[0]}, flags...)
		e.must(t, slices.Concat(flags, []string{image}, command[1:], more)...)
	}
	pod := fromYAML(t, text)
	start(fini, at(t, pod, "spec", "initContainers", 0), nil, "--rm")
	container := at(t, pod, "spec", "containers", 0)
	start(server, container, words(t, at(t, container, "args")), "-d", "--name", name)
	t.Cleanup(func() { e.must(t, "rm", "-f", "-t", "0", name) })
	e.mustStopWell(t, name)
}

// Each server is started as its host would, with a stand-in that says what it was called with
// and echoes its input. TestReadmeMCPRecipe asks a real one.
func mcpServers(t *testing.T, text string) {
	type server struct {
		Command string
		Args    []string
	}
	var config struct {
		Servers map[string]server
		MCP     map[string]server `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Servers)+len(config.MCP) == 0 {
		t.Error("no server")
	}
	echo := `echo "$@"; setsid sleep 1000 & exec cat`
	for _, s := range slices.Concat(values(config.Servers), values(config.MCP)) {
		k := newRecipeDir(t, map[string]string{
			"npx":  `if [ "$2" = fini-init ]; then shift 2; exec fini "$@"; fi; ` + echo,
			"node": echo, "uvx": echo, "docker": echo,
		})
		l := k.start(append([]string{s.Command}, s.Args...)...)
		got := l.Out.want("")
		if !strings.HasSuffix(strings.Join(s.Args, " "), " "+got) || !slices.Contains(s.Args, "-i") {
			t.Errorf("%q starts %q", s.Args, got)
		}
		_, _ = io.WriteString(l.Stdin, "hello\n")
		l.Out.want("hello")
		_ = l.Stdin.Close()
		k.mustLeaveNothing(l, 0)
	}
}

func values[K comparable, V any](m map[K]V) (all []V) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// debianPython is the one for which Debian's packages are.
func debianPython(t *testing.T, module string) string {
	t.Helper()
	const python = "/usr/bin/python3"
	need.That(t, exec.Command(python, "-c", "import "+module).Run() == nil, "Debian's python3-"+module)
	return python
}

func agentsShell(t *testing.T, text string) {
	need.Program(t, "bash")
	k := newRecipeDir(t, nil)
	file := k.file("agent.py", text+`
result = shell("setsid sleep 1000 & sleep 1001 >/dev/null 2>&1 & echo $!; echo done")
print(result.stdout, end="")
print("status", result.returncode)
`, 0o644)
	l := k.start(need.Program(t, "python3"), file)
	pid := l.Out.wantPid("")
	l.Out.want("done")
	l.Out.want("status 0")
	if got := l.status(); got != 0 {
		t.Errorf("status %d: %s", got, l.Err.text())
	}
	if left := k.cgroup.alive(); !slices.Equal(left, []int{pid}) {
		t.Errorf("alive are %v, want %d alone, whose output is elsewhere", k.cgroup.names(), pid)
	}
}

func systemdUnit(t *testing.T, text string) {
	analyze := need.Program(t, "systemd-analyze")
	k := newRecipeDir(t, nil)
	command := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(text)
	if command == nil {
		t.Fatal("no ExecStart")
	}
	line := strings.NewReplacer("/usr/local/bin/fini", finiPath, "/usr/local/bin/server", "/bin/sleep", "--port=80", "1000").Replace(command[1])
	unit := k.file("example.service", strings.Replace(text, command[1], line, 1), 0o644)
	if out, err := exec.Command(analyze, "verify", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "example.service") {
		t.Errorf("systemd-analyze: %v: %s", err, out)
	}
	// systemd sends SIGTERM to fini alone.
	l := k.start(strings.Fields(line)...)
	l.caught()
	l.signal(syscall.SIGTERM)
	k.mustLeaveNothing(l, 128+int(syscall.SIGTERM))
}

// cron gives the sixth field of a line to sh, with a few variables.
func cronJob(t *testing.T, text string) {
	fields := regexp.MustCompile(`^PATH=(\S+)\n(?:[0-9*/,-]+ ){5}(.*)\n$`).FindStringSubmatch(text)
	if fields == nil {
		t.Fatalf("no line of a crontab: %q", text)
	}
	k := newRecipeDir(t, map[string]string{"backup": leaky})
	// What `make install` installs, and the backup, are in /usr/local/bin.
	path := strings.Replace(fields[1], "/usr/local/bin", filepath.Join(k.dir, "bin")+":"+filepath.Dir(finiPath), 1)
	k.env = []string{"HOME=/", "LOGNAME=root", "SHELL=/bin/sh", "PATH=" + path}
	if out := k.mustLeaveNothing(k.start("/bin/sh", "-c", fields[2]), 0); out != "done\n" {
		t.Errorf("the job says %q", out)
	}
}

// The client is killed, and the connection with it. sshd is a real one.
func overSSH(t *testing.T, text string) {
	ssh := need.Program(t, "ssh")
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	need.That(t, err == nil, "sshd (openssh-server)")
	need.Root(t, "for sshd")
	k := newRecipeDir(t, map[string]string{"make": "setsid sleep 1000 & " + serving})
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"host", "user"} {
		run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(k.dir, name))
	}
	server := k.file("sshd_config", fmt.Sprintf("HostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\n"+
		"PermitRootLogin yes\nPidFile none\nUsePAM no\nSetEnv PATH=%[2]s HOME=%[1]s\n", k.dir, strings.TrimPrefix(k.env[len(k.env)-1], "PATH=")), 0o644)
	// sshd -i speaks on its standard streams, so that no port is needed.
	client := k.file("ssh_config", fmt.Sprintf("Host host\nIdentityFile %[1]s/user\nStrictHostKeyChecking no\n"+
		"UserKnownHostsFile /dev/null\nLogLevel ERROR\nUser root\nProxyCommand %[2]s -i -e -f %[3]s 2>/dev/null\n", k.dir, sshd, server), 0o644)
	argv := strings.Fields(text)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		l := k.start(append([]string{ssh, "-F", client}, argv[1:]...)...)
		l.Out.want("ready")
		l.signal(sig)
		if got := l.status(); got != 128+int(sig) && got != 255 {
			t.Errorf("ssh ends with %d: %s", got, l.Err.text())
		}
		k.mustBeEmpty()
	}
}

// Each line's shell is gone at once; the server stays. Without what the line says it ends with its shell.
func inBackground(t *testing.T, text string) {
	need.Program(t, "setsid")
	for line := range strings.Lines(text) {
		for _, asked := range []bool{true, false} {
			k := newRecipeDir(t, map[string]string{"server": `setsid sleep 1000 & echo ready; read end <"$GATE"`})
			g, shell := newGate(t), newGate(t)
			k.env = append(k.env, "GATE="+g.name, "SHELL_GATE="+shell.name)
			script := strings.TrimSpace(line)
			if !asked {
				if strings.Contains(script, "setsid -f") { // setsid may be gone before fini can ask who started it
					continue
				}
				script = strings.Replace(strings.Replace(script, "-p none ", "", 1), "nohup ", "", 1)
				// So may a shell that ends at once. Of this one fini knows.
				script = strings.Replace(script, "&", `& read end <"$SHELL_GATE"`, 1)
			}
			l := k.start("/bin/sh", "-c", script)
			if !asked {
				l.Out.want("ready")
				shell.open(t)
			}
			if got := l.status(); got != 0 {
				t.Errorf("%s: status %d", script, got)
			}
			if !asked {
				k.mustBeEmpty()
				continue
			}
			l.Out.want("ready")
			if len(k.cgroup.alive()) == 0 {
				t.Errorf("%s: the server is gone", script)
			}
			g.open(t)
			l.Out.whole() // to EOF
			k.mustBeEmpty()
		}
	}
}

func makesShell(t *testing.T, text string) {
	make := need.Program(t, "make")
	k := newRecipeDir(t, map[string]string{"start-server": "exec setsid sleep 1000", "run-tests": "echo tested"})
	k.file("Makefile", text, 0o644)
	if out := k.mustLeaveNothing(k.start(make, "-s", "test"), 0); out != "tested\n" {
		t.Errorf("make says %q", out)
	}
	k.file("Makefile", strings.Replace(text, "run-tests", "exit 3", 1), 0o644)
	k.mustLeaveNothing(k.start(make, "-s", "test"), 2)
}

func npmScript(t *testing.T, text string) {
	npm := need.Program(t, "npm")
	k := newRecipeDir(t, nil)
	k.file("bin/fini-sh", text, 0o755)
	if _, shipped, _ := strings.Cut(readFile(t, "../packaging/fini-sh"), "exec "); !strings.HasSuffix(text, "exec "+shipped) {
		t.Error("the packages have another fini-sh")
	}
	k.file(".npmrc", blockWith(t, "../docs/recipes.md", "script-shell="), 0o644)
	k.file("package.json", `{"name": "example", "version": "1.0.0", "scripts": {"test": "`+leaky+`; exit 3"}}`, 0o644)
	if out := k.mustLeaveNothing(k.start(npm, "test", "--silent"), 3); out != "done\n" {
		t.Errorf("npm says %q", out)
	}
}

func pytestFixture(t *testing.T, text string) {
	python := debianPython(t, "pytest")
	k := newRecipeDir(t, nil)
	file := k.file("test_it.py", text+`
def test_hangs(server):
    import time
    print("hanging", flush=True)
    time.sleep(1000)
`, 0o644)
	pytest := []string{python, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", file}
	k.mustLeaveNothing(k.start(append(pytest, "-k", "not hangs")...), 0)
	l := k.start(append(pytest, "-k", "hangs")...)
	l.Out.want("hanging")
	l.signal(syscall.SIGKILL)
	k.mustBeEmpty()
}

// mustNameTest runs tests that leave a server behind, and wants the line to name the test.
func mustNameTest(t *testing.T, name string, files map[string]string, argv ...string) {
	t.Helper()
	k := newRecipeDir(t, map[string]string{"start-server": "exec sleep 1000"})
	k.env = append(k.env, "GOCACHE="+goCache(t))
	for file, text := range files {
		k.file(file, text, 0o644)
	}
	l := k.start(append([]string{"fini", "--linger=50ms", "--orphans-exit=9", "--"}, argv...)...)
	k.mustLeaveNothing(l, 9)
	if said := l.Err.whole(); !strings.Contains(said, "started in test "+name+"\n") && !strings.Contains(said, " in test "+name+"\n") {
		t.Errorf("fini says %q, and nothing of %s", said, name)
	}
}

func leakInGoTest(t *testing.T, text string) {
	mustNameTest(t, "TestCheckout", map[string]string{"go.mod": "module shop\n\ngo 1.21\n", "shop_test.go": text}, "go", "test", ".")
}

func leakInNodeTest(t *testing.T, text string) {
	node := need.Program(t, "node")
	mustNameTest(t, "checkout", map[string]string{"shop.test.mjs": text}, node, "--test")
	for _, k := range nodeKinds(t) {
		if !k.stay { // a newer Node
			mustNameTest(t, "checkout", map[string]string{"shop.test.mjs": text}, strings.TrimPrefix(strings.Split(k.env[0], ":")[0], "PATH=")+"/node", "--test")
		}
	}
}

func leakInJest(t *testing.T, text string) {
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	jest := filepath.Join(modules, ".bin/jest")
	_, err = os.Stat(jest)
	need.That(t, err == nil, "e2e/node_modules/.bin/jest")
	mustNameTest(t, "shop checkout", map[string]string{
		"fini-environment.js": strings.Replace(text, "'jest-environment-node'", "'"+modules+"/jest-environment-node'", 1),
		"jest.config.json":    `{"testEnvironment": "./fini-environment.js", "watchman": false}`,
		"shop.test.js": "const { spawn } = require('child_process');\n" +
			"describe('shop', () => test('checkout', () => { spawn('start-server', { detached: true, stdio: 'ignore' }).unref(); }));\n",
	}, jest, "--no-cache", "--ci")
}

func leakInBats(t *testing.T, text string) {
	mustNameTest(t, "the shop checks out", map[string]string{"shop.bats": text}, need.Program(t, "bats"), "shop.bats")
}

// leakRanking merges the reports of runs in which two tests leak, one of them twice as often.
func leakRanking(t *testing.T, text string) {
	need.Program(t, "jq")
	k := newRecipeDir(t, map[string]string{"server": "exec sleep 1000"})
	for i, tests := range [][]string{{"checkout", "login"}, {"checkout"}} {
		script := ""
		for _, name := range tests {
			script += "FINI_TEST='shop " + name + "' sleep 1000 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done; "
		}
		report := k.file(fmt.Sprintf("reports/%d.json", i), "", 0o644)
		k.mustLeaveNothing(k.start("fini", "-q", "--linger=0", "--report="+report, "--", "sh", "-c", script), 0)
	}
	want := "2\tshop checkout\tsleep\n1\tshop login\tsleep\n"
	if out := k.mustLeaveNothing(k.start("/bin/sh", "-c", text), 0); out != want {
		t.Errorf("the ranking is %q, want %q", out, want)
	}
}

// Of Jenkins' junit-10.xsd (of its xunit plugin) the elements that the recipe makes: the attributes that an element must
// have and those that it may have, and what may be in it.
var junit10 = map[string]struct {
	must, may, in []string
}{
	"testsuite": {[]string{"name", "tests", "failures", "errors"},
		[]string{"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"}, []string{"testsuite", "testcase"}},
	"testcase": {[]string{"name"}, []string{"time", "classname", "group"}, []string{"failure"}},
	"failure":  {nil, []string{"type", "message"}, nil},
}

// An element is one of an XML document.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

func (e *element) attr(name string) string {
	i := slices.IndexFunc(e.Attrs, func(a xml.Attr) bool { return a.Name.Local == name })
	if i < 0 {
		return ""
	}
	return e.Attrs[i].Value
}

func (e *element) mustBeJUnit(t *testing.T) {
	t.Helper()
	rule, known := junit10[e.XMLName.Local]
	if !known {
		t.Errorf("<%s> is not in the schema", e.XMLName.Local)
	}
	var names []string
	for _, a := range e.Attrs {
		names = append(names, a.Name.Local)
		if !slices.Contains(slices.Concat(rule.must, rule.may), a.Name.Local) {
			t.Errorf("<%s> has %s", e.XMLName.Local, a.Name.Local)
		}
	}
	for _, name := range rule.must {
		if !slices.Contains(names, name) {
			t.Errorf("<%s> has no %s", e.XMLName.Local, name)
		}
	}
	if e.XMLName.Local != "failure" && strings.TrimSpace(e.Text) != "" {
		t.Errorf("<%s> has the text %q", e.XMLName.Local, e.Text)
	}
	for i := range e.Children {
		if !slices.Contains(rule.in, e.Children[i].XMLName.Local) {
			t.Errorf("<%s> is in <%s>", e.Children[i].XMLName.Local, e.XMLName.Local)
		}
		e.Children[i].mustBeJUnit(t)
	}
}

// leaksAsJUnit makes a suite of the reports of two runs, with a leak of an odd test that has a child, and one of no test.
func leaksAsJUnit(t *testing.T, text string) {
	need.Program(t, "jq")
	k := newRecipeDir(t, nil)
	const odd = `a<b> & "c" 'd' ]]> \x01 é`
	scripts := []string{
		`FINI_TEST=$(printf '` + strings.ReplaceAll(odd, "'", `'\''`) + `') sh -c 'sleep 1000 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done; : >ready; read x <fifo; :' &
			mkfifo fifo; until test -e ready; do sleep 0.01; done`,
		`sleep 1000 & until grep -qx sleep /proc/$!/comm; do sleep 0.01; done`,
	}
	for i, script := range scripts {
		report := k.file(fmt.Sprintf("reports/%d.json", i), "", 0o644)
		k.mustLeaveNothing(k.start("fini", "-q", "--linger=0", "--report="+report, "--", "bash", "-c", script), 0)
	}
	k.mustLeaveNothing(k.start("/bin/sh", "-c", text), 0)
	var suite element
	made := readFile(t, filepath.Join(k.dir, "leaks.xml"))
	if err := xml.Unmarshal([]byte(made), &suite); err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	suite.mustBeJUnit(t)
	var names []string
	for _, one := range suite.Children {
		names = append(names, one.attr("name"))
		if len(one.Children) != 1 || !strings.HasPrefix(one.Children[0].attr("message"), "left running: ") || !strings.Contains(one.Children[0].Text, "ended: SIG") {
			t.Errorf("a case of %+v", one)
		}
	}
	want := []string{`a<b> & "c" 'd' ]]> ? é`, "no test is known"}
	if suite.XMLName.Local != "testsuite" || suite.attr("tests") != "2" || suite.attr("failures") != "2" || !slices.Equal(names, want) {
		t.Errorf("the cases are %q, want %q: %s", names, want, made)
	}
}

func goTest(t *testing.T, text string) {
	k := newRecipeDir(t, map[string]string{"server": "setsid sleep 1000 & " + serving})
	k.file("go.mod", "module server\n\ngo "+strings.TrimPrefix(strings.Join(strings.Split(runtime.Version(), ".")[:2], "."), "go")+"\n", 0o644)
	k.file("server_test.go", text, 0o644)
	k.mustLeaveNothing(k.start("go", "test", "-count=1", "."), 0)
	k.file("server_test.go", strings.Replace(text, "	t.Cleanup(", "	panic(\"in the midst\")\n	t.Cleanup(", 1), 0o644)
	l := k.start("go", "test", "-count=1", "-vet=off", ".")
	if got := l.status(); got != 1 {
		t.Errorf("go test ends with %s", strconv.Itoa(got))
	}
	k.mustBeEmpty()
}
