# bash completion of fini's command line, written by make flags; DO NOT EDIT

_fini() {
	local cur=${COMP_WORDS[COMP_CWORD]} i=1 flag='' word
	COMPREPLY=()
	# The words up to this one: flags and their values. bash splits --grace=5s at the "=".
	while ((i < COMP_CWORD)); do
		word=${COMP_WORDS[i]}
		((i += 1))
		case $word in
		--) _fini_command "$i"; return ;;
		--pdeathsig) flag=pdeathsig ;;
		--timeout) flag=timeout ;;
		--idle) flag=idle ;;
		--bind) flag=bind ;;
		--stop-signal) flag=stop-signal ;;
		--grace) flag=grace ;;
		--kill-after) flag=kill-after ;;
		--stop-within) flag=stop-within ;;
		--linger) flag=linger ;;
		--orphans-grace) flag=orphans-grace ;;
		--orphan-timeout) flag=orphan-timeout ;;
		--orphans) flag=orphans ;;
		--orphans-exit) flag=orphans-exit ;;
		--allow-orphan) flag=allow-orphan ;;
		--rewrite) flag=rewrite ;;
		--remap-exit) flag=remap-exit ;;
		--report) flag=report ;;
		--install) flag=install ;;
		-[!-]*)
			word=${word#-}
			while [[ $word == [icgwqvPslLVh]* ]]; do word=${word#?}; done
			[[ $word == [ptkre] ]] || continue
			flag=-$word ;;
		-?*) continue ;;
		*) _fini_command $((i - 1)); return ;;
		esac
		# Its value is one word more, or two with a "=".
		[[ ${COMP_WORDS[i]} != = ]] || ((i += 1))
		((i <= COMP_CWORD)) || cur=
		((i >= COMP_CWORD)) || flag=
		((i += 1))
	done
	case $flag in
	'') ;;
	pdeathsig | -p) _fini_value 'SIG' "$cur"; return ;;
	timeout | -t) _fini_value '' "$cur"; return ;;
	idle) _fini_value '' "$cur"; return ;;
	bind) _fini_value 'PID' "$cur"; return ;;
	stop-signal) _fini_value 'SIG' "$cur"; return ;;
	grace) _fini_value '' "$cur"; return ;;
	kill-after | -k) _fini_value '' "$cur"; return ;;
	stop-within) _fini_value '' "$cur"; return ;;
	linger) _fini_value '' "$cur"; return ;;
	orphans-grace) _fini_value '' "$cur"; return ;;
	orphan-timeout) _fini_value '' "$cur"; return ;;
	orphans) _fini_value 'POLICY' "$cur"; return ;;
	orphans-exit) _fini_value '' "$cur"; return ;;
	allow-orphan) _fini_value '' "$cur"; return ;;
	rewrite | -r) _fini_value '' "$cur"; return ;;
	remap-exit | -e) _fini_value '' "$cur"; return ;;
	report) _fini_value 'FILE' "$cur"; return ;;
	install) _fini_value 'PATH' "$cur"; return ;;
	esac
	if [[ $cur != -* ]]; then
		_fini_command "$COMP_CWORD"
		return
	fi
	mapfile -t COMPREPLY < <(compgen -W '
		-p --pdeathsig=
		-i --stdin-eof
		-t --timeout=
		--idle=
		--bind=
		--stop-signal=
		--grace=
		-k --kill-after=
		--stop-within=
		--shield --no-shield
		--linger=
		--orphans-grace=
		--orphan-timeout=
		--orphans=
		--orphans-exit=
		--allow-orphan=
		-c --single-child
		-g 
		-r --rewrite=
		--foreground --no-foreground
		-e --remap-exit=
		--report=
		-w --warn-reaped
		-q --quiet
		-v --verbose
		-P --pause
		--install=
		-s 
		-l -L --license
		-V --version
		-h --help
		' -- "$cur")
	[[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}

# The command's own completion, if bash-completion is there.
_fini_command() {
	if declare -F _comp_command_offset >/dev/null; then
		_comp_command_offset "$1"
	elif declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif (($1 == COMP_CWORD)); then
		mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
	else
		compopt -o default 2>/dev/null
	fi
}

_fini_value() {
	local cur=$2
	case $1 in
	SIG) mapfile -t COMPREPLY < <(compgen -W "none $(compgen -A signal SIG | sed -n '/(/d; s/^SIG//p')" -- "$cur") ;;
	POLICY) mapfile -t COMPREPLY < <(compgen -W 'stop pipes wait leave' -- "$cur") ;;
	PID) mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur") ;;
	FILE | PATH)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	esac
}

complete -F _fini fini fini-init
