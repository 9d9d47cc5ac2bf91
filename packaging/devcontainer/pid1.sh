# shellcheck shell=sh
# A dev container's PID 1 is the shell of the tool that started it, which reads this before the entry points of later features.
# It becomes fini, and fini runs that shell once more. With "init": true another program is PID 1, and stays.
if [ "$$" = 1 ]; then
	# The script of that shell is the third string, which has lines of its own.
	script=$(tr '\0\n' '\n\0' </proc/1/cmdline | head -n 3 | tail -n 1 | tr '\0' '\n')
	exec /usr/local/bin/fini -- /bin/sh -c "$script" "$0" "$@"
fi
