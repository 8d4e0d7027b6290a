#!/bin/sh
# Runs inside a guest with the Debian image: real servers under Gleaner, each for a moment.
#
#   testbed/guest.sh --binary target/gleaner --image "$(testbed/image.sh)" --memory 1024 --timeout 300 KERNEL
#       testbed/debian-smoke.sh 2
#
# Checks that the programs work and that `gleaner run` does with them what it does with others; prints what each step
# took, and the figures of sysbench and redis-benchmark, of which none is judged: the guest is emulated.

. /checks.sh

began=0
took() { # took WHAT: seconds since the last one
    now=$(cut -d' ' -f1 /proc/uptime)
    awk -v what="$1" -v now="$now" -v began="$began" 'BEGIN { printf "took %.1f s: %s\n", now - began, what }'
    began=$now
}
in_debian() { chroot /debian "$@"; }
took "boot, modules and mount"
echo "kernel $(uname -r), $(nproc) vCPUs, image $(in_debian cat /etc/debian_version), $(df -m /debian | awk 'END { print $4 }') MiB free"
before=$(state)

# --- MariaDB and sysbench ---------------------------------------------------------------------------------------------
mkdir -p /run/mysqld
in_debian chown mysql /run/mysqld
in_debian mariadbd --user=mysql >/tmp/mariadbd.log 2>&1 &
mariadbd=$!
answers() { in_debian mariadb-admin ping >/dev/null 2>&1; }
check "mariadbd answers" within 60 answers
took "mariadbd starts"
in_debian mariadb -e 'create database sbtest'
oltp="sysbench oltp_read_write --mysql-socket=/run/mysqld/mysqld.sock --mysql-user=root --tables=1 --table-size=1000"
in_debian $oltp prepare >/tmp/prepare.txt 2>&1
check "sysbench prepares a table" [ $? = 0 ]
took "sysbench prepare"
# Gleaner manages what it starts: here the client; `gleaner run -- chroot /debian mariadbd` manages the server.
gleaner run --quiet --json /tmp/run.json -- chroot /debian $oltp --threads=4 --time=2 run >/tmp/oltp.txt 2>&1
check "sysbench oltp_read_write under Gleaner ends with 0" [ $? = 0 ]
check "it made transactions" grep -qE 'transactions: *[1-9]' /tmp/oltp.txt
grep -E 'transactions:|95th percentile' /tmp/oltp.txt
json run-sysbench /tmp/run.json
took "sysbench oltp_read_write"
in_debian mariadb-admin shutdown
wait $mariadbd
check "mariadbd ends with 0" [ $? = 0 ]
took "mariadbd ends"

# --- Redis -----------------------------------------------------------------------------------------------------------
gleaner run --quiet --json /tmp/run.json -- chroot /debian redis-server --port 6379 --save '' --daemonize no >/tmp/redis.log 2>&1 &
redis=$!
ping() { [ "$(in_debian redis-cli ping 2>/dev/null)" = PONG ]; }
check "redis-server under Gleaner answers" within 30 ping
in_debian redis-benchmark -q -n 200 -c 4 -t set,get >/tmp/benchmark.txt 2>&1
check "redis-benchmark ends with 0" [ $? = 0 ]
tr '\r' '\n' </tmp/benchmark.txt | grep 'requests per second'
in_debian redis-cli shutdown nosave
wait $redis
check "redis-server under Gleaner ends with 0" [ $? = 0 ]
json run-redis /tmp/run.json
took "redis"

# --- two compressors with threads -------------------------------------------------------------------------------------
head -c 300000 /debian/usr/sbin/mariadbd >/tmp/input
for tool in pigz pbzip2; do
    in_debian $tool -c -p2 /tmp/input >/tmp/packed && in_debian $tool -dc /tmp/packed >/tmp/unpacked
    check "$tool packs and unpacks" cmp -s /tmp/input /tmp/unpacked
done
took "pigz and pbzip2"
same "everything is as it was" "$before"

[ $failures = 0 ] || tail -n 20 /tmp/mariadbd.log /tmp/prepare.txt /tmp/oltp.txt /tmp/redis.log
exit $failures
