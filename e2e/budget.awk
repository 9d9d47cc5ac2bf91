# Says what each package has taken, by the lines of go test, and fails if one is over a budget in seconds.
$3 ~ /^[0-9.]+s$/ {
	name = $2
	sub(/^[^\/]*\/[^\/]*\/[^\/]*\/?/, "", name)
	sub(/^e2e\//, "", name)
	if (name == "")
		name = "fini"
	took = took sprintf("%s %s %.0f", took == "" ? "" : ",", name, $3)
	if (budget != "" && $3 + 0 > budget + 0)
		over = over sprintf("%s took %.0f s, more than its budget of %d s\n", name, $3, budget)
}
END {
	if (took != "")
		print "Seconds that each package took:" took (budget == "" ? "" : "; budget " budget)
	printf "%s", over
	exit over != ""
}
