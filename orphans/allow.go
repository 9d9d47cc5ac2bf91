package orphans

import (
	"path"
	"strings"
)

// This file decides by name which processes fini leaves alone.

// maxName is the length to which the kernel cuts a name, in bytes. See PR_SET_NAME in prctl(2).
const maxName = 15

// Allow leaves a process and its descendants alone, if a pattern matches the name that the kernel
// keeps for the process or the base name of its executable: Look marks such processes, Kill and
// KillChildren spare them. path.Match defines the patterns. The process main is never spared:
// main is the main child, whatever its name.
func (t *Tree) Allow(patterns []string, main int) {
	t.patterns, t.main = patterns, main
}

// markAllowed marks the processes to leave alone. In found, parents stand before their children.
func (t *Tree) markAllowed(found []Process) {
	if len(t.patterns) == 0 {
		return
	}
	spared := map[int]bool{}
	for i := range found {
		p := &found[i]
		p.Allowed = spared[p.Parent] || t.allows(*p)
		spared[p.Pid] = p.Allowed
	}
}

// allows reports whether the process's own name makes fini leave it alone.
func (t *Tree) allows(p Process) bool {
	if p.Pid == t.main || p.State == '?' || !p.Alive() {
		return false
	}
	exe := ""
	if p.kept.facts != nil {
		exe = p.kept.facts.exe
	}
	return matches(t.patterns, p.Name, exe)
}

// matches reports whether a pattern matches one of the two names.
func matches(patterns []string, name, executable string) bool {
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
		if ok, _ := path.Match(pattern, executable); ok && executable != "" {
			return true
		}
		if len(name) == maxName && strings.HasPrefix(pattern, name) && !strings.ContainsAny(pattern, `*?[\`) {
			return true // the kernel has cut the name
		}
	}
	return false
}

// executable is the base name of the file that a process executes, "" if it is unknown.
// See proc_pid_exe(5).
func (f *files) executable(dir string) string {
	_, name := path.Split(strings.TrimSuffix(f.link(dir+"/exe"), " (deleted)"))
	return name
}
