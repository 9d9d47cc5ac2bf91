package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are what the tests run, beside the C library and what else they depend on.
var packages = []string{"bash", "busybox-static", "coreutils", "dash", "grep", "iproute2", "mount", "procps", "python3-minimal", "sed", "util-linux"}

// A suite is one of Debian's, for an architecture, and the folder in which apt keeps what it knows of it:
// the machine's own lists, and what is installed, stay as they are.
type suite struct {
	name, arch string
	dir        string
}

// openSuite reads the suite's list of packages. It is found where the machine's own is.
func openSuite(dir, name, arch string) (*suite, error) {
	s := &suite{name, arch, filepath.Join(dir, name+"-"+arch)}
	for _, sub := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(s.dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	out, err := output("", "apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(CODENAME) $(RELEASE) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return nil, err
	}
	var list string
	for line := range strings.Lines(out) {
		// Updates have another name than the release's.
		if w := strings.Fields(line); len(w) == 5 && w[0] == "Debian" && w[1] == "main" && (w[2] == w[3] || !strings.Contains(w[3], "-")) {
			list = fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", w[4], name)
			break
		}
	}
	if list == "" {
		return nil, fmt.Errorf("cannot find Debian's own archive in this machine's lists (apt-get indextargets)")
	}
	for file, text := range map[string]string{"sources.list": list, "status": ""} {
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	_, err = s.apt("update")
	return s, err
}

// apt runs apt-get for the suite in its folder, once more if the network has let it down.
func (s *suite) apt(args ...string) (out string, err error) {
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return "", err
	}
	options := []string{"-q", "-y", "--no-install-recommends"}
	for _, o := range []string{"Dir::State=" + dir, "Dir::State::status=" + dir + "/status", "Dir::Cache=" + dir,
		"Dir::Etc::sourcelist=" + dir + "/sources.list", "Dir::Etc::sourceparts=/dev/null", "Dir::Etc::preferences=/dev/null",
		"Dir::Etc::preferencesparts=/dev/null", "APT::Architecture=" + s.arch, "APT::Architectures::=" + s.arch, "APT::Default-Release=",
		"APT::Sandbox::User=", "APT::Update::Post-Invoke-Success=", "Acquire::Languages=none", "Acquire::Retries=3",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"} {
		options = append(options, "-o", o)
	}
	for range 3 {
		if out, err = output(dir, "apt-get", append(options, args...)...); err == nil {
			return out, nil
		}
	}
	return "", err
}

// unpack downloads packages and those of which they need something, as far as they are wanted, and
// unpacks them into a folder.
func (s *suite) unpack(into string, wanted func(name string) bool, names ...string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	out, err := s.apt(append([]string{"install", "--print-uris"}, names...)...)
	if err != nil {
		return err
	}
	var files, all []string
	for line := range strings.Lines(out) { // 'URI' NAME_VERSION_ARCH.deb SIZE SUM
		if w := strings.Fields(line); len(w) > 2 && strings.HasSuffix(w[1], ".deb") {
			if name, _, _ := strings.Cut(w[1], "_"); wanted(name) {
				all, files = append(all, name), append(files, w[1])
			}
		}
	}
	if _, err := s.apt(append([]string{"download"}, all...)...); err != nil {
		return err
	}
	for _, file := range files {
		// dpkg-deb -x would put folders in the place of the links to those below /usr.
		const line = `dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1" --exclude=./usr/share/doc \
			--exclude=./usr/share/man --exclude=./usr/share/locale --exclude=*.ko --exclude=*.ko.xz`
		if _, err := output("", "sh", "-c", line, filepath.Join(s.dir, file), into); err != nil {
			return err
		}
	}
	return nil
}

func everything(string) bool { return true }

// isKernel reports whether a package has a kernel in it.
func isKernel(name string) bool {
	rest, image := strings.CutPrefix(name, "linux-image-")
	return image && rest[0] >= '0' && rest[0] <= '9' || strings.HasPrefix(name, "linux-binary-")
}

// output runs a program, and has what it said in the error.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot run %s: %w\n%s", strings.Join(cmd.Args, " "), err, said.String())
	}
	return string(out), nil
}
