#!/bin/sh
# The walls between the packages: which of this module, and what of the system, each may import. An
# import that is not in the list is an error.
set -eu
cd "$(dirname "$0")/.."
module=$(go list -m)
walls='
main cli entry life orphans pair pdeath reaper report signals unix
cli life signals
entry unix
life entry orphans reaper signals
pair entry reaper unix
report orphans reaper signals unix
orphans unix
pdeath unix
reaper entry unix
signals unix
'
go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}}' . ./cli ./life ./entry ./pair ./report ./orphans ./pdeath ./reaper ./signals |
	sed "s#$module/##g; s#^$module #main #; s#golang.org/x/sys/unix#unix#g" |
	awk -v walls="$walls" '
		BEGIN {
			n = split(walls, lines, "\n")
			for (i = 1; i <= n; i++) { m = split(lines[i], w, " "); for (j = 2; j <= m; j++) may[w[1], w[j]] = 1; }
			m = split("cli entry life orphans pair pdeath reaper report signals unix", w, " "); for (j = 1; j <= m; j++) guarded[w[j]] = 1
		}
		{
			for (i = 2; i <= NF; i++)
				if (($i in guarded) && !(($1, $i) in may)) { print $1 " must not import " $i; bad = 1 }
		}
		END { exit bad }'
# What decides has no clock and makes no system call.
if grep -nE 'time\.(Now|Since|Until|Sleep|After)\(|syscall\.(Raw)?Syscall' life/*.go | grep -v '_test\.go:'; then
	echo "life must have no clock and make no system call"
	exit 1
fi
