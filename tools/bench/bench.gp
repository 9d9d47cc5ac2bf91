# Draws bench.svg from bench.csv, and from the table of what is left behind in docs/drop-in.md.
#
#     gnuplot -e "dir='tools/bench'" tools/bench/bench.gp

if (!exists("dir")) dir = "."
csv = dir . "/bench.csv"
table = dir . "/../../docs/drop-in.md"

# Medians of one measure, by program, without some. A program's name may have a comma, in quotes.
rows(measure, without) = sprintf("< grep '^%s,' %s | grep -v '%s' | sed 's/\"\\([^\"]*\\),\\([^\"]*\\)\"/\\1\\2/g'", measure, csv, without)
others = 'PID 1\|static\|ms,bwrap\|ms,unshare\|ms,a bare'
# The cases of the table, by program: in how many something is left, and in how many the reader waits for ever.
left = sprintf("< awk -F'|' '/^\\| .* \\| [0-9]+, / { n++; for (i = 3; i <= 5; i++) { l[i] += $i !~ /^ 0,/; w[i] += $i ~ /never/ } } END { print \"without,\" l[3] \",\" w[3]; print \"tini -s,\" l[4] \",\" w[4]; print \"fini,\" l[5] \",\" w[5] }' %s", table)

set datafile separator ","
set terminal svg size 860,640 font "sans-serif,12" background rgb "white"
set output dir . "/bench.svg"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set yrange [0:*]
set grid ytics linecolor rgb "#dddddd"
set ytics nomirror
set border 3
set key off
set multiplot layout 2,2

set key top right
set yrange [0:32]
set xtics nomirror
set title 'Of 26 cases with real programs' noenhanced
plot left using 2:xtic(1) title "processes are left" linecolor rgb "#c53030", \
     left using 3 title "the reader waits for ever" linecolor rgb "#ed8936"

set key off
set yrange [0:*]
set xtics rotate by -35 nomirror
set title 'CPU for each reaped orphan, µs' noenhanced
plot rows("CPU for each orphan", "nothing") using 4:xtic(3) linecolor rgb "#2b6cb0"

set title 'Context switches in 10 s of idling' noenhanced
plot rows("context switches while idle", others) using 4:xtic(3) linecolor rgb "#2b6cb0"

set title 'Time to start and end true, ms' noenhanced
plot rows("wall time of .true.", others) using 4:xtic(3) linecolor rgb "#2b6cb0"
unset multiplot
