# fish completion of fini's command line, written by make flags; DO NOT EDIT

# The flags whose value is the next word.
set -g __fini_valued -p --pdeathsig -t --timeout --idle --bind --stop-signal --grace -k --kill-after --stop-within --linger --orphans-grace --orphan-timeout --orphans --orphans-exit --allow-orphan -r --rewrite -e --remap-exit --report --install

# Whether no command has begun.
function __fini_at_flags
	set -l words (commandline -opc)
	set -e words[1]
	while set -q words[1]
		if contains -- $words[1] $__fini_valued
			set -e words[1] # and its value, below
		else if test "$words[1]" = --; or not string match -q -- '-?*' $words[1]
			return 1
		end
		set -e words[1]
	end
end

complete -c fini-init -w fini
complete -c fini -x -a '(__fish_complete_subcommand --fcs-skip=1 $__fini_valued)'
complete -c fini -n __fini_at_flags -s p -l pdeathsig -x -a 'none (kill -l | string split -n " ")' -d 'when the parent process dies, stop the command with SIG'
complete -c fini -n __fini_at_flags -s i -l stdin-eof -f -d 'when stdin closes, wait --grace for the command to exit, and then stop it'
complete -c fini -n __fini_at_flags -s t -l timeout -x -d 'stop the command after DUR, and exit with 124'
complete -c fini -n __fini_at_flags -l idle -x -d 'stop the command after DUR without input or output, and exit with 124'
complete -c fini -n __fini_at_flags -l bind -x -a '(__fish_complete_pids)' -d 'stop the command when process PID exits'
complete -c fini -n __fini_at_flags -l stop-signal -x -a 'none (kill -l | string split -n " ")' -d 'the signals that -i, -t and --idle send to stop the command, one after another'
complete -c fini -n __fini_at_flags -l grace -x -d 'how long the command may take to exit after stdin closes and after each stop signal, before it is killed'
complete -c fini -n __fini_at_flags -s k -l kill-after -x -d 'kill the command if it is still running DUR after fini has forwarded TERM, INT or a --stop-signal'
complete -c fini -n __fini_at_flags -l stop-within -x -d 'limit the whole shutdown to DUR, and shorten the other waits if necessary'
complete -c fini -n __fini_at_flags -l shield -f -d 'run as two processes, so that if one is killed, the other stops the command'
complete -c fini -n __fini_at_flags -l no-shield -f -d 'turn off --shield'
complete -c fini -n __fini_at_flags -l linger -x -d 'how long leftovers may keep running after the command'\''s exit before fini stops them'
complete -c fini -n __fini_at_flags -l orphans-grace -x -d 'how long leftovers may take to exit after SIGTERM before they are killed'
complete -c fini -n __fini_at_flags -l orphan-timeout -x -d 'while the command runs, stop each process whose parent exited at least DUR ago, with its descendants'
complete -c fini -n __fini_at_flags -l orphans -x -a 'stop pipes wait leave' -d 'what to do with leftovers\: stop them all, stop only those that hold stdout or stderr open (pipes), wait, or leave them running'
complete -c fini -n __fini_at_flags -l orphans-exit -x -d 'exit with CODE if the command succeeded but left something running'
complete -c fini -n __fini_at_flags -l allow-orphan -x -d 'don'\''t stop leftovers called NAME'
complete -c fini -n __fini_at_flags -s c -l single-child -f -d 'forward signals only to the main child, not to its process group'
complete -c fini -n __fini_at_flags -s g -f -d 'forward signals to the command'\''s process group, which is the default under fini'\''s own name'
complete -c fini -n __fini_at_flags -s r -l rewrite -x -d 'forward signal FROM as TO, or drop it if TO is 0'
complete -c fini -n __fini_at_flags -l foreground -f -d 'keep the command in fini'\''s own process group, so that a terminal and its shell treat it as if fini weren'\''t there'
complete -c fini -n __fini_at_flags -l no-foreground -f -d 'turn off --foreground'
complete -c fini -n __fini_at_flags -s e -l remap-exit -x -d 'exit with 0 if the command exits with N, such as 143 for a JVM'
complete -c fini -n __fini_at_flags -l report -r -F -d 'write a report to FILE, as JUnit XML if the name ends in .xml, and otherwise as JSON'
complete -c fini -n __fini_at_flags -s w -l warn-reaped -f -d 'name each orphan that fini reaps, and say how it ended'
complete -c fini -n __fini_at_flags -s q -l quiet -f -d 'write only errors'
complete -c fini -n __fini_at_flags -s v -l verbose -f -d 'also report the start, each signal and the exit'
complete -c fini -n __fini_at_flags -s P -l pause -f -d 'run no command, and only reap zombies until SIGTERM, SIGINT, SIGQUIT, SIGHUP or RTMIN+3 arrives'
complete -c fini -n __fini_at_flags -l install -r -F -d 'copy this binary to PATH and exit'
complete -c fini -n __fini_at_flags -s s -f -d 'accepted for compatibility with tini, and on in any case\: be a subreaper'
complete -c fini -n __fini_at_flags -s l -s L -l license -f -d 'print the license'
complete -c fini -n __fini_at_flags -s V -l version -f -d 'print the version'
complete -c fini -n __fini_at_flags -s h -l help -f -d 'print this help'

