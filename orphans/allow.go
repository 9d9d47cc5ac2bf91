package orphans

import (
	"path"
	"strings"
)

// This file knows by their names the processes that are to be left alone.

// allowed says which processes are left alone.
type allowed struct {
	patterns []string
	main     int // the main child, which is none of them
}

// maxName is what the kernel keeps of a name, in bytes. See PR_SET_NAME in prctl(2).
const maxName = 15

// Allow leaves a process alone, with all that descends from it, if a pattern matches the name
// that the kernel keeps of it or the base name of its executable: Look marks it, Kill and
// KillChildren spare it. Patterns are those of path.Match. The process main is never spared:
// it is the command, whatever it is called.
func (t *Tree) Allow(patterns []string, main int) {
	t.allowed = allowed{patterns, main}
}

// markAllowed marks those that are left alone. Parents stand before their children.
func (t *Tree) markAllowed(found []Process) {
	if len(t.allowed.patterns) == 0 {
		return
	}
	spared := map[int]bool{}
	for i := range found {
		p := &found[i]
		p.Allowed = spared[p.Parent] || t.allows(*p)
		spared[p.Pid] = p.Allowed
	}
}

// allows reports whether a process is left alone by its own name.
func (t *Tree) allows(p Process) bool {
	if p.Pid == t.allowed.main || p.State == '?' || !p.Alive() {
		return false
	}
	exe := ""
	if k := p.kept; k.facts != nil {
		exe = k.facts.exe
	}
	return matches(t.allowed.patterns, p.Name, exe)
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
			return true // the kernel has cut it
		}
	}
	return false
}

// executable is the base name of the file that a process executes, "" if that can't be told.
// See proc_pid_exe(5).
func (f *files) executable(dir string) string {
	link := f.link(dir + "/exe")
	if link == "" {
		return ""
	}
	return path.Base(strings.TrimSuffix(link, " (deleted)"))
}
