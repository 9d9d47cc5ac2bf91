# fish completion of fini's command line, made from `fini --help`

# The flags whose value is the next word.
set -g __fini_valued{{range .}}{{if and .Value (not .Maybe)}}{{range .Short}} -{{.}}{{end}}{{if .Long}} --{{.Long}}{{end}}{{end}}{{end}}

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
{{range $o := . -}}
complete -c fini -n __fini_at_flags{{range .Short}} -s {{.}}{{end}}{{if .Long}} -l {{.Long}}{{end}} {{template "value" .}} -d '{{brief .Text}}'
{{if .No -}}
complete -c fini -n __fini_at_flags -l no-{{.Long}} -f -d 'turn off --{{.Long}}'
{{end}}{{end}}
{{- define "value"}}{{with kind .Value -}}
{{if eq . "SIG"}}-x -a 'none (kill -l | string split -n " ")'
{{- else if eq . "POLICY"}}-x -a 'stop pipes wait leave'
{{- else if eq . "PID"}}-x -a '(__fish_complete_pids)'
{{- else}}-r -F{{end}}
{{- else}}{{if and .Value (not .Maybe)}}-x{{else}}-f{{end}}{{end}}{{end}}
