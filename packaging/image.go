package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"time"
)

// A blob is a file of an image that is named by its sum.
type blob struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
	content   []byte
}

func newBlob(mediaType string, content []byte) blob {
	return blob{mediaType, fmt.Sprintf("sha256:%x", sha256.Sum256(content)), len(content), content}
}

func (b blob) path() string { return "blobs/sha256/" + strings.TrimPrefix(b.Digest, "sha256:") }

type object = map[string]any

// A container is an image that holds /fini and nothing else.
type container struct {
	layer, config, manifest blob
	platform                object
}

func newContainer(version string, at time.Time, b binary) container {
	var root bytes.Buffer
	files := newArchive(&root, at)
	files.add("fini", 0o755, b.content)
	check(files.close())
	labels := map[string]string{
		"org.opencontainers.image.title":    "fini",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.licenses": "MIT",
		"org.opencontainers.image.source":   "https://" + module,
	}
	if revision := setting(b.info, "vcs.revision"); revision != "" {
		labels["org.opencontainers.image.revision"] = revision
	}
	c := container{
		layer:    newBlob("application/vnd.oci.image.layer.v1.tar", root.Bytes()),
		platform: object{"os": "linux", "architecture": b.arch},
	}
	if variant := map[string]string{"arm": "v7", "arm64": "v8"}[b.arch]; variant != "" {
		c.platform["variant"] = variant
	}
	created := at.Format(time.RFC3339)
	described := object{
		"created": created,
		"config":  object{"Entrypoint": []string{"/fini"}, "Labels": labels},
		"rootfs":  object{"type": "layers", "diff_ids": []string{c.layer.Digest}},
		"history": []object{{"created": created, "created_by": "COPY fini /fini"}},
	}
	maps.Copy(described, c.platform)
	c.config = newBlob("application/vnd.oci.image.config.v1+json", mustJSON(described))
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	c.manifest = newBlob(manifestType, mustJSON(object{
		"schemaVersion": 2, "mediaType": manifestType, "config": c.config, "layers": []blob{c.layer},
	}))
	return c
}

// entry is what an index says of the image.
func (c container) entry() object {
	return object{
		"mediaType": c.manifest.MediaType, "digest": c.manifest.Digest, "size": c.manifest.Size, "platform": c.platform,
	}
}

// image writes an archive of the image for one architecture. It is an OCI layout and has the
// manifest.json by which `docker load` finds its way in it.
func image(w io.Writer, name, version, file string) error {
	at := builtAt()
	b := readBinary(file)
	c := newContainer(version, at, b)
	entry := c.entry()
	entry["annotations"] = named(name, version)
	out := newLayout(w, at, entry)
	out.add("manifest.json", 0o644, mustJSON([]object{{
		"Config": c.config.path(), "RepoTags": []string{reference(name, version)}, "Layers": []string{c.layer.path()},
	}}))
	for _, b := range []blob{c.layer, c.config, c.manifest} {
		out.add(b.path(), 0o644, b.content)
	}
	return out.close()
}

// index writes an archive of the image for all architectures, an OCI layout with one index.
func index(w io.Writer, name, version string, files []string) error {
	at := builtAt()
	var blobs []blob
	var entries []object
	for _, file := range files {
		b := readBinary(file)
		c := newContainer(version, at, b)
		blobs = append(blobs, c.layer, c.config, c.manifest)
		entries = append(entries, c.entry())
	}
	const indexType = "application/vnd.oci.image.index.v1+json"
	all := newBlob(indexType, mustJSON(object{"schemaVersion": 2, "mediaType": indexType, "manifests": entries}))
	out := newLayout(w, at, object{
		"mediaType": indexType, "digest": all.Digest, "size": all.Size,
		"annotations": named(name, version),
	})
	for _, b := range append(blobs, all) {
		out.add(b.path(), 0o644, b.content)
	}
	return out.close()
}

// dockerfile writes stages for a Dockerfile that fetch the binary of the architecture that is built
// for, and check it, where there is no image to copy it from.
func dockerfile(w io.Writer, version string, files []string) error {
	var b strings.Builder
	b.WriteString("# fini " + version + ": put these lines before the other stages, and into the last one\n" +
		"#     COPY --from=fini /fini /fini\n")
	for _, file := range files {
		f := readBinary(file)
		fmt.Fprintf(&b, "FROM scratch AS fini-%s\nADD --chmod=0755 --checksum=sha256:%x https://%s/releases/download/v%s/%s /fini\n",
			f.arch, sha256.Sum256(f.content), module, version, filepath.Base(file))
	}
	b.WriteString("FROM fini-${TARGETARCH} AS fini\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// newLayout begins an archive of an OCI layout with what it holds.
func newLayout(w io.Writer, at time.Time, entry object) *archive {
	out := newArchive(w, at)
	out.add("oci-layout", 0o644, mustJSON(object{"imageLayoutVersion": "1.0.0"}))
	out.add("index.json", 0o644, mustJSON(object{"schemaVersion": 2, "manifests": []object{entry}}))
	return out
}

// reference is what an image is called where it has been loaded.
func reference(name, version string) string { return name + ":" + tag(version) }

// named says so in an index: podman reads the one, and Docker with containerd's store the other, which
// wants it with the registry that a short name stands for.
func named(name, version string) object {
	whole := reference(name, version)
	if !strings.Contains(name, "/") {
		whole = "docker.io/library/" + whole
	}
	return object{
		"org.opencontainers.image.ref.name": reference(name, version),
		"io.containerd.image.name":          whole,
	}
}

// tag is a version as an image's tag, which has no "+".
func tag(version string) string { return strings.ReplaceAll(version, "+", "-") }
