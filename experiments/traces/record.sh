#!/usr/bin/env bash
# Records Debian's programs that stand for SPEC's (Table VI of the micro-sliced paper), one FOLDER/PROGRAM.gltrace each.
#
#   experiments/traces/record.sh [FOLDER [PROGRAM...]]       default: target/traces, all six
#
# GLEANER_LAB=PATH names the binary, ACCESSES=200M how much is kept of each. Programs that are there already are not
# recorded again.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=$(readlink -f "$here/../..")
folder=$(mkdir -p "${1:-$root/target/traces}" && readlink -f "${1:-$root/target/traces}")
shift || true
[[ $# -gt 0 ]] || set -- sjeng x264 bzip2 cc1 xalan libquantum
lab=${GLEANER_LAB:-$root/target/gleaner-lab}
accesses=${ACCESSES:-200M}

fail() { printf 'record: %s\n' "$*" >&2; exit 1; }
[[ -x $lab ]] || fail "$lab is not there: make lab, or name one by GLEANER_LAB=PATH"

packages=(valgrind sjeng x264 bzip2 gcc cpp xalan libquantum-dev libc6-dev)
missing=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^.i  *//p' |
    sort | comm -13 - <(printf '%s\n' "${packages[@]}" | sort))
# shellcheck disable=SC2086 # names without spaces
[[ -z $missing ]] || apt-get -q install -y --no-install-recommends $missing || fail "these packages are needed: $missing"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# Only faster: where it cannot be built, Debian's lackey does the same.
if "$here/quick-lackey.sh" "$work/valgrind" 2>"$work/why"; then
    export VALGRIND_LIB=$work/valgrind
else
    printf 'record: without quick-lackey, which takes ten times as long: %s\n' "$(head -1 "$work/why")" >&2
fi

record() { # NAME SKIP -- CMD...
    local name=$1 skip=$2
    shift 3
    "$lab" cache record -o "$folder/$name.part" --skip "$skip" --max-accesses "$accesses" --json "$folder/$name.json" -- "$@"
    mv "$folder/$name.part" "$folder/$name.gltrace"
}

a_sjeng() {
    # The middle game of a well-known position, as deep as the limit allows.
    printf 'xboard\nsetboard r1bq1rk1/pp2bppp/2n1pn2/2pp4/3P4/2PBPN2/PP1N1PPP/R1BQ1RK1 w - - 0 1\nst 100000\nsd 40\ngo\n' >game
    # It stops thinking when its input ends.
    mkfifo input
    exec 7<>input
    cat game >&7
    # The first 60 million or so clear its hash tables.
    record sjeng 100M -- /usr/games/sjeng <input >/dev/null
    exec 7>&-
}
a_x264() {
    gcc -O2 -o frames "$here/frames.c" && ./frames 60 >frames.yuv
    record x264 30M -- x264 --quiet --threads 1 --no-progress --input-res 640x352 --fps 25 -o /dev/null frames.yuv
}
a_bzip2() {
    { cat /usr/bin/qemu-system-x86_64 /usr/bin/perl /bin/bash /usr/lib/x86_64-linux-gnu/libc.so.6 /usr/bin/gdb 2>/dev/null || true; } | head -c 20000000 >data
    record bzip2 10M -- bzip2 -9kc data >/dev/null
}
a_cc1() {
    # Sources that building Gleaner has downloaded.
    local source
    source=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -path '*/zstd-sys-*/zstd/lib/compress/zstd_opt.c' | head -1)
    [[ -n $source ]] || fail "no sources of zstd in cargo's registry: build Gleaner first"
    gcc -E -o source.i "$source"
    record cc1 30M -- "$(gcc -print-prog-name=cc1)" -quiet -O2 -fpreprocessed source.i -o /dev/null
}
a_xalan() {
    awk 'BEGIN { srand(1); print "<list>"; for (i = 0; i < 40000; i++)
        printf "<item id=\"%d\"><name>n%d</name><group>g%d</group><price>%d</price><text>%s</text></item>\n", i, rand() * 1e6,
            rand() * 50, rand() * 1000, substr("the quick brown fox jumps over the lazy dog", 1 + rand() * 20)
        print "</list>" }' >list.xml
    cat >list.xsl <<'XSL'
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:key name="groups" match="item" use="group"/>
  <xsl:template match="/list"><html><body><table>
    <xsl:for-each select="item"><xsl:sort select="name"/>
      <tr><td><xsl:value-of select="@id"/></td><td><xsl:value-of select="translate(text, 'abc', 'ABC')"/></td>
        <td><xsl:value-of select="sum(key('groups', group)[position() &lt; 5]/price)"/></td></tr>
    </xsl:for-each></table></body></html></xsl:template>
</xsl:stylesheet>
XSL
    record xalan 100M -- xalan -in list.xml -xsl list.xsl -out /dev/null
}
a_libquantum() {
    gcc -O2 -o gates "$here/gates.c" -lquantum -lgomp -lm
    OMP_NUM_THREADS=1 record libquantum 20M -- ./gates
}

for program; do
    declare -F "a_$program" >/dev/null || fail "'$program' is none of sjeng, x264, bzip2, cc1, xalan, libquantum"
    if [[ -e $folder/$program.gltrace ]]; then
        printf 'record: %s is there already\n' "$folder/$program.gltrace" >&2
    else
        "a_$program"
    fi
done
