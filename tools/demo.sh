#!/bin/sh
# Shows one leaky command without fini and with it. The command ends at once and leaves
# a server behind: in a session of its own, and holding the pipe that its reader waits for.
set -eu
fini=${1:?usage: demo.sh FINI [SECONDS]}
seconds=${2:-4}

# The server, which only sleeps, says its pid for ps. It is called something that stands out.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ln -s "$(command -v sleep)" "$tmp/server"
PATH=$tmp:$PATH
leaky="setsid server $seconds & echo \$! >$tmp/pid; echo 'the command says goodbye'"

show() {
	echo "  what ps says of it:"
	pid=$(cat "$tmp/pid")
	# It is about to be the server, and then to sleep.
	while grep -qs '^Name:.\(sh\|setsid\)$\|^State:.[RD]' "/proc/$pid/status"; do :; done
	if command -v ps >/dev/null && ps -o pid,sess,stat,args -p "$pid" >"$tmp/ps"; then
		sed 's/^/    /' "$tmp/ps"
	elif [ -r "/proc/$pid/cmdline" ]; then # no ps on this machine
		echo "    $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")"
	else
		echo "    nothing: it is gone"
	fi
}

run() {
	start=$(date +%s%N)
	"$@" 2>"$tmp/stderr" | (
		read -r line && echo "  read after $((($(date +%s%N) - start) / 1000000)) ms: $line"
		show
		cat >/dev/null
		echo "  read after $((($(date +%s%N) - start) / 1000000)) ms: end of file"
	)
	sed 's/^/  stderr: /' "$tmp/stderr"
}

echo "Without fini: sh -c 'setsid server $seconds & echo ...' | reader"
run sh -c "$leaky"
echo
echo "With fini: fini -- sh -c 'setsid server $seconds & echo ...' | reader"
run "$fini" -- sh -c "$leaky"
show
