package reaper

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// This file finds out why a program can't be executed. The kernel returns the same error for many reasons, so the file
// itself is read, but only after a failure.

// beginning returns the beginning of a file, including the part that the kernel looks at. It returns "" if nothing can
// be read. It does not block on a FIFO.
func beginning(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	text := make([]byte, 4096)
	n, _ := unix.Pread(fd, text, 0)
	return string(text[:max(n, 0)])
}

// notFound returns the reason why execve(2) has failed with ENOENT although the file exists.
func notFound(path string) error {
	text := beginning(path)
	interpreter := interpreterOf(text)
	switch {
	case strings.HasSuffix(interpreter, "\r"):
		return fmt.Errorf("its interpreter was not found: %q is %s and a Windows line end; "+
			`sed -i 's/\r$//' %[3]s removes those`,
			interpreter, strings.TrimSuffix(interpreter, "\r"), path)
	case interpreter != "":
		return fmt.Errorf("its interpreter was not found: %s", quoted(interpreter))
	}
	if loader := elfFile(text).loader(); loader != "" {
		return fmt.Errorf("its interpreter was not found: %s; it is linked for another C library than there is here",
			quoted(loader))
	}
	return errors.New("its interpreter was not found")
}

// interpreterOf returns the interpreter in the "#!" line of a script, or "". Like the kernel, it stops at a blank.
func interpreterOf(text string) string {
	line, isScript := strings.CutPrefix(text, "#!")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == 0 })
	if !isScript || len(words) == 0 {
		return ""
	}
	return words[0]
}

// These values are from elf(5). Package debug/elf would make the binary 40 kB larger.
const (
	classAt, class64  = 4, 2
	dataAt, bigEndian = 5, 2
	machineAt         = 18
	ptInterp          = 3
	elfMagic          = "\x7fELF"
	elfHeader         = 64 // size of the larger header
)

// foreign returns the reason why the kernel rejects a binary, or nil if the file may be a script. The first line of a
// script does not contain a zero byte (see sh(1p)).
func foreign(text string) error {
	line, _, _ := strings.Cut(text, "\n")
	switch {
	case strings.HasPrefix(text, elfMagic) && len(text) >= elfHeader:
		is, this := elfFile(text).machine(), "this is "+runtime.GOARCH
		if is == runtime.GOARCH {
			this = "as this is, but the kernel does not take it"
		}
		return fmt.Errorf("%w: it is for %s, %s", unix.ENOEXEC, is, this)
	case strings.Contains(line, "\x00"):
		return fmt.Errorf("%w: it is a binary, but not for Linux", unix.ENOEXEC)
	}
	return nil
}

// An elfFile is the beginning of an ELF file.
type elfFile string

// number returns the number of size bytes at an offset, in the byte order of the file.
func (f elfFile) number(at, size int) (n int) {
	for i := range size {
		from := at + size - 1 - i
		if f[dataAt] == bigEndian {
			from = at + i
		}
		n = n<<8 | int(f[from])
	}
	return n
}

// machine returns the architecture that the file is for, as a GOARCH. See e_machine in elf(5).
func (f elfFile) machine() string {
	number := f.number(machineAt, 2)
	names := map[int]string{3: "386", 8: "mips", 21: "ppc64", 22: "s390x", 40: "arm", 62: "amd64", 183: "arm64",
		243: "riscv64", 258: "loong64"}
	return cmp.Or(names[number], fmt.Sprintf("another machine, number %d", number))
}

// loader returns the path of the dynamic loader that the file names, or "".
func (f elfFile) loader() string {
	if !strings.HasPrefix(string(f), elfMagic) || len(f) < elfHeader || f[classAt] != class64 {
		return ""
	}
	at, size, count := f.number(32, 8), f.number(54, 2), f.number(56, 2)
	for ; count > 0 && at >= 0 && at <= len(f)-56; at, count = at+size, count-1 {
		if f.number(at, 4) != ptInterp {
			continue
		}
		from, length := f.number(at+8, 8), f.number(at+32, 8)
		if from >= 0 && from <= len(f) && length >= 0 && length <= len(f)-from {
			return strings.TrimRight(string(f[from:from+length]), "\x00")
		}
	}
	return ""
}

// refused returns the reason why execve(2) has failed with EACCES.
func refused(path string, err error) error {
	var st unix.Stat_t
	var fs unix.Statfs_t
	switch {
	case unix.Stat(path, &st) != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
	case st.Mode&0o111 == 0:
		return fmt.Errorf("%w: it is not executable; chmod +x %s makes it so", err, path)
	case unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0:
		return fmt.Errorf("%w: it is on a file system that is mounted noexec", err)
	default:
		if name := interpreterOf(beginning(path)); name != "" && unix.Access(name, unix.X_OK) != nil {
			return fmt.Errorf("%w: its interpreter %s can't be executed", err, quoted(name))
		}
	}
	return err
}
