#!/bin/sh
# usage: release.sh DIST VERSION ARCH...
# Puts packages of every kind, images, a list of parts, the provenance and the sums beside the
# binaries that `make cross` has built into DIST. SOURCE_DATE_EPOCH is the time that everything
# in them carries. With MINISIGN_KEY the sums are signed.
set -eu
dist=$1 version=$2
shift 2
go=${GO:-go}
# Version 2.44 and later can be had from no module proxy that does not serve all of
# their dependencies.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4

PKG_VERSION=$version
PKG_STAGE=$(mktemp -d)
trap 'rm -rf "$PKG_STAGE"' EXIT
export SOURCE_DATE_EPOCH PKG_VERSION PKG_STAGE

gzip -9n <docs/fini.1 >"$PKG_STAGE/fini.1.gz"
gzip -9n <CHANGELOG.md >"$PKG_STAGE/CHANGELOG.md.gz"
# Debian wants its own kind of changelog.
printf 'fini (%s) unstable; urgency=medium\n\n  * CHANGELOG.md.gz says what is new.\n\n -- %s  %s\n' "$(echo "$version" | sed 's/-/~/')" \
	"$(sed -n 's/^maintainer: //p' packaging/nfpm.yaml)" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" |
	gzip -9n >"$PKG_STAGE/changelog.gz"
# nfpm would write a field of it that Debian does not know.
sed '/^license:/d' packaging/nfpm.yaml >"$PKG_STAGE/deb.yaml"
$go build -C packaging -o "$PKG_STAGE/packaging" .
GOBIN=$PKG_STAGE $go install "$nfpm"
cp internal/NOTICES "$PKG_STAGE/copyright"
bin/fini --help >"$PKG_STAGE/help"
for shell in bash zsh fish; do
	"$PKG_STAGE/packaging" completion -help-text "$PKG_STAGE/help" "$shell" >"$PKG_STAGE/fini.$shell"
done

for arch; do
	PKG_BINARY=$dist/fini-linux-$arch
	PKG_ARCH=$arch
	[ "$arch" != arm ] || PKG_ARCH=arm7
	export PKG_BINARY PKG_ARCH
	for format in deb rpm apk; do
		config=$PKG_STAGE/deb.yaml
		[ "$format" = deb ] || config=packaging/nfpm.yaml
		# Alpine knows no "dev", and no letters behind that.
		PKG_VERSION=$version
		[ "$format" != apk ] || PKG_VERSION=$(echo "$version" | sed "s/-dev\..*/-pre$SOURCE_DATE_EPOCH/")
		"$PKG_STAGE/nfpm" package --config "$config" --packager "$format" --target "$dist/" \
			>"$PKG_STAGE/log" 2>&1 || { cat "$PKG_STAGE/log" >&2; exit 1; }
	done
	"$PKG_STAGE/packaging" image -name "${IMAGE:-fini}" -version "$version" "$PKG_BINARY" \
		>"$dist/fini_${version}_linux_$arch.oci.tar"
done

# In the place of the names of architectures, the binaries.
for arch; do
	set -- "$@" "$dist/fini-linux-$arch"
	shift
done
"$PKG_STAGE/packaging" archive -dist "$dist" -version "$version" -help-text "$PKG_STAGE/help" "$@"
"$PKG_STAGE/packaging" index -name "${IMAGE:-fini}" -version "$version" "$@" >"$dist/fini_${version}_linux.oci.tar"
"$PKG_STAGE/packaging" dockerfile -version "$version" "$@" >"$dist/fini_$version.dockerfile"
"$PKG_STAGE/packaging" npm -dist "$dist" -version "$version" -help-text "$PKG_STAGE/help" "$@"
"$PKG_STAGE/packaging" wheel -dist "$dist" -version "$version" "$@"
"$PKG_STAGE/packaging" sbom -version "$version" "$@" >"$dist/fini_$version.spdx.json"
"$PKG_STAGE/packaging" provenance -version "$version" "$dist"/* >"$PKG_STAGE/provenance.json"
mv "$PKG_STAGE/provenance.json" "$dist/provenance.json"

(cd "$dist" && sha256sum -- *) >"$PKG_STAGE/SHA256SUMS"
mv "$PKG_STAGE/SHA256SUMS" "$dist/SHA256SUMS"
[ -z "${MINISIGN_KEY-}" ] || sh packaging/sign.sh "$dist" "$version"
