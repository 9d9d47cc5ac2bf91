package orphans

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// This file decides which processes fini leaves alone.

// maxName is the length to which the kernel cuts a name, in bytes. See PR_SET_NAME in prctl(2).
const maxName = 15

// A pattern that begins with one of these isn't compared with a name.
const (
	lineOf     = "cmd:" // the command line, its words joined by spaces
	variableOf = "env:" // one variable of the environment, as NAME=VALUE
)

// Allow leaves a process and its descendants alone if a pattern matches it: path.Match defines the patterns, but here *
// and ? match a slash too. A pattern is compared with the name that the kernel keeps for the process and with the base
// name of its executable or, if it begins with one of the prefixes above, with what the prefix says. Look marks such
// processes, and Kill and KillChildren spare them, except main, the main child.
func (t *Tree) Allow(patterns []string, main int) {
	t.patterns, t.main = patterns, main
}

// ofMemory are the patterns that only the memory of a process can match.
func (t *Tree) ofMemory() []string {
	return slices.DeleteFunc(slices.Clone(t.patterns), func(pattern string) bool {
		return !strings.HasPrefix(pattern, lineOf) && !strings.HasPrefix(pattern, variableOf)
	})
}

// markAllowed marks the processes to leave alone. In found, parents stand before their children.
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

// allows reports whether the process itself makes fini leave it alone.
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

// program changes when the process executes another program, nearly always.
func (p Process) program() string { return p.Name + "\x00" + p.code }

// askMemory has the reader compare the command line and the environment of each process with the patterns, and keeps
// what matched until the process executes another program. A process that has not matched is asked again in the next
// look, because it may execute the same program with other arguments, until it has been sent a signal.
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
	// A busy machine may leave a process in vfork(2) for a tenth of a second, and one that is not read is stopped.
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
		p.kept.waitedFor = p.kept.unread // in later looks fini does not wait for it again
	}
}

// A memory is the result of comparing the memory of a process with some patterns.
type memory struct {
	matches, read bool
	refused       bool // fini may not read it, so no wait would help
}

// memory compares a process with patterns: see commandLine for what may hold up the read.
func (f *files) memory(dir string, patterns []string) memory {
	told := memory{read: true}
	for _, of := range []struct{ prefix, file string }{{lineOf, "/cmdline"}, {variableOf, "/environ"}} {
		var texts []string
		for _, pattern := range patterns {
			wanted, is := strings.CutPrefix(pattern, of.prefix)
			if is && texts == nil {
				text, err := f.Whole(dir+of.file, maxEnviron)
				// A process that is exiting no longer shows a command line, and shows its environment only to processes
				// that may trace it.
				told.refused = told.refused || err == unix.EACCES || err == unix.EPERM
				told.read = told.read && err == nil && (len(text) > 0 || of.prefix == variableOf)
				text = bytes.TrimRight(text, "\x00")
				if of.prefix == lineOf {
					text = bytes.ReplaceAll(text, []byte{0}, []byte{' '})
				}
				texts = strings.Split(string(text), "\x00")
			}
			told.matches = told.matches || is && slices.ContainsFunc(texts, func(text string) bool { return text != "" && match(wanted, text) })
		}
	}
	return told
}

// matches reports whether a pattern of names matches one of the two names.
func matches(patterns []string, name, executable string) bool {
	for _, pattern := range patterns {
		switch {
		case strings.HasPrefix(pattern, lineOf), strings.HasPrefix(pattern, variableOf):
		case match(pattern, name), executable != "" && match(pattern, executable):
			return true
		case len(name) == maxName && strings.HasPrefix(pattern, name) && !strings.ContainsAny(pattern, `*?[\`):
			return true // the kernel has cut the name
		}
	}
	return false
}

// match reports whether a pattern matches a text. To path.Match only a slash is special, so it gets to see none.
func match(pattern, text string) bool {
	ok, _ := path.Match(noSlash.Replace(pattern), noSlash.Replace(text))
	return ok
}

var noSlash = strings.NewReplacer("/", "\x00")

// executable is the base name of the file that a process executes, "" if it is unknown.
// See proc_pid_exe(5).
func (f *files) executable(dir string) string {
	_, name := path.Split(strings.TrimSuffix(f.Link(dir+"/exe"), " (deleted)"))
	return name
}
