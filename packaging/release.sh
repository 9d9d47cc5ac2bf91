#!/bin/sh
# usage: release.sh DIST VERSION ARCH...
# Puts packages, images, an SBOM and the sums beside the binaries that `make cross` has
# built into DIST. SOURCE_DATE_EPOCH is the time that everything in them carries.
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

gzip -9n <fini.1 >"$PKG_STAGE/fini.1.gz"
gzip -9n <CHANGELOG.md >"$PKG_STAGE/changelog.gz"
$go build -o "$PKG_STAGE/packaging" ./packaging
GOBIN=$PKG_STAGE $go install "$nfpm"
cp NOTICES "$PKG_STAGE/copyright"

sums=
for arch; do
	PKG_BINARY=$dist/fini-linux-$arch
	PKG_ARCH=$arch
	[ "$arch" != arm ] || PKG_ARCH=arm7
	export PKG_BINARY PKG_ARCH
	for format in deb rpm apk; do
		"$PKG_STAGE/nfpm" package --config packaging/nfpm.yaml --packager "$format" --target "$dist/" \
			>"$PKG_STAGE/log" 2>&1 || { cat "$PKG_STAGE/log" >&2; exit 1; }
	done
	"$PKG_STAGE/packaging" image -name "${IMAGE:-fini}" -version "$version" "$PKG_BINARY" \
		>"$dist/fini_${version}_linux_$arch.oci.tar"
	sums="$sums $PKG_BINARY"
done
# shellcheck disable=SC2086 # a list of files
"$PKG_STAGE/packaging" sbom -version "$version" $sums >"$dist/fini_$version.spdx.json"

cd "$dist"
rm -f SHA256SUMS
sha256sum -- * >"$PKG_STAGE/SHA256SUMS"
mv "$PKG_STAGE/SHA256SUMS" SHA256SUMS
