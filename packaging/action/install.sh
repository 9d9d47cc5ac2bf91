#!/bin/sh
# Puts the fini of a release on the PATH of a GitHub job's next steps, if its sum is right. The
# action sets the variables from RELEASE_VERSION to GH_TOKEN in action.yml, the runner the rest.
set -eu

fail() {
	echo "::error title=fini::$1"
	exit 1
}

[ "$(uname -s)" = Linux ] || fail "fini needs Linux"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
armv6* | armv7* | armv8l) arch=arm ;;
i?86) arch=386 ;;
ppc64le | s390x | riscv64) arch=$(uname -m) ;;
*) fail "there is no fini for $(uname -m)" ;;
esac
# A tag, a branch or a commit: the changelog beside the action says which release came last.
changes=${0%/*}/../../CHANGELOG.md
version=${RELEASE_VERSION:-$(sed -n 's/^## \[\([0-9.]*\)\] - .*/\1/p' "$changes" | head -n 1)}
version=${version#v}
case $version in
[0-9]*.[0-9]*.[0-9]*) ;;
*) fail "\"$version\" is no version of fini" ;;
esac
url=${RELEASE_URL:-https://github.com/seed-126c5d8a/fini/releases/download/v$version}
name=fini-linux-$arch
dir=$(mktemp -d "$RUNNER_TEMP/fini.XXXXXX")
cd "$dir"

get() {
	if command -v curl >/dev/null; then
		curl --fail --silent --show-error --location --retry 3 --output "$1" "${url%/}/$1"
	else # as in Alpine's containers
		wget -q -O "$1" "${url%/}/$1"
	fi || fail "cannot get $1 from $url"
}

get SHA256SUMS
if [ -n "${MINISIGN_PUBLIC_KEY-}" ]; then
	command -v minisign >/dev/null || fail "minisign-key is given, and minisign is not installed"
	get SHA256SUMS.minisig
	# An old release is signed as well: the signature says which one it is.
	said=$(minisign -V -Q -P "$MINISIGN_PUBLIC_KEY" -m SHA256SUMS) || fail "SHA256SUMS is not signed with this key"
	[ "$said" = "fini $version" ] || fail "what is signed is $said, and not fini $version"
fi
get "$name"
awk -v name="$name" '$2 == name { print; n++ } END { exit n != 1 }' SHA256SUMS >sum || fail "SHA256SUMS does not name $name"
sha256sum -c sum >/dev/null || fail "$name is not what SHA256SUMS says"

if [ "${ATTESTATION-}" = true ]; then
	gh attestation verify "$name" --repo seed-126c5d8a/fini --signer-workflow seed-126c5d8a/fini/.github/workflows/release.yml \
		--source-ref "refs/tags/v$version" || fail "$name has no attestation as fini $version"
fi
mkdir bin
mv "$name" bin/fini
chmod 0755 bin/fini
rm sum SHA256SUMS*
bin/fini --version
echo "$dir/bin" >>"$GITHUB_PATH"
echo "path=$dir/bin/fini" >>"$GITHUB_OUTPUT"
