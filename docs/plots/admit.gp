# SPDX-License-Identifier: Apache-2.0
# Draws what `admit` printed: units admitted since the beginning above, units admitted in the last period below.
#   gnuplot -e "data='FILE'; image='FILE.svg'; heading='...'; first=SECONDS; last=SECONDS" admit.gp
# The order and the dashes of the lines are chosen so that one can be seen where it lies on another.
set terminal svg size 1000,700 fixed noenhanced font 'DejaVu Sans,Arial,sans-serif' fontscale 1 \
    linewidth 1 dashlength 1 background '#ffffff' name 'admit'
set encoding utf8
set output image
set datafile separator '\t'
set multiplot layout 2,1 margins 0.07,0.745,0.08,0.93 spacing 0.09 title heading font ',15'

set xrange [first:last]
set xtics 5
set grid xtics ytics linecolor '#dddddd' linetype 1
set border 3 linecolor '#555555'
set tics nomirror textcolor '#333333'
set yrange [0:*]
set key at screen 0.765, screen 0.93 left top Left reverse samplen 4 spacing 1.3

set style line 1 linecolor '#bbbbbb' linewidth 1.5
set style line 2 linecolor '#d55e00' linewidth 3
set style line 3 linecolor '#0072b2' linewidth 3 dashtype (6,3)
set style line 4 linecolor '#000000' linewidth 1.5
set style line 5 linecolor '#009e73' linewidth 3 dashtype (2,3)
set style line 6 linecolor '#cc79a7' linewidth 3 dashtype (12,4,2,4)

set ylabel 'units admitted since 0 s'
set format x ''
plot data index 'offered' using 1:2 with lines linestyle 1 title 'offered', \
     data index 'fixed_window' using 1:2 with lines linestyle 2 title 'fixed window', \
     data index 'sliding_window' using 1:2 with lines linestyle 3 title 'sliding window', \
     data index 'sliding_log' using 1:2 with lines linestyle 4 title 'sliding log', \
     data index 'token_bucket' using 1:2 with lines linestyle 5 title 'token bucket (burst 100)', \
     data index 'leaky_bucket' using 1:2 with lines linestyle 6 title 'leaky bucket (served)'

set ylabel 'units admitted in the last 10 s'
set xlabel 'seconds'
set format x '%g'
unset key
set arrow 1 from graph 0, first 100 to graph 1, first 100 nohead linecolor '#888888' dashtype (1,3)
set label 1 'limit' at graph 0.005, first 100 offset 0, 0.5 textcolor '#666666'
plot data index 'fixed_window' using 1:3 with lines linestyle 2, \
     data index 'sliding_window' using 1:3 with lines linestyle 3, \
     data index 'sliding_log' using 1:3 with lines linestyle 4, \
     data index 'token_bucket' using 1:3 with lines linestyle 5, \
     data index 'leaky_bucket' using 1:3 with lines linestyle 6
unset multiplot
