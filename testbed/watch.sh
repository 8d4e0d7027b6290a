#!/bin/sh
# Runs in a guest beside its script and writes to the console: every five seconds a sign of life, and twenty seconds
# before guest.sh ends the guest, who waits where. $1: after how many seconds that is.
who_waits() {
    for task in /proc/[0-9]*/task/*; do
        # Threads of the kernel have no command line; the kernel names those that are blocked.
        [ -n "$(tr -d '\0' <"$task/cmdline")" ] || continue
        state=$(sed -n 's/^State:[[:space:]]*//p' "$task/status")
        echo "$task $(cat "$task/comm") $state: $(sed 's/^\[[^]]*\] *//; s/+.*//' "$task/stack" | head -6 | tr '\n' ' ')"
    done 2>/dev/null
    echo 8 >/proc/sys/kernel/printk
    echo w >/proc/sysrq-trigger
    echo l >/proc/sysrq-trigger
}
said=""
while read -r up rest </proc/uptime; do
    echo "guest: alive at $up s"
    if [ -z "$said" ] && [ "${up%.*}" -gt $(($1 - 20)) ]; then
        said=yes
        echo "guest: not done yet; who waits where:"
        who_waits
    fi
    sleep 5
done
