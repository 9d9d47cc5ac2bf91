#!/bin/sh
# Installs what the full test run needs, from Debian's packages and npm.
set -eu

# again tries once more what the network may have let down.
again() { "$@" || "$@"; }
# Another apt may be at work on a machine that was booted a moment ago.
apt() { again apt-get -o DPkg::Lock::Timeout=600 "$@"; }

packages="adb bash bats bsdutils bubblewrap busybox-static catatonit chromium cmake conmon cpio curl dash debian-archive-keyring
docker.io dumb-init fish git gunicorn iptables jq less libarchive-tools lintian make man-db mandoc minisign mypy netavark
openssh-client openssh-server perl-base pipx podman postgresql procps psmisc python3 python3-celery python3-pytest python3-venv
python3-yaml qemu-system-arm qemu-system-x86 qemu-user-static rpm runc runit sccache shellcheck skopeo strace
supervisor systemd tini tmux twine util-linux vim-tiny watchman zsh"

export DEBIAN_FRONTEND=noninteractive
missing=
for p in $packages; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
if [ -n "$missing" ]; then
	apt update -qq
	# shellcheck disable=SC2086 # a list of words
	apt install -y -qq --no-install-recommends $missing
fi
command -v cc >/dev/null || apt install -y -qq --no-install-recommends gcc libc6-dev
command -v cargo >/dev/null || apt install -y -qq --no-install-recommends cargo
command -v npm >/dev/null || apt install -y -qq --no-install-recommends npm
# act runs GitHub's workflows, here without containers.
command -v act >/dev/null || again go build -C tools/pinned -o /usr/local/bin/act github.com/nektos/act
# The tests run Debian's Chromium.
export PUPPETEER_SKIP_DOWNLOAD=1 PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1
again npm ci --prefix e2e/npm --no-audit --no-fund
again npm ci --prefix e2e/testdata/node --no-audit --no-fund
