#!/bin/sh
# Publishes the npm packages of a release: publish-npm.sh DIR [FLAG OF npm publish]...
set -eu
dir=$1
shift
# Those with a binary first: without them the main package has none.
for package in "$dir"/fini-init-linux-*.tgz "$dir"/fini-init-[0-9]*.tgz; do
	id=$(tar -xzOf "$package" package/package.json |
		node -p 'const p = JSON.parse(require("fs").readFileSync(0)); p.name + "@" + p.version')
	# npm refuses to publish a version twice, and a run before this one may have got so far.
	if [ -n "$(npm view "$id" version 2>/dev/null)" ]; then
		echo "$id is there already"
		continue
	fi
	# npm refuses a pre-release without a tag, and whoever names no version gets "latest".
	case ${id##*@} in
	*-*) tag=next ;;
	*) tag=latest ;;
	esac
	npm publish --tag "$tag" "$@" "$(realpath "$package")"
done
