package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// images writes an archive for `docker load` for each architecture, and one for registries with all of them, an OCI layout.
func (r *release) images() {
	whole := r.image
	if !strings.Contains(whole, "/") { // podman would take a short name for one of its own machine's
		whole = "docker.io/library/" + whole
	}
	tag := must(name.NewTag(whole + ":" + strings.ReplaceAll(r.version, "+", "-"))) // a tag has no "+"
	index := mutate.IndexMediaType(mutate.Annotations(empty.Index, r.labels("")).(v1.ImageIndex), types.OCIImageIndex)
	var attestations []mutate.IndexAddendum
	for _, b := range r.binaries {
		platform := v1.Platform{OS: "linux", Architecture: b.arch, Variant: map[string]string{"arm": "v6", "arm64": "v8"}[b.arch]}
		config := v1.ConfigFile{Config: v1.Config{Entrypoint: []string{"/fini"}, Labels: r.labels(setting(b.info, "vcs.revision"))}}
		root := static.NewLayer(r.tar([]file{{"fini", 0o755, b.content}}), types.OCIUncompressedLayer)
		image := r.newImage(config, platform, mutate.Addendum{Layer: root, History: v1.History{CreatedBy: "COPY fini /fini"}})
		to := filepath.Join(r.dist, fmt.Sprintf("fini_%s_linux_%s.docker.tar", r.version, b.arch))
		check(tarball.WriteToFile(to, tag, image))
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
		attestations = append(attestations, r.attest(b, must(image.Digest())))
	}
	index = mutate.AppendManifests(index, attestations...)

	dir := must(os.MkdirTemp("", "layout"))
	check(must(layout.Write(dir, empty.Index)).AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.image + ":" + tag.TagStr(),
		"io.containerd.image.name":          tag.String(),
	})))
	var files []file
	check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, read(must(filepath.Rel(dir, path)), 0o644, path))
		}
		return err
	}))
	check(os.RemoveAll(dir))
	r.write(fmt.Sprintf("fini_%s_linux.oci.tar", r.version), r.tar(files))
}

func (r *release) labels(revision string) map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":         "fini",
		"org.opencontainers.image.description":   summary,
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.licenses":      "MIT",
		"org.opencontainers.image.url":           "https://" + module,
		"org.opencontainers.image.source":        "https://" + module,
		"org.opencontainers.image.documentation": "https://" + module + "/blob/main/README.md",
	}
	if revision != "" {
		labels["org.opencontainers.image.revision"] = revision
	}
	return labels
}

func (r *release) newImage(config v1.ConfigFile, platform v1.Platform, layers ...mutate.Addendum) v1.Image {
	config.Created, config.RootFS.Type = v1.Time{Time: r.at}, "layers"
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for i := range layers {
		layers[i].History.Created = config.Created
	}
	return must(mutate.Append(must(mutate.ConfigFile(image, &config)), layers...))
}

// attest is what BuildKit puts beside an image in its index: the list of parts and the provenance, as layers of an image for
// no platform that points to the image.
func (r *release) attest(b binary, image v1.Hash) mutate.IndexAddendum {
	subject := []object{{"name": "pkg:docker/" + r.image + "@" + r.version, "digest": object{image.Algorithm: image.Hex}}}
	var layers []mutate.Addendum
	for _, s := range []object{
		statement("https://spdx.dev/Document", r.spdx([]binary{b}), subject), statement(slsa, r.built([]binary{b}), subject),
	} {
		layers = append(layers, mutate.Addendum{
			Layer:       static.NewLayer(mustJSON(s), "application/vnd.in-toto+json"),
			Annotations: map[string]string{"in-toto.io/predicate-type": s["predicateType"].(string)},
		})
	}
	unknown := v1.Platform{OS: "unknown", Architecture: "unknown"}
	return mutate.IndexAddendum{Add: r.newImage(v1.ConfigFile{}, unknown, layers...), Descriptor: v1.Descriptor{
		Platform:    &unknown,
		Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": image.String()},
	}}
}

// dockerfile writes stages for a Dockerfile that fetch the binary of the architecture that is built
// for, and check it, where there is no image to copy it from.
func (r *release) dockerfile() {
	text := "# fini " + r.version + ": put these lines before the other stages, and into the last one\n" +
		"#     COPY --from=fini /fini /fini\n"
	for _, b := range r.binaries {
		text += fmt.Sprintf("FROM scratch AS fini-%s\nADD --chmod=0755 --checksum=sha256:%s https://%s/releases/download/v%s/%s /fini\n",
			b.arch, sum(b.content), module, r.version, b.name)
	}
	r.write(fmt.Sprintf("fini_%s.dockerfile", r.version), []byte(text+"FROM fini-${TARGETARCH} AS fini\n"))
}
