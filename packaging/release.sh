#!/bin/sh
# usage: release.sh DIST VERSION ARCH...
# Puts packages of every kind, images, a list of parts, the provenance and the sums beside the
# binaries that `make cross` has built into DIST. SOURCE_DATE_EPOCH is the time that everything
# in them carries. With MINISIGN_KEY the sums are signed.
set -eu
dist=$1 version=$2
shift 2
go=${GO:-go}

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
# rpm is to know what is documentation; the other two want no such type.
sed 's#^    dst: /usr/share/\(man/.*/fini.1.gz\|doc/.*.conf\)$#&\n    type: doc#' packaging/nfpm.yaml >"$PKG_STAGE/rpm.yaml"
cp packaging/nfpm.yaml "$PKG_STAGE/apk.yaml"
$go build -C packaging -o "$PKG_STAGE/packaging" .
$go build -C tools/pinned -o "$PKG_STAGE/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm
cp internal/NOTICES "$PKG_STAGE/copyright"

for arch; do
	PKG_BINARY=$dist/fini-linux-$arch
	PKG_ARCH=$arch
	[ "$arch" != arm ] || PKG_ARCH=arm7
	export PKG_BINARY PKG_ARCH
	for format in deb rpm apk; do
		# Alpine knows no "dev", and no letters behind that.
		PKG_VERSION=$version
		[ "$format" != apk ] || PKG_VERSION=$(echo "$version" | sed "s/-dev\..*/-pre$SOURCE_DATE_EPOCH/")
		"$PKG_STAGE/nfpm" package --config "$PKG_STAGE/$format.yaml" --packager "$format" --target "$dist/" \
			>"$PKG_STAGE/log" 2>&1 || { cat "$PKG_STAGE/log" >&2; exit 1; }
	done
done

# In the place of the names of architectures, the binaries.
for arch; do
	set -- "$@" "$dist/fini-linux-$arch"
	shift
done
"$PKG_STAGE/packaging" release -dist "$dist" -version "$version" -name "${IMAGE:-fini}" "$@"

(cd "$dist" && sha256sum -- *) >"$PKG_STAGE/SHA256SUMS"
mv "$PKG_STAGE/SHA256SUMS" "$dist/SHA256SUMS"
[ -z "${MINISIGN_KEY-}" ] || sh packaging/sign.sh "$dist" "$version"
