#!/bin/sh
# Makes sure that a Docker engine answers: uses the one that runs, or else starts
# dockerd in the background, where it stays. Only starting one needs root.
set -u

wait_seconds=300
pidfile=/var/run/docker.pid
log=${TMPDIR:-/tmp}/dockerd.log
PATH=$PATH:/usr/sbin:/sbin # where dockerd is, also for a PATH without sbin

answers() { timeout 60 docker info >/dev/null 2>&1; }

# alive tells whether a dockerd lives that does not answer, or not yet, and leaves its
# pid in $pid. The pid file alone says little: it outlives a dockerd that was killed,
# and its pid may be somebody else's by now.
alive() {
	pid=$(cat "$pidfile" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]
}

start() {
	command -v dockerd >/dev/null || fail "cannot find dockerd, and no engine answers"
	[ "$(id -u)" = 0 ] || fail "cannot start dockerd: not root, and no engine answers"
	# dockerd will not start where the file names any living process.
	rm -f "$pidfile"
	# No storage driver is named: dockerd takes overlay2 where that works, and vfs
	# where nothing else does. In a session of its own neither Ctrl-C nor the end of
	# the calling job's group reaches it. The lock is not for it to keep.
	setsid nohup dockerd >"$log" 2>&1 </dev/null 9>&- &
	started=$!
}

fail() {
	[ -z "$started" ] || tail -n 20 "$log" >&2
	echo "dockerd.sh: $1" >&2
	exit 1
}

started=
command -v docker >/dev/null || fail "cannot find docker"
if answers; then
	echo "dockerd.sh: an engine answers already"
	exit
fi

# A second dockerd would take the first one's bridge away, so two of this script take
# turns.
exec 9>"$log.lock" || fail "cannot write $log.lock"
flock -w "$wait_seconds" 9 || fail "another one of this script does not end"

end=$(($(date +%s) + wait_seconds))
until answers; do
	if [ -n "$started" ]; then
		kill -0 "$started" 2>/dev/null || fail "dockerd has ended"
	elif ! alive; then
		start
	fi
	[ "$(date +%s)" -lt "$end" ] || fail "no engine answers after $wait_seconds s"
	sleep 0.2
done
if [ -n "$started" ]; then
	did="started dockerd $started, log in $log"
else
	did="waited for the engine that was starting"
fi
echo "dockerd.sh: $did, storage $(timeout 10 docker info --format '{{.Driver}}' 2>/dev/null)"
