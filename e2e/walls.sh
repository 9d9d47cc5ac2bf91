#!/bin/sh
# The walls between the packages: which of this module, and what of the system, each may import. An
# import that is not in the list is an error, and so is a package that the list does not have.
set -eu
cd "$(dirname "$0")/.."
module=$(go list -m)
walls='
main internal/cli internal/entry internal/files internal/host internal/life signals
internal/files internal/proc unix
internal/host internal/files internal/cli internal/entry internal/life internal/proc internal/report internal/proc orphans pdeath reaper signals unix
internal/cli internal/life signals
internal/entry internal/proc pdeath reaper signals unix
internal/life internal/entry orphans reaper signals
internal/report internal/files internal/proc orphans reaper signals unix
internal/proc unix
orphans internal/proc unix
pdeath internal/proc unix
reaper internal/proc unix
signals internal/proc unix
'
go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}}' . ./internal/... ./orphans ./pdeath ./reaper ./signals |
	sed "s#$module/##g; s#^$module #main #; s#golang.org/x/sys/unix#unix#g" |
	awk -v walls="$walls" '
		BEGIN {
			n = split(walls, lines, "\n")
			for (i = 1; i <= n; i++) { m = split(lines[i], w, " "); room[w[1]] = guarded[w[1]] = 1; for (j = 2; j <= m; j++) may[w[1], w[j]] = 1; }
			guarded["unix"] = 1
		}
		{
			seen[$1] = 1
			if (!($1 in room)) { print "e2e/walls.sh does not know the package " $1; bad = 1 }
			for (i = 2; i <= NF; i++)
				if (($i in guarded) && !(($1, $i) in may)) { print $1 " must not import " $i; bad = 1 }
		}
		END {
			for (r in room) if (r != "" && !(r in seen)) { print "e2e/walls.sh names " r ", which is no package"; bad = 1 }
			exit bad
		}'
# What decides has no clock and makes no system call.
test -e internal/life/life.go || { echo "e2e/walls.sh looks for package life in internal/life, and it is not there"; exit 1; }
if grep -nE 'time\.(Now|Since|Until|Sleep|After)\(|syscall\.(Raw)?Syscall' internal/life/*.go | grep -v '_test\.go:'; then
	echo "life must have no clock and make no system call"
	exit 1
fi
