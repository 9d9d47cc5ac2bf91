#!/bin/sh
# usage: reproducible.sh [DIR]
# Makes the release in two copies of this tree, in folders of different names, and compares
# every byte. With DIR, DIR/dist is what was made. REBUILD=-a, the default, compiles the
# second time without the cache; make's own variables (CROSS, IMAGE) are taken from the
# environment. The packages have the version of the release, although the changelog may not have it yet.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
second=a/much/longer/path/to/the/second
for copy in one $second; do
	mkdir -p "$dir/$copy"
	tar -c --exclude=./bin --exclude=./dist --exclude=node_modules . | tar -x -C "$dir/$copy"
done
make -s -C "$dir/one" release TRIAL=released DIST=dist REBUILD=
make -s -C "$dir/$second" release TRIAL=released DIST=dist REBUILD="${REBUILD--a}"
diff -r "$dir/one/dist" "$dir/$second/dist"
echo "the same, byte for byte:"
cat "$dir/one/dist/SHA256SUMS"
if [ $# -gt 0 ]; then
	mkdir -p "$1"
	cp -r "$dir/one/dist" "$1"
fi
