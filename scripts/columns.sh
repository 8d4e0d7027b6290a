#!/usr/bin/env bash
# Lines over 120 columns of code and comments; fails where there are any.
#
# Left out: tables and drawings in comments, addresses, strings that cannot be broken without changing what they say,
# and lines of shell and TOML that are no comments (commands and jq programs, most of them).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8

git ls-files '*.rs' '*.sh' '*.c' '*.h' '*.py' '*.toml' | xargs -d '\n' awk -v most=120 '
    length <= most || /https?:/ { next }
    FILENAME ~ /\.rs$/ ? /^[ \t]*\/\// : /^[ \t]*(\/\/|#|\/?\*)/ {
        if (!/(\/\/[\/!]?|#|\*) *(\||[^ ].*[^ .]   |        )/) report()
        next
    }
    FILENAME ~ /\.(sh|toml)$/ { next }
    # A string, a part of one that goes on in the next line, or JavaScript in one.
    /"[^"]{20,}/ || /\\$/ || /\\n/ || /"#/ || /[^"]{100,}"[,;)}\]]*$/ { next }
    { report() }
    function report() { bad = 1; print "columns: " FILENAME ":" FNR " has " length " columns; at most " most }
    END { exit bad }
' >&2
