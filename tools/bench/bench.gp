# Draws bench.svg from bench.csv.
#
#     gnuplot -e "dir='tools/bench'" tools/bench/bench.gp

if (!exists("dir")) dir = "."
csv = dir . "/bench.csv"

# Medians of one measure, by program, without some. A program's name may have a comma, in quotes.
rows(measure, without) = sprintf("< grep '^%s,' %s | grep -v '%s' | sed 's/\"\\([^\"]*\\),\\([^\"]*\\)\"/\\1\\2/g'", measure, csv, without)
others = 'PID 1\|static\|ms,bwrap\|ms,unshare\|ms,a bare'

set datafile separator ","
set terminal svg size 1080,320 font "sans-serif,12" background rgb "white"
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
set multiplot layout 1,3

set xtics rotate by -35 nomirror
set title 'CPU for each reaped orphan, µs' noenhanced
plot rows("CPU for each orphan", "nothing") using 4:xtic(3) linecolor rgb "#2b6cb0"

set title 'Context switches in 10 s of idling' noenhanced
plot rows("context switches while idle", others) using 4:xtic(3) linecolor rgb "#2b6cb0"

set title 'Time to start and end true, ms' noenhanced
plot rows("wall time of .true.", others) using 4:xtic(3) linecolor rgb "#2b6cb0"
unset multiplot
