#!/bin/sh
# Runs inside an emulated guest: what `gleaner run` costs a program that ends at once, beside the bare program.
#   gcc -O1 -static -o /tmp/ms experiments/start/ms.c
#   testbed/guest.sh --binary target/gleaner --file /tmp/ms:/bin/ms --timeout 600 KERNEL experiments/start/guest.sh 16
# The first figure is that of the first run of the boot. Then ms of each round, a mode a line.

under() { # under MODE COMMAND...
    name=$1
    shift
    case $name in
        bare) ms "$@" ;;
        default) ms gleaner run -q -- "$@" ;;
        latency) ms gleaner run -q --profile latency -- "$@" ;;
        observe) ms gleaner run -q --policy observe -- "$@" ;;
    esac
}
rounds() { # rounds N COMMAND...
    left=$1
    shift
    echo "$*, $(nproc) vCPUs"
    for mode in bare default latency observe; do : >"/tmp/$mode"; done
    while [ "$left" -gt 0 ]; do
        for mode in bare default latency observe; do under $mode "$@" >>"/tmp/$mode"; done
        left=$((left - 1))
    done
    for mode in bare default latency observe; do echo "$mode $(cat "/tmp/$mode")"; done
}
true=$(command -v busybox)
echo "bare, before: $(ms "$true" true)$(ms "$true" true)$(ms "$true" true)"
echo "first run of this boot: $(under default "$true" true)"
rounds "${ROUNDS:-12}" "$true" true
rounds 5 "$true" sleep 0.3
