#!/usr/bin/env bash
# Words, sentences and mean sentence length of every page; fails where a page in LIMITS is longer or denser.
#
#   scripts/words.sh            all pages, then the verdict
#   scripts/words.sh --check    says only what is over a limit
#
# Code blocks, tables, headings, links' targets and generated parts (<!-- ...: begin ... end -->) are no prose: they are
# left out, but words in tables and headings count as words. A sentence ends at . ? ! or with its paragraph or item.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Pages in the house style (docs/style.md), and the most words that each may have.
declare -A LIMITS=(
    [README.md]=640
    [ARCHITECTURE.md]=1500
    [docs/style.md]=470
    [docs/quick-start.md]=600
    [docs/faq.md]=1050
    [docs/service.md]=1390
    [docs/capture.md]=700
    [docs/threats.md]=800
    [docs/safety.md]=680
    [docs/safety-reference.md]=690
    [docs/report.md]=420
    [docs/ab.md]=1310
    [docs/how-it-works.md]=2620
    [docs/results.md]=1260
    [docs/host.md]=1100
    [docs/host-reference.md]=2500
    [docs/host-llc.md]=800
    [docs/xen.md]=580
    [docs/benchmarks.md]=405
    [docs/glossary.md]=1025
    [docs/json.md]=5240
    [docs/tuning.md]=845
    [docs/research/README.md]=400
    [docs/research/cachesim.md]=2400
    [docs/research/recording.md]=800
    [docs/research/simulator.md]=1730
    [docs/research/testbed.md]=1500
    [docs/research/workloads.md]=1020
    [docs/research/models.md]=700
    [docs/research/reproductions.md]=750
    [docs/research/not-reproduced.md]=650
)
# Short records, all of one form.
for page in docs/decisions/*.md; do LIMITS[$page]=300; done
LIMITS[docs/decisions/README.md]=400
# The longest mean sentence, sentence and line, in words and characters.
MEAN_MAX=16
LONGEST_MAX=25
COLUMNS_MAX=120

# Words, sentences, mean words a sentence (prose only), and the longest sentence of one page, in words and as it is.
measure() {
    awk '
        function flush(   i, n, parts, words, list) {
            n = split(paragraph, parts, /[.?!]["\)*_]*( |$)/)
            for (i = 1; i <= n; i++) {
                words = split(parts[i], list, /[ \t]+/)
                if (parts[i] ~ /^ /) words--
                if (parts[i] ~ / $/) words--
                if (words < 2) continue
                sentences++; prose += words
                if (words > longest) { longest = words; text = parts[i] }
            }
            paragraph = ""
        }
        /^```/ { code = !code; flush(); next }
        code { next }
        /<!--.*: begin/ { generated = 1 }
        /<!--.*: end/ { generated = 0; next }
        generated { next }
        {
            # [text](target) is its text; `code` is one word.
            while (match($0, /\]\([^)]*\)/)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
            gsub(/!?\[/, ""); gsub(/\]/, ""); gsub(/`[^`]*`/, "code"); gsub(/\*\*/, "")
        }
        /^\|/ { flush(); gsub(/[|]|---/, " "); total += split($0, list, /[ \t]+/) - 2; next }
        /^#/ { flush(); total += NF - 1; next }
        /^[ \t]*$/ { flush(); next }
        /^[ \t]*([-*]|[0-9]+\.) / { flush(); sub(/^[ \t]*([-*]|[0-9]+\.) /, "") }
        { total += NF; sub(/^[ \t]+/, ""); paragraph = paragraph (paragraph == "" ? "" : " ") $0 }
        END { flush(); printf "%d %d %.1f %d %s\n", total, sentences, sentences ? prose / sentences : 0, longest, text }
    ' "$1"
}

# Lines of prose over the limit; tables and code cannot be broken.
long_lines() {
    awk -v most="$COLUMNS_MAX" \
        '/^```/ { code = !code } !code && !/^\|/ && length($0) > most { n++ } END { print n + 0 }' "$1"
}

check_only=false
[[ ${1:-} != --check ]] || check_only=true
$check_only || printf '%-40s %7s %10s %6s %8s\n' page words sentences mean longest

over=0
complain() { printf 'words: %s\n' "$*" >&2; over=1; }
while read -r page; do
    read -r words sentences mean longest text < <(measure "$page")
    $check_only || printf '%-40s %7d %10d %6s %8d\n' "$page" "$words" "$sentences" "$mean" "$longest"
    limit=${LIMITS[$page]:-}
    [[ -n $limit ]] || continue
    [[ $words -le $limit ]] || complain "$page has $words words; at most $limit"
    awk -v mean="$mean" -v most="$MEAN_MAX" 'BEGIN { exit !(mean < most) }' ||
        complain "$page: a sentence has $mean words in the mean; fewer than $MEAN_MAX"
    [[ $longest -le $LONGEST_MAX ]] || complain "$page: a sentence has $longest words; at most $LONGEST_MAX: $text"
    lines=$(long_lines "$page")
    [[ $lines -eq 0 ]] || complain "$page: $lines lines are over $COLUMNS_MAX columns"
done < <(git ls-files --cached --others --exclude-standard '*.md' 2>/dev/null ||
    find . -name '*.md' -not -path './target/*' -printf '%P\n' | sort)
for page in "${!LIMITS[@]}"; do
    [[ -e $page ]] || complain "$page is limited here, and is not there"
done
[[ $over -eq 0 ]] || { echo "words: the house style is docs/style.md" >&2; exit 1; }
