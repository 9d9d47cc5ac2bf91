package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/containers"
	"github.com/seed-126c5d8a/fini/e2e/rig/recipes"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// The image has one name, whoever loads it from either archive, and the man page's COPY --from finds it by that. It says of
// itself what registries show.
func releaseImage(t *testing.T, r release) {
	containers.NeedDocker(t)
	need.Program(t, "runc")
	need.Root(t, "for podman")
	docker := &containers.Engine{Client: []string{"docker"}}
	podman := &containers.Engine{Client: containers.PodmanClient(t), Env: containers.PodmanConfig(t)}
	index, archive := r.file(t, "fini_*_linux.oci.tar"), r.file(t, "fini_*_linux_"+runtime.GOARCH+".docker.tar")
	name, dir := r.image+":"+r.version, t.TempDir()
	copies := strings.Replace(recipes.BlockWith(t, "../docs/fini.1", "COPY "), "--from=fini", "--from="+name, 1)
	rig.Put(t, filepath.Join(dir, "Dockerfile"), "FROM scratch\n"+copies, 0o644)
	for _, tt := range []struct {
		name   string
		engine *containers.Engine
		file   string
	}{{"docker", docker, archive}, {"podman", podman, archive}, {"podman, index", podman, index}} {
		t.Run(tt.name, func(t *testing.T) {
			if out := tt.engine.Must(t, "load", "-q", "-i", tt.file); !strings.HasSuffix(out, name) {
				t.Errorf("load says %q", out)
			}
			defer tt.engine.Must(t, "rmi", name)
			labels := tt.engine.Must(t, "inspect", "-f", `{{range $k, $v := .Config.Labels}}{{$k}}={{$v}}{{"\n"}}{{end}}`, name)
			for _, key := range []string{"title=fini", "description=Runs", "version=" + r.version, "licenses=MIT", "url=https:", "source=https:", "documentation=https:"} {
				if !strings.Contains(labels, "org.opencontainers.image."+key) {
					t.Errorf("no %s among\n%s", key, labels)
				}
			}
			copied := tt.engine.Build(t, dir)
			if out := tt.engine.Must(t, "run", "--rm", "--network", "none", copied, "/fini", "--version"); !strings.HasPrefix(out,
				"fini version "+r.version+" ") {
				t.Errorf("its fini is %q", out)
			}
		})
	}
}

// releaseDevContainer builds a dev container with the feature by the tool for that. fini is its PID 1, the tool's shell runs
// as without it, and docker stop is no timeout.
func releaseDevContainer(t *testing.T, r release) {
	containers.NeedDocker(t)
	docker := &containers.Engine{Client: []string{"docker"}}
	cli := need.Module(t, "@devcontainers/cli/devcontainer.js")
	base, dir := containers.Base(t), t.TempDir()
	feature := filepath.Join(dir, ".devcontainer/fini")
	rig.Run(t, "mkdir", "-p", feature)
	rig.Run(t, "tar", "-xzf", r.file(t, "devcontainer-feature-fini.tgz"), "-C", feature)
	const features = `"features": {"./fini": {}}`
	if !strings.Contains(rig.ReadFile(t, "../docs/images.md"), features) {
		t.Errorf("docs/images.md does not say %s", features)
	}
	rig.Put(t, filepath.Join(dir, ".devcontainer/Dockerfile"),
		"FROM "+base+"\nRUN mkdir -p /etc /root && echo root:x:0:0::/root:/bin/sh >/etc/passwd && echo root:x:0: >/etc/group\n", 0o644)
	rig.Put(t, filepath.Join(dir, ".devcontainer/devcontainer.json"), `{"build": {"dockerfile": "Dockerfile"}, `+features+`}`, 0o644)
	client := rig.Put(t, filepath.Join(dir, "docker"), "#!/bin/sh\n"+
		`[ "$1" != build ] || { shift; set -- build `+containers.NoCache+` "$@"; }; exec docker "$@"`, 0o755)
	cmd := exec.Command("env", append(newNode(t), cli, "up", "--workspace-folder", dir, "--buildkit", "never", "--docker-path", client)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+t.TempDir())
	var log strings.Builder
	cmd.Stderr = &log
	said, err := cmd.Output()
	var up struct{ Outcome, ContainerID string }
	rig.MustParse(t, said, &up)
	if err != nil || up.Outcome != "success" {
		t.Fatalf("%v: %s\n%s", err, said, log.String())
	}
	image := containers.Docker(t, "inspect", "-f", "{{.Config.Image}}", up.ContainerID)
	t.Cleanup(func() {
		containers.Docker(t, "rm", "-f", up.ContainerID)
		docker.RemoveBuilt(t, log.String(), image, "dev_container_feature_content_temp")
	})
	words := strings.Split(containers.Docker(t, "exec", up.ContainerID, "cat", "/proc/1/cmdline"), "\x00")
	if len(words) < 5 || words[0] != "/usr/local/bin/fini" || words[2] != "/bin/sh" ||
		!strings.Contains(words[4], "exec \"$@\"\nwhile sleep") {
		t.Errorf("PID 1 is %q", words)
	}
	if out := containers.Docker(t, "exec", up.ContainerID, "fini", "--version"); !strings.HasPrefix(out, "fini version "+r.version+" ") {
		t.Errorf("fini is %q", out)
	}
	containers.Docker(t, "stop", "-t", "1000", up.ContainerID)
	if status := containers.Docker(t, "inspect", "-f", "{{.State.ExitCode}}", up.ContainerID); status != "0" {
		t.Errorf("status %s: another than that of the tool's shell", status)
	}
}

// releaseEmulated runs the binaries for other machines. A kernel without IA32 emulation executes none for 386, which has no
// entry, by which it could become a pair. qemu starts the command natively. It knows neither pidfds at a fork nor subreapers,
// and a second fini would need binfmt_misc, so there are a single process without leftovers, and PID 1, to which orphans come
// anyway. Node calls an ARMv6 arm as it does an ARMv7, so the binary for arm has to run there.
func releaseEmulated(t *testing.T, r release) {
	need.That(t, runtime.GOARCH == "amd64", "an amd64 machine")
	need.Kernel(t, exec.Command(r.binary("386"), "--version").Run() == nil, "IA32 emulation")
	for _, tt := range []struct {
		arch   string
		argv   []string
		places []rig.Place // with leftovers
	}{
		{"386", nil, []rig.Place{rig.Alone, rig.PID1}},
		{"arm64", []string{need.Program(t, "qemu-aarch64-static")}, []rig.Place{rig.PID1}},
		{"arm", []string{need.Program(t, "qemu-arm-static"), "-cpu", "arm1176"}, nil},
	} {
		fini := append(tt.argv, r.binary(tt.arch))
		start := func(t *testing.T, args ...string) *rig.Life {
			return rig.StartCmd(t, rig.CommandOf(append(fini[:len(fini):len(fini)], args...)))
		}
		t.Run(tt.arch+"/status", func(t *testing.T) {
			for script, status := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137} {
				l := start(t, "--no-shield", "--", "sh", "-c", "echo out; "+script)
				if out := l.Out.Whole(); out != "out\n" {
					t.Errorf("stdout %q", out)
				}
				l.MustEnd(status)
			}
		})
		t.Run(tt.arch+"/version", func(t *testing.T) {
			start(t, "--version").Out.Want("fini version " + r.version + " - git.")
		})
		t.Run(tt.arch+"/signal", func(t *testing.T) {
			l := start(t, "--no-shield", "--", "sh", "-c", `trap "echo got TERM; exit 9" TERM; (echo ready; exec sleep 1000) & wait`)
			l.Out.Want("ready")
			l.Signal(syscall.SIGTERM)
			l.Out.Want("got TERM")
			l.Out.Whole()
			l.MustEnd(9)
		})
		for _, p := range tt.places {
			t.Run(tt.arch+"/"+p.Name, func(t *testing.T) { mustLiveWell(t, p, fini) })
		}
	}
}

// mustLiveWell runs another fini through a life: its command leaves many orphans, which only have to be reaped, and a process
// in a session of its own, which holds stdout.
func mustLiveWell(t *testing.T, p rig.Place, fini []string) {
	t.Helper()
	if p.PID1 {
		rig.NeedPidNamespace(t)
	}
	h := rig.NewCgroup(t)
	cmd := h.Around(p, nil, "--", "sh", "-c", containers.Make200Orphans+`
		setsid sh -c 'trap "echo escapee got TERM; exit" TERM; echo escapee ready; while :; do sleep 1000 & wait; done' &
		read go
		exit 7`)
	at := slices.Index(cmd.Args, rig.Fini)
	cmd.Args = slices.Replace(cmd.Args, at, at+1, fini...)
	l := rig.StartCmd(t, cmd)
	l.Out.Want("escapee ready")
	rig.Until(t, "no zombie in the cgroup", func() bool {
		// Version 1 of cgroups lists zombies, and so does version 2, but for threads.
		text, _ := os.ReadFile(filepath.Join(h.Dir, "cgroup.procs"))
		return !slices.ContainsFunc(strings.Fields(string(text)), func(pid string) bool {
			return procfs.ReadStat("/proc/"+pid+"/stat").State() == 'Z'
		})
	})
	rig.Write(t, l, "go\n")
	rig.WantOnce(t, l.Out.Whole(), "escapee got TERM") // to EOF
	h.MustLeaveNothing(t, l, 7)
	l.Err.Want("fini: stopping leftover ")
}
