#compdef fini fini-init
# zsh completion of fini's command line, written by make flags; DO NOT EDIT

_fini() {
	local -a specs=(
		'*-p+[when the parent process dies, stop the command with SIG]:SIG:_fini_SIG'
		'*--pdeathsig=[when the parent process dies, stop the command with SIG]:SIG:_fini_SIG'
		'*-i[when stdin closes, wait --grace for the command to exit, and then stop it]'
		'*--stdin-eof[when stdin closes, wait --grace for the command to exit, and then stop it]'
		'*-t+[stop the command after DUR, and exit with 124]:DUR: '
		'*--timeout=[stop the command after DUR, and exit with 124]:DUR: '
		'*--idle=[stop the command after DUR without input or output, and exit with 124]:DUR: '
		'*--bind=[stop the command when process PID exits]:PID:_fini_PID'
		'*--stop-signal=[the signals that -i, -t and --idle send to stop the command, one after another]:SIG ,SIG :_fini_SIG'
		'*--grace=[how long the command may take to exit after stdin closes and after each stop signal, before it is killed]:DUR: '
		'*-k+[kill the command if it is still running DUR after fini has forwarded TERM, INT or a --stop-signal]:DUR: '
		'*--kill-after=[kill the command if it is still running DUR after fini has forwarded TERM, INT or a --stop-signal]:DUR: '
		'*--stop-within=[limit the whole shutdown to DUR, and shorten the other waits if necessary]:DUR: '
		'*--shield[run as two processes, so that if one is killed, the other stops the command]'
		'--no-shield[turn off --shield]'
		'*--linger=[how long leftovers may keep running after the command'\''s exit before fini stops them]:DUR: '
		'*--orphans-grace=[how long leftovers may take to exit after SIGTERM before they are killed]:DUR: '
		'*--orphan-timeout=[while the command runs, stop each process whose parent exited at least DUR ago, with its descendants]:DUR: '
		'*--orphans=[what to do with leftovers\: stop them all, stop only those that hold stdout or stderr open (pipes), wait, or leave them running]:POLICY:_fini_POLICY'
		'*--orphans-exit=[exit with CODE if the command succeeded but left something running]:CODE: '
		'*--allow-orphan=[don'\''t stop leftovers called NAME]:NAME: '
		'*-c[forward signals only to the main child, not to its process group]'
		'*--single-child[forward signals only to the main child, not to its process group]'
		'*-g[forward signals to the command'\''s process group, which is the default under fini'\''s own name]'
		'*-r+[forward signal FROM as TO, or drop it if TO is 0]:FROM TO: '
		'*--rewrite=[forward signal FROM as TO, or drop it if TO is 0]:FROM TO: '
		'*--foreground[keep the command in fini'\''s own process group, so that a terminal and its shell treat it as if fini weren'\''t there]'
		'--no-foreground[turn off --foreground]'
		'*-e+[exit with 0 if the command exits with N, such as 143 for a JVM]:N: '
		'*--remap-exit=[exit with 0 if the command exits with N, such as 143 for a JVM]:N: '
		'*--report=[write a report to FILE, as JUnit XML if the name ends in .xml, and otherwise as JSON]:FILE:_fini_FILE'
		'*-w[name each orphan that fini reaps, and say how it ended]'
		'*--warn-reaped[name each orphan that fini reaps, and say how it ended]'
		'*-q[write only errors]'
		'*--quiet[write only errors]'
		'*-v[also report the start, each signal and the exit]'
		'*--verbose[also report the start, each signal and the exit]'
		'*-P[run no command, and only reap zombies until SIGTERM, SIGINT, SIGQUIT, SIGHUP or RTMIN+3 arrives]'
		'*--pause[run no command, and only reap zombies until SIGTERM, SIGINT, SIGQUIT, SIGHUP or RTMIN+3 arrives]'
		'*--install=[copy this binary to PATH and exit]:PATH:_fini_PATH'
		'*-s[accepted for compatibility with tini, and on in any case\: be a subreaper]'
		'*-l[print the license]'
		'*-L[print the license]'
		'*--license[print the license]'
		'*-V[print the version]'
		'*--version[print the version]'
		'*-h[print this help]'
		'*--help[print this help]'
		)
	_arguments -s -S -A '-*' $specs '(-)1:command:_command_names -e' '*::arguments:_normal'
}

_fini_SIG() { compadd none ${signals[2,-3]/#%IOT/ABRT} }
_fini_POLICY() { compadd stop pipes wait leave }
_fini_PID() { _pids }
_fini_FILE() { _files }
_fini_PATH() { _files }

_fini "$@"
