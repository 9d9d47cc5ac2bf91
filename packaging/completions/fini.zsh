#compdef fini fini-init
# zsh completion of fini's command line, written by make flags; DO NOT EDIT

_fini() {
	local -a specs=(
		'*-p+[when the parent process dies, stop the command with SIG, or with none let it keep running]:SIG:_fini_SIG'
		'*--pdeathsig=[when the parent process dies, stop the command with SIG, or with none let it keep running]:SIG:_fini_SIG'
		'*-i[when stdin closes, stop the command, unless it exits within --grace]'
		'*--stdin-eof[when stdin closes, stop the command, unless it exits within --grace]'
		'*-t+[stop the command after DUR and exit 124]:DUR: '
		'*--timeout=[stop the command after DUR and exit 124]:DUR: '
		'*--idle=[stop the command and exit 124 after DUR without any input or output]:DUR: '
		'*--bind=[stop the command when process PID exits]:PID:_fini_PID'
		'*--stop-signal=[what -i, -t and --idle send to stop the command]:SIG ,SIG :_fini_SIG'
		'*--grace=[time to exit after stdin closes, and again after each stop signal, before SIGKILL]:DUR: '
		'*-k+[send SIGKILL if the command still runs DUR after a forwarded TERM, INT or --stop-signal]:DUR: '
		'*--kill-after=[send SIGKILL if the command still runs DUR after a forwarded TERM, INT or --stop-signal]:DUR: '
		'*--stop-within=[be gone DUR after the end has begun, and cut each wait for that]:DUR: '
		'*--shield[run as two processes\: if one of them is killed, the other stops the command]'
		'--no-shield[turn off --shield]'
		'*--linger=[time for leftovers to exit by themselves before fini stops them]:DUR: '
		'*--orphans-grace=[time for leftovers to exit that fini asks after the command'\''s exit, before SIGKILL]:DUR: '
		'*--orphans=[stop leftovers, wait for them or leave them]:POLICY:_fini_POLICY'
		'*--orphans-exit=[exit with CODE if the command succeeded but left something running]:CODE: '
		'*--allow-orphan=[let leftovers with this name keep running]:NAME: '
		'*-c[forward signals only to the main child, not to its process group]'
		'*--single-child[forward signals only to the main child, not to its process group]'
		'*-g[forward signals to the command'\''s process group, as fini does under its own name]'
		'*-r+[forward signal FROM as TO, or drop it if TO is 0]:FROM TO: '
		'*--rewrite=[forward signal FROM as TO, or drop it if TO is 0]:FROM TO: '
		'*--foreground[keep the command in fini'\''s process group]'
		'--no-foreground[turn off --foreground]'
		'*-e+[exit 0 if the command exits with N, such as 143 for a JVM]:N: '
		'*--remap-exit=[exit 0 if the command exits with N, such as 143 for a JVM]:N: '
		'*--report=[write a report to FILE, in JUnit'\''s XML if its name ends in .xml, otherwise in JSON]:FILE:_fini_FILE'
		'*-w[name each orphan that fini reaps, and how it ended]'
		'*--warn-reaped[name each orphan that fini reaps, and how it ended]'
		'*-q[write only errors]'
		'*--quiet[write only errors]'
		'*-v[also write about the start, each signal, and the exit]'
		'*--verbose[also write about the start, each signal, and the exit]'
		'*-P[run no command\: reap until SIGTERM, SIGINT, SIGQUIT, SIGHUP or RTMIN+3]'
		'*--pause[run no command\: reap until SIGTERM, SIGINT, SIGQUIT, SIGHUP or RTMIN+3]'
		'*--install=[copy this binary to PATH, and exit]:PATH:_fini_PATH'
		'*-s[accepted for tini'\''s sake\: fini always does what tini does with it]'
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
