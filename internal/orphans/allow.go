package orphans

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// This file decides which processes are spared.

// maxName is the length in bytes to which the kernel cuts names. See PR_SET_NAME in prctl(2).
const maxName = 15

// Patterns with one of these prefixes are not compared with names.
const (
	cmdlinePrefix = "cmd:" // compared with the command line, joined by spaces
	environPrefix = "env:" // compared with each variable of the environment, as NAME=VALUE
)

// Allow spares processes that match a pattern, and their descendants. A pattern has the syntax of path.Match, but * and
// ? also match a slash. A pattern with a prefix is compared with the command line or the environment, and any other
// with the kernel's name for the process and with the base name of its executable. Look marks these processes, and Kill
// and KillChildren spare them. The main child is never spared.
func (t *Tree) Allow(patterns []string, main int) {
	t.patterns, t.main = patterns, main
}

// ofMemory returns the patterns that are compared with the memory of a process.
func (t *Tree) ofMemory() []string {
	return slices.DeleteFunc(slices.Clone(t.patterns), func(pattern string) bool {
		return !strings.HasPrefix(pattern, cmdlinePrefix) && !strings.HasPrefix(pattern, environPrefix)
	})
}

// markAllowed marks the processes to spare. In found, parents must come before their children.
func (t *Tree) markAllowed(found []Process) {
	if len(t.patterns) == 0 {
		return
	}
	t.askMemory(found)
	spared := map[int]bool{}
	for i := range found {
		p := &found[i]
		p.Allowed = spared[p.Parent] || t.allows(*p)
		p.Unread = p.kept.unread && !p.Allowed
		spared[p.Pid] = p.Allowed
	}
}

// allows reports whether a pattern matches the process itself.
func (t *Tree) allows(p Process) bool {
	if p.Pid == t.main || p.State == '?' || !p.Alive() {
		return false
	}
	exe := ""
	if p.kept.facts != nil {
		exe = p.kept.facts.exe
	}
	return p.kept.matchedAs == p.program() || matches(t.patterns, p.Name, exe)
}

// program returns a value that almost always changes when the process executes another program.
func (p Process) program() string { return p.Name + "\x00" + p.code }

// askMemory makes the reader compare the command line and environment of each process with the patterns. A match is
// valid until the process executes another program. Without a match, the next look asks again, because the process may
// have executed the same program with other arguments. That ends when the process is sent a signal.
func (t *Tree) askMemory(found []Process) {
	patterns := t.ofMemory()
	var pending []Process
	for _, p := range found {
		k := p.kept
		if len(patterns) > 0 && p.Pid != t.main && p.State != '?' && p.Alive() && !k.signaled && k.matchedAs != p.program() {
			k.unread = true
			pending = append(pending, p)
		}
	}
	// The memory of a process can't be read while it is in vfork(2), which may take a tenth of a second on a busy
	// machine. Try again, because a process that was not read is not spared.
	t.persist(8, pending, func(quiet []Process) {
		for n, told := range ask(t, quiet, func(f *files, p Process) memory { return f.memory(p.dir(), patterns) }) {
			k := quiet[n].kept
			if k.unread = !told.read; told.matches {
				k.matchedAs = quiet[n].program()
			}
			k.waitedFor = k.waitedFor || told.refused
		}
	}, func(p Process) bool { return !p.kept.unread || p.kept.waitedFor })
	for _, p := range pending {
		p.kept.waitedFor = p.kept.unread // later looks don't wait for it again
	}
}

// A memory says whether the memory of a process matches some patterns.
type memory struct {
	matches, read bool
	refused       bool // fini may not read it, so waiting would not help
}

// memory compares a process with patterns. Like commandLine, it may hang.
func (f *files) memory(dir string, patterns []string) memory {
	told := memory{read: true}
	for _, of := range []struct{ prefix, file string }{{cmdlinePrefix, "/cmdline"}, {environPrefix, "/environ"}} {
		var texts []string
		for _, pattern := range patterns {
			wanted, is := strings.CutPrefix(pattern, of.prefix)
			if is && texts == nil {
				text, err := f.Whole(dir+of.file, maxEnviron)
				// An exiting process has an empty command line. Its environment can only be read by processes that may
				// trace it.
				told.refused = told.refused || err == unix.EACCES || err == unix.EPERM
				told.read = told.read && err == nil && (len(text) > 0 || of.prefix == environPrefix)
				text = bytes.TrimRight(text, "\x00")
				if of.prefix == cmdlinePrefix {
					text = bytes.ReplaceAll(text, []byte{0}, []byte{' '})
				}
				texts = strings.Split(string(text), "\x00")
			}
			told.matches = told.matches || is && slices.ContainsFunc(texts,
				func(text string) bool { return text != "" && match(wanted, text) })
		}
	}
	return told
}

// matches reports whether a pattern for names matches name or executable.
func matches(patterns []string, name, executable string) bool {
	for _, pattern := range patterns {
		switch {
		case strings.HasPrefix(pattern, cmdlinePrefix), strings.HasPrefix(pattern, environPrefix):
		case match(pattern, name), executable != "" && match(pattern, executable):
			return true
		case len(name) == maxName && strings.HasPrefix(pattern, name) && !strings.ContainsAny(pattern, `*?[\`):
			return true // the kernel has cut the name
		}
	}
	return false
}

// match reports whether a pattern matches text. It hides slashes from path.Match, which treats them specially.
func match(pattern, text string) bool {
	ok, _ := path.Match(noSlash.Replace(pattern), noSlash.Replace(text))
	return ok
}

var noSlash = strings.NewReplacer("/", "\x00")

// executable returns the base name of the file that a process executes, or "" if that is unknown. See proc_pid_exe(5).
func (f *files) executable(dir string) string {
	_, name := path.Split(strings.TrimSuffix(f.Link(dir+"/exe"), " (deleted)"))
	return name
}
