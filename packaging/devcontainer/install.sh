#!/bin/sh
# Puts fini into a dev container. Its tool runs this as root when it builds the image.
set -eu
cd "$(dirname "$0")"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*)
	echo "fini: this feature has no binary for $(uname -m)" >&2
	exit 1
	;;
esac
mkdir -p /usr/local/bin /usr/local/share/fini
cp "fini-linux-$arch" /usr/local/bin/fini
cp fini-sh /usr/local/bin/
cp pid1.sh NOTICES /usr/local/share/fini/
chmod 0755 /usr/local/bin/fini /usr/local/bin/fini-sh
