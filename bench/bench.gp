# Draws bench.svg from bench.csv: how long a start takes, against that of tini -s.
#
#     gnuplot -e "dir='bench'" bench/bench.gp

if (!exists("dir")) dir = "."
file = dir . "/bench.csv"
rows(measure) = sprintf("< grep '^%s time of' %s", measure, file)
base(measure) = sprintf("< grep '^%s time of.*,tini -s -g,ms\\|^%s time of [^,]*,ms,tini -s -g,' %s", measure, measure, file)

set datafile separator ","
stats base("wall") using 4 nooutput
wall = STATS_max
stats base("CPU") using 4 nooutput
cpu = STATS_max

set terminal svg size 860,420 font "sans-serif,13" background rgb "white"
set output dir . "/bench.svg"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set yrange [0:*]
set ylabel "times tini -s"
set grid ytics linecolor rgb "#dddddd"
set xtics rotate by -35 nomirror
set ytics nomirror
set border 3
set key outside top right horizontal
set rmargin 8
set title 'Starting and ending true, medians of interleaved runs' noenhanced
plot rows("wall") using (column(4) / wall):xtic(3) title "wall time" linecolor rgb "#2b6cb0", \
     rows("CPU") using (column(4) / cpu) title "CPU time, the command's included" linecolor rgb "#ed8936"
