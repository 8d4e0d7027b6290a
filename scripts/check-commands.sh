#!/usr/bin/env bash
# Compares the commands that scripts and tests call with the packages that scripts/setup.sh installs for them. A command
# that is on this machine by chance, and on a fresh one would be missing, is named together with its package.
#
#   scripts/check-commands.sh
#
# What it knows is Debian's own: which package a command belongs to, and what packages depend on. A command is the first
# word of a shell command, or what Command::new() and subprocess name. It cannot see what a program calls itself; for
# that there is `make fresh`. A command that is not on this machine either is not judged: it fails where it is called.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v dpkg-query >/dev/null || { echo "check: not a Debian machine: commands are not compared with packages" >&2; exit 0; }

# words_of FILE...: what could be the first word of a command in these files, one a line, as "FILE<tab>WORD".
words_of() {
    awk '
        function word(text) {
            while (text ~ /^[ \t]*([A-Za-z_][A-Za-z0-9_]*=[^ \t]*|then|do|else|if|elif|while|until|!|time|exec|env|nice|sudo|command|taskset -c [^ ]+|timeout( -[^ ]+)* [0-9.]+[smh]?)[ \t]+/)
                sub(/^[ \t]*[^ \t]+[ \t]+/, "", text)
            sub(/^[ \t]+/, "", text)
            if (match(text, /^[a-z][a-z0-9_.+-]*/) && substr(text, RLENGTH + 1, 1) !~ /[=(\/:.,"\x27[]/)
                print FILENAME "\t" substr(text, 1, RLENGTH)
        }
        FILENAME ~ /\.rs$/ {
            while (match($0, /Command::new\("[a-z][a-z0-9_.+-]*"\)/)) {
                print FILENAME "\t" substr($0, RSTART + 14, RLENGTH - 16)
                $0 = substr($0, RSTART + RLENGTH)
            }
            next
        }
        /^[a-z][a-z0-9_-]*\(\) *[{(]/ { print FILENAME "\t" substr($0, 1, index($0, "(") - 1) >functions }
        FILENAME ~ /\.py$/ {
            if (match($0, /(run|Popen|check_output|check_call)\(\["[a-z][a-z0-9_.+-]*"/)) {
                text = substr($0, RSTART, RLENGTH)
                sub(/.*\["/, "", text)
                sub(/"$/, "", text)
                print FILENAME "\t" text
            }
            next
        }
        { sub(/(^|[ \t])#.*/, ""); sub(/^\t@?/, "") }
        { n = split($0, parts, /\$\(|<\(|>\(|[;|&(){}`]+/); for (i = 1; i <= n; i++) word(parts[i]) }
    ' functions="$work/functions" "$@" | sort -u >"$work/all"
    grep -vxFf "$work/functions" "$work/all" || true
}

# installed_with PACKAGE...: these packages, those of every Debian system, and all that they depend on.
installed_with() {
    dpkg-query -W -f '${Package}\t${Essential}\t${Priority}\t${Provides}\t${Pre-Depends}, ${Depends}\n' |
        awk -F'\t' -v wanted="$*" '
            function name(text) { sub(/^ +/, "", text); sub(/[ (:].*/, "", text); return text }
            {
                needs[$1] = $5
                offered[$1] = $1
                n = split($4, list, ",")
                for (i = 1; i <= n; i++) offered[name(list[i])] = offered[name(list[i])] " " $1
                if ($2 == "yes" || $3 == "required" || $1 == "apt") todo[++last] = $1
            }
            END {
                n = split(wanted, list, " ")
                for (i = 1; i <= n; i++) todo[++last] = list[i]
                for (at = 1; at <= last; at++) {
                    n = split(offered[todo[at]], real, " ")
                    for (i = 1; i <= n; i++) if (!(real[i] in seen)) {
                        seen[real[i]]
                        print real[i]
                        m = split(needs[real[i]], list, /[,|]/)
                        for (j = 1; j <= m; j++) todo[++last] = name(list[j])
                    }
                }
            }' | sort -u
}

# owners: for each command on standard input "COMMAND<tab>PACKAGE", as far as it came with a package.
owners() {
    local word path
    while read -r word; do
        path=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin type -P "$word") || continue
        printf '%s\t%s\n' "$word" "$path" "$word" "$(readlink -f "$path")" "$word" "/usr$path" "$word" "${path#/usr}"
    done >"$work/paths"
    cut -f 2 "$work/paths" | sort -u | { xargs -r dpkg-query -S 2>/dev/null || true; } |
        sed -n '/^diversion by/d; s/^\([^:,]*\)[:,].* \(\/.*\)$/\2\t\1/p' |
        awk -F'\t' 'NR == FNR { owner[$1] = $2; next } ($2 in owner) && !($1 in seen) { seen[$1]; print $1 "\t" owner[$2] }' - "$work/paths"
}

status=0
# compare "GROUP..." FILE...: these files may use what these groups install.
compare() {
    local groups=$1 file word package packages
    shift
    # shellcheck disable=SC2086 # a list of words
    packages=$(scripts/setup.sh --list $groups)
    # shellcheck disable=SC2086 # a list of words
    installed_with make git ca-certificates $packages >"$work/installed"
    : >"$work/functions"
    words_of "$@" >"$work/words"
    cut -f 2 "$work/words" | sort -u | grep -vxFf <(compgen -bk) | owners |
        while IFS=$'\t' read -r word package; do
            grep -qxF "$package" "$work/installed" || printf '%s\t%s\n' "$word" "$package"
        done >"$work/missing"
    while IFS=$'\t' read -r word package; do
        status=1
        file=$(awk -F'\t' -v word="$word" '$2 == word { print $1; exit }' "$work/words")
        echo "check: $file calls $word, of package $package, which scripts/setup.sh $groups does not install" >&2
    done <"$work/missing"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-check.XXXXXX")
trap 'rm -rf "$work"' EXIT
mapfile -t rust < <(git ls-files 'crates/*.rs' 'lab/*.rs' | grep -v /benches/)
mapfile -t benches < <(git ls-files 'crates/*/benches/*.rs' 'lab/*/benches/*.rs')
# What runs inside a guest is busybox's, or the image's (testbed/image.sh).
in_guests='testbed/(initramfs|agent|service|debian-smoke|image|checks|smoke)\.sh'
mapfile -t bed < <(git ls-files 'testbed/*.sh' | grep -vE "$in_guests")
mapfile -t ours < <(git ls-files 'scripts/*.sh' | grep -vE 'demo|redis-one-client|fresh')
mapfile -t experiments < <(git ls-files 'experiments/*.sh' 'experiments/*.py')
compare "build test" Makefile "${bed[@]}" "${ours[@]}" "${rust[@]}"
compare "bed" scripts/fresh.sh
compare "build test bench" "${benches[@]}"
compare "build demo" scripts/demo*.sh scripts/redis-one-client.sh
compare "build test demo experiments" "${experiments[@]}"
exit "$status"
