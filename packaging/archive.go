package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// An archive is a tar in which all that could differ from one run to the next is fixed.
type archive struct {
	w   *tar.Writer
	at  time.Time
	err error
}

func newArchive(w io.Writer, at time.Time) *archive { return &archive{w: tar.NewWriter(w), at: at} }

func (a *archive) add(name string, mode int64, content []byte) {
	if a.err != nil {
		return
	}
	a.err = a.w.WriteHeader(&tar.Header{
		Name: name, Mode: mode, Size: int64(len(content)), ModTime: a.at, Format: tar.FormatUSTAR,
	})
	if a.err == nil {
		_, a.err = a.w.Write(content)
	}
}

func (a *archive) close() error { return errors.Join(a.err, a.w.Close()) }

// A compressed is an archive that goes to a file when it is closed.
type compressed struct {
	*archive
	to  string
	out bytes.Buffer
	zip *gzip.Writer
}

func newCompressed(to string, at time.Time) *compressed {
	c := &compressed{to: to}
	c.zip, _ = gzip.NewWriterLevel(&c.out, gzip.BestCompression) // which is a level
	c.archive = newArchive(c.zip, at)
	return c
}

func (c *compressed) close() error {
	if err := errors.Join(c.archive.close(), c.zip.Close()); err != nil {
		return fmt.Errorf("%s: %w", c.to, err)
	}
	return os.WriteFile(c.to, c.out.Bytes(), 0o644)
}

// archives writes an archive for each architecture: the binary, its man page, licenses and completions.
func archives(dist, version, helpFile string, files []string) error {
	at := builtAt()
	documents := map[string]string{"fini.1": "docs/fini.1", "NOTICES": "internal/NOTICES", "CHANGELOG.md": "CHANGELOG.md"}
	for _, file := range files {
		b := readBinary(file)
		folder := fmt.Sprintf("fini-%s-linux-%s/", version, b.arch)
		out := newCompressed(filepath.Join(dist, fmt.Sprintf("fini_%s_linux_%s.tar.gz", version, b.arch)), at)
		out.add(folder+"fini", 0o755, b.content)
		out.add(folder+"fini-sh", 0o755, shell)
		for _, name := range []string{"fini.1", "NOTICES", "CHANGELOG.md"} {
			text := must(os.ReadFile(documents[name]))
			out.add(folder+name, 0o644, text)
		}
		for _, shell := range shells {
			var text bytes.Buffer
			check(completion(&text, shell, helpFile))
			out.add(folder+"completions/fini."+shell, 0o644, text.Bytes())
		}
		check(out.close())
	}
	return nil
}
