#!/usr/bin/env bash
# The chart of docs/results.md from the summary (made with DIGITS=7): experiments/demo/chart.sh >docs/speedups.svg
set -euo pipefail
cd "$(dirname "$0")"

jq -r '.results | to_entries[] | select(.key | endswith("-ab")) | [(.key | sub(".*/"; "") | sub("-ab$"; "")), .value[0][1].speedup[]] | @tsv' \
    summary.json | sort -t$'\t' -k2 -rn | awk -F'\t' '
    # A speed-up on a logarithmic scale from 0.8 to 8: equal factors are equally long.
    function x(value) { return sprintf("%.1f", 130 + 560 * log(value / 0.8) / log(10)) }
    { name[NR] = $1; middle[NR] = $2; low[NR] = $3; high[NR] = $4 }
    END {
        height = 78 + 34 * NR
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 %d\" width=\"760\" height=\"%d\"", height, height
        print " font-family=\"system-ui, sans-serif\"\n     font-size=\"13\" fill=\"#1f2933\" role=\"img\" aria-labelledby=\"title description\">"
        print "  <title id=\"title\">Speed-up by Gleaner</title>"
        printf "  <desc id=\"description\">Median speed-up of five pairs and its 95 percent interval."
        for (i = 1; i <= NR; i++) printf " %s %.2f, %.2f to %.2f.", name[i], middle[i], low[i], high[i]
        printf "</desc>\n  <rect width=\"760\" height=\"%d\" rx=\"8\" fill=\"#ffffff\"/>\n", height
        split("0.8 1 1.5 2 3 4 6 8", ticks, " ")
        for (i = 1; i in ticks; i++) {
            printf "  <line x1=\"%s\" y1=\"24\" x2=\"%s\" y2=\"%d\" stroke=\"%s\"/>", x(ticks[i]), x(ticks[i]), 30 + 34 * NR, ticks[i] == 1 ? "#52606d" : "#e4e7eb"
            printf "<text x=\"%s\" y=\"%d\" text-anchor=\"middle\" fill=\"#52606d\">%s</text>\n", x(ticks[i]), 48 + 34 * NR, ticks[i]
        }
        for (i = 1; i <= NR; i++) {
            y = 44 + 34 * (i - 1); colour = low[i] > 1 ? "#2f7d32" : high[i] < 1 ? "#b3261e" : "#7b8794"
            printf "  <text x=\"20\" y=\"%d\">%s</text>", y + 4, name[i]
            printf "<line x1=\"%s\" y1=\"%d\" x2=\"%s\" y2=\"%d\" stroke=\"%s\" stroke-width=\"4\"/>", x(low[i]), y, x(high[i]), y, colour
            printf "<circle cx=\"%s\" cy=\"%d\" r=\"6\" fill=\"%s\"/>", x(middle[i]), y, colour
            printf "<text x=\"%s\" y=\"%d\" font-weight=\"bold\">%.2f</text>\n", x(high[i]) + 10, y + 4, middle[i]
        }
        printf "  <text x=\"20\" y=\"%d\" font-size=\"12\" fill=\"#52606d\">", height - 6
        print "Times as fast as without Gleaner: median of five pairs, 95 % interval. KVM guest, 2 vCPUs, make demo.</text>"
        print "</svg>"
    }'
