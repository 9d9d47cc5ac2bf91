#compdef fini fini-init
# zsh completion of fini's command line, made from `fini --help`

_fini() {
	local -a specs=(
		{{range $o := .}}{{range $o.Short}}'*-{{.}}{{if and $o.Value (not $o.Maybe)}}+{{end}}[{{brief $o.Text}}]{{template "value" $o}}'
		{{end}}{{if $o.Long}}'*--{{$o.Long}}{{if $o.Value}}={{if $o.Maybe}}-{{end}}{{end}}[{{brief $o.Text}}]{{template "value" $o}}'
		{{end}}{{if $o.No}}'--no-{{$o.Long}}[turn off --{{$o.Long}}]'
		{{end}}{{end -}}
	)
	_arguments -s -S -A '-*' $specs '(-)1:command:_command_names -e' '*::arguments:_normal'
}

{{define "value"}}{{if .Value}}{{if .Maybe}}:{{end}}:{{title .Value}}:{{with kind .Value}}_fini_{{.}}{{else}} {{end}}{{end}}{{end -}}

_fini_SIG() { compadd none ${signals[2,-3]/#%IOT/ABRT} }
_fini_POLICY() { compadd stop pipes wait leave }
_fini_PID() { _pids }
_fini_FILE() { _files }
_fini_PATH() { _files }

_fini "$@"
