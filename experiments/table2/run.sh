#!/usr/bin/env bash
# Table 2: what a wake-up takes in settings A to D, on this machine and in test-bed guests. About three minutes.
#
#   experiments/table2/run.sh [machine] [guests]      default: both
. "$(dirname "$0")/../lib.sh" "$@"
wanted=" ${*:-machine guests} "

[[ $wanted != *" machine "* ]] || fresh "$folder"/machine-gap-{50,1000,4000}.json
if [[ $wanted == *" guests "* ]]; then
    for series in 6.1 6.18 new; do fresh "$folder/guest-$series.json" "$folder/guest-$series-beside-matmul.json"; done
fi
if [[ $wanted == *" machine "* ]]; then
    for gap in 50 1000 4000; do
        say "this machine, gap $gap us"
        "$gleaner" probe --gap-us $gap --samples 1000 --load --json "$folder/machine-gap-$gap.json"
    done
fi
if [[ $wanted == *" guests "* ]]; then
    scripts/setup.sh build test >&2
    # In a guest: A, B, C, and D with a hog in the guest itself; then C again beside a second VM that computes, which is
    # the paper's D.
    cat >"$folder/probe.sh" <<'END'
#!/bin/sh
gleaner probe --gap-us 1000 --samples 500 --load --json /tmp/p.json >/dev/null 2>&1 && tr -d '\n' </tmp/p.json && echo
END
    printf '#!/bin/sh\ngleaner workload matmul --threads 2 --seconds 0 >/dev/null\n' >"$folder/matmul.sh"
    neighbour=""
    # guest.sh takes its guest along.
    trap '[[ -z $neighbour ]] || kill $neighbour 2>/dev/null' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    while read -r series kernel; do
        say "guest $series, alone"
        testbed/guest.sh --binary "$gleaner" "$kernel" "$folder/probe.sh" 2 >"$folder/guest-$series.json"
        say "guest $series, beside a VM that computes (D)"
        testbed/guest.sh --binary "$gleaner" --timeout 300 "$kernel" "$folder/matmul.sh" 2 >/dev/null 2>&1 &
        neighbour=$!
        sleep 15
        testbed/guest.sh --binary "$gleaner" "$kernel" "$folder/probe.sh" 2 >"$folder/guest-$series-beside-matmul.json"
        kill "$neighbour"
        wait "$neighbour" || true
        neighbour=""
    done < <(testbed/fetch-kernel.sh 6.1 newest)
    rm -f "$folder/probe.sh" "$folder/matmul.sh"
fi
{
    echo "setting p50/p99 in us"
    for file in "$folder"/*.json; do
        printf '%-32s' "$(basename "$file" .json)"
        jq -r '[.settings[] | "\(.setting) \(.p50_ns / 100 | round / 10)/\(.p99_ns / 100 | round / 10)"] | join("   ")' "$file"
    done
} | tee "$folder/summary.txt"
