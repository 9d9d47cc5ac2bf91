# bash completion of fini's command line, made from `fini --help`

_fini() {
	local cur=${COMP_WORDS[COMP_CWORD]} i=1 flag='' word
	COMPREPLY=()
	# The words up to this one: flags and their values. bash splits --grace=5s at the "=".
	while ((i < COMP_CWORD)); do
		word=${COMP_WORDS[i]}
		((i += 1))
		case $word in
		--) _fini_command "$i"; return ;;
		{{range .}}{{if and .Long .Value}}--{{.Long}}){{if .Maybe}}
			[[ ${COMP_WORDS[i]} == = ]] || continue{{end}}
			flag={{.Long}} ;;
		{{end}}{{end}}-[!-]*)
			word=${word#-}
			while [[ $word == [{{letters false}}]* ]]; do word=${word#?}; done
			[[ $word == [{{letters true}}] ]] || continue
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
	{{range .}}{{if .Value}}{{with .Long}}{{.}}{{end}}{{if and .Long .Short}} | {{end}}{{range $n, $s := .Short}}{{if $n}} | {{end}}-{{$s}}{{end}}) _fini_value '{{kind .Value}}' "$cur"; return ;;
	{{end}}{{end}}esac
	if [[ $cur != -* ]]; then
		_fini_command "$COMP_CWORD"
		return
	fi
	mapfile -t COMPREPLY < <(compgen -W '
		{{range .}}{{range .Short}}-{{.}} {{end}}{{if .Long}}--{{.Long}}{{if and .Value (not .Maybe)}}={{end}}{{if .No}} --no-{{.Long}}{{end}}{{end}}
		{{end}}' -- "$cur")
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
