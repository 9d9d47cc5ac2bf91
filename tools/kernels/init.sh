#!/bin/sh
# The first process of a guest, and what a sandbox runs: runs the tests, which print in the form that
# go tool test2json reads, and says when they are over. Then the machine is switched off from outside. A
# test runs in each place, of which main.go chooses some.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp
if [ $$ = 1 ] && [ ! -e /proc/self ]; then
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mount -t devtmpfs dev /dev 2>/dev/null
	mkdir -p /dev/pts /dev/shm
	mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
	mount -t tmpfs tmpfs /dev/shm
	mount -t tmpfs -o mode=1777 tmpfs /tmp
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	dmesg -n 1
	ip link set lo up 2>/dev/null
	exec setsid /bin/sh "$0" machine </dev/null >/dev/console 2>&1
fi

machine=${1-}

# What twenty starts of a command take, in ns, and what they print.
cost() {
	from=$(date +%s%N)
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "$@" 2>&1; done
	echo "kernels: cost $(($(date +%s%N) - from)) $*"
}

echo "kernels: kernel $(uname -r)"
cost /bin/true
cost /fini/bin/fini -- /bin/true
for tests in /fini/*/*.test /fini/internal/*/*.test /fini/e2e/*/*.test; do
	dir=${tests%/*}
	echo "kernels: begin ${dir#/fini/}"
	set -- -test.v=test2json -test.parallel=6 -test.timeout=20m
	[ ! -e "$dir/run" ] || set -- "$@" "-test.run=$(cat "$dir/run")"
	[ ! -e "$dir/skip" ] || set -- "$@" "-test.skip=$(cat "$dir/skip")"
	[ "${dir#/fini/e2e/}" = "$dir" ] || set -- "$@" -fini=/fini/bin/fini
	# shellcheck disable=SC2046 # a list of words
	cd "$dir" && $(cat /fini/prefix) "$tests" "$@"
	echo "kernels: end $?"
done
echo "kernels: over"
# The first process of a machine must not end.
[ -z "$machine" ] || while :; do sleep 1000; done
