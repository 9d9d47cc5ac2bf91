#!/bin/sh
# usage: MINISIGN_KEY=KEY sign.sh DIST VERSION
# Signs DIST/SHA256SUMS. KEY is the name of a file with minisign's secret key, or the text of
# one. A password is asked for at the terminal, or read from standard input.
set -eu
: "${MINISIGN_KEY:?is to name a secret key, or to be one}"
key=$MINISIGN_KEY
unset MINISIGN_KEY # minisign's own need not have it
umask 077
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
if [ ! -e "$key" ]; then
	printf '%s\n' "$key" >"$stage/key"
	key=$stage/key
fi
# Without a time of its own the signature is the same the second time.
minisign -S -s "$key" -c "signature of fini's SHA256SUMS" -t "fini $2" \
	-m "$1/SHA256SUMS" -x "$stage/SHA256SUMS.minisig" >/dev/null
chmod 0644 "$stage/SHA256SUMS.minisig"
mv "$stage/SHA256SUMS.minisig" "$1/SHA256SUMS.minisig"
