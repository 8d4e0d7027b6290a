#!/bin/sh
# Runs inside a guest under Debian's own systemd: the package's life, from `dpkg -i` to purge, with Redis as a service.
#
#   scripts/check-service.sh       builds what is needed and boots the guest
#
# /testbed has the package as old.deb and, with a higher version, as new.deb. Checks what systemd and Gleaner say of
# themselves, and that after the purge the machine is as it was: files, cgroups, PM QoS limits, parameters.

. /testbed/checks.sh
usleep() { sleep 0.1; }

began=0
took() { # took WHAT: seconds since the last one
    now=$(cut -d' ' -f1 /proc/uptime)
    awk -v what="$1" -v now="$now" -v began="$began" 'BEGIN { printf "took %.1f s: %s\n", now - began, what }'
    began=$now
}
settings() { # what Gleaner may set
    cat /sys/module/haltpoll/parameters/* /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us 2>/dev/null
    find /sys/fs/cgroup -type d -name 'gleaner*' | grep -v '/gleaner\.service$'
    for kind in bpf pinned; do find /sys/fs/$kind -mindepth 1 2>/dev/null; done
}
# Folders are compared by name, and what a package manager and a journal write for themselves is left out.
files() {
    find / -xdev \( -path /testbed -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /tmp -o -path /var/tmp \
        -o -path /var/lib/redis -o -path /var/lib/systemd/random-seed \) -prune -o -print | sort
    find /run/gleaner 2>/dev/null | sort
    find /run/systemd/system /etc/systemd /var/lib/systemd -name '*gleaner*'
}
property() { systemctl show --value -p "$1" gleaner; }
is() { [ "$(property "$1")" = "$2" ]; }
says() { gleaner $1 2>&1 | grep -q "$2"; }
logged() { journalctl -q -u gleaner -o cat --no-pager | grep -q "$1"; }
restored() { [ "$(settings)" = "$before" ]; }
takes_a_signal() { # takes_a_signal SIGNAL WHAT: the main process, and systemd starts another one
    old=$(property MainPID)
    kill "-$1" "$old"
    another() { [ "$(property MainPID)" != "$old" ] && is ActiveState active; }
    check "$2: systemd starts it anew" within 60 another
    check "$2: redis is managed again" within 20 says status 'redis .*latency'
}

took "boot"
echo "kernel $(uname -r), $(nproc) vCPUs, $(systemctl --version | head -n 1), Debian $(cat /etc/debian_version)"
systemctl start redis-server
check "redis answers" within 30 sh -c '[ "$(redis-cli ping)" = PONG ]'
took "redis"
settings_before=$(settings)
before=$settings_before
files >/tmp/files.before

# --- installed --------------------------------------------------------------------------------------------------------
dpkg -i /testbed/old.deb >/tmp/dpkg 2>&1
check "the package is installed" [ $? = 0 ]
took "dpkg -i"
check "the package started the service" is ActiveState active
check "it is to start at boot" [ "$(systemctl is-enabled gleaner)" = enabled ]
check "systemd waited until it was ready (Type=notify)" is Type notify
check "with no group it watches the machine" within 10 says status 'machine .*would\|machine .*left alone'
check "with no group it changes nothing" restored
systemd-analyze security --no-pager gleaner 2>&1 | grep -E 'Overall|✗' | sed 's/^/security: /'
took "systemd-analyze security"
check "it says which capabilities it keeps" logged 'capabilities kept: CAP_'
least() { # not one of its threads may load modules, or read and write whatever it likes
    for task in /proc/"$(property MainPID)"/task/*; do
        has=0x$(sed -n 's/^CapEff:\t//p' "$task/status")
        [ $((has & (1 << 1 | 1 << 16))) = 0 ] || return 1
    done
}
check "its threads have none that they do not need" least

# --- redis.service by name --------------------------------------------------------------------------------------------
cat >>/etc/gleaner/gleaner.toml <<'EOF'
[group.redis]
unit = "redis"
profile = "latency"
EOF
check "its configuration is right" says 'config check' right
systemctl reload gleaner
check "systemctl reload ends with 0" [ $? = 0 ]
check "it manages redis.service" within 10 says status 'redis .*latency'
check "systemd reads so" within 10 is StatusText 'managing one group'
(while redis-benchmark -c 1 -n 300 -t get -q; do :; done) >/dev/null 2>&1 &
load=$!
kept() { gleaner status --json 2>/dev/null | grep -q '"trial": *{' || says status 'kept awake [^n]'; }
check "it tries retention on redis" within 60 kept
gleaner status
gleaner explain redis | tail -n 12
check "the machine has what the daemon set" gleaner verify
took "managed"
sed -i 's/profile = "latency"/profile = "latencie"/' /etc/gleaner/gleaner.toml
systemctl reload gleaner 2>/dev/null
check "a broken reload fails" [ $? != 0 ]
check "the service stays as it was" says status 'redis .*latency'
check "the status says which line is wrong" says status 'gleaner.toml:.*latencie'
sed -i 's/profile = "latencie"/profile = "latency"/' /etc/gleaner/gleaner.toml
systemctl reload gleaner
check "a right one succeeds again" [ $? = 0 ]

# --- killed and stopped -----------------------------------------------------------------------------------------------
mkdir -p /etc/systemd/system/gleaner.service.d
printf '[Service]\nWatchdogSec=4\nRestartSec=1\n' >/etc/systemd/system/gleaner.service.d/quick.conf
systemctl daemon-reload
systemctl restart gleaner
check "it starts again" within 20 says status 'redis .*latency'
first=$(property MainPID)
sleep 10
check "the watchdog hears of it" [ "$(property MainPID)" = "$first" ]
took "watchdog"
takes_a_signal KILL "kill -9"
took "kill -9"
# Its guardian with it: what they had changed, ExecStopPost undoes.
old=$(property MainPID)
kill -9 "$old" $(pgrep -P "$old")
another() { [ "$(property MainPID)" != "$old" ] && is ActiveState active; }
check "both killed: systemd starts it anew" within 60 another
check "both killed: redis is managed again" within 20 says status 'redis .*latency'
took "kill -9 of both"
takes_a_signal STOP "a hang"
check "the watchdog ended it" sh -c "journalctl -q -b --no-pager | grep -q 'gleaner.service: Watchdog timeout'"
took "hang"
head -c 2G /dev/zero >/run/full 2>/dev/null
systemctl restart gleaner
check "with a full /run it starts all the same" within 20 is ActiveState active
check "with a full /run it changes nothing" restored
rm /run/full
systemctl restart gleaner
check "with room again redis is managed" within 20 says status 'redis .*latency'
took "a full /run"
systemctl stop gleaner
check "stopped, everything is as it was" within 10 restored
# A unit's filter kills who calls what it leaves out, as long as it names no error.
filtered() { # filtered FILTER: a program under gleaner in a unit with this filter
    printf '[Service]\nType=oneshot\nSystemCallFilter=%s\nExecStart=gleaner run -q --no-daemon -- sh -c "sleep 0.5; exit 3"\n' \
        "$1" >/run/systemd/system/filtered.service
    systemctl daemon-reload
    systemctl start filtered 2>/dev/null
    [ "$(systemctl show --value -p ExecMainStatus filtered)" = 3 ]
    ended=$?
    rm /run/systemd/system/filtered.service
    systemctl reset-failed filtered
    systemctl daemon-reload
    return $ended
}
check "a unit's filter without bpf costs nobody a run" filtered @system-service
check "a unit's filter without @resources costs nobody a run" filtered '~@resources'
took "filters"
check "nothing failed" [ "$(systemctl is-failed gleaner)" = inactive ]
systemctl start gleaner

# --- upgraded, removed, purged ----------------------------------------------------------------------------------------
old=$(property MainPID)
dpkg -i /testbed/new.deb >>/tmp/dpkg 2>&1
check "the upgrade ends with 0" [ $? = 0 ]
check "the new one runs" [ "$(property MainPID)" != "$old" ]
check "it is active" is ActiveState active
check "it kept the configuration" within 20 says status 'redis .*latency'
took "upgrade"
dpkg --remove gleaner >>/tmp/dpkg 2>&1
check "it is removed" [ $? = 0 ]
check "the service is gone" is ActiveState inactive
check "no process is left" sh -c '! pgrep -x gleaner'
check "removed, everything is as it was" within 10 restored
check "the configuration stays" [ -s /etc/gleaner/gleaner.toml ]
rm -r /etc/systemd/system/gleaner.service.d
dpkg --purge gleaner >>/tmp/dpkg 2>&1
check "it is purged" [ $? = 0 ]
systemctl daemon-reload
kill $load 2>/dev/null
files >/tmp/files.after
check "systemd knows nothing of it" is LoadState not-found
check "no file is left" cmp -s /tmp/files.before /tmp/files.after
diff /tmp/files.before /tmp/files.after | grep '^[<>]' | head -n 20
check "no setting and no cgroup is left" restored
check "no cgroup of the service is left" [ ! -d /sys/fs/cgroup/system.slice/gleaner.service ]
took "remove and purge"
check "redis goes on" sh -c '[ "$(redis-cli ping)" = PONG ]'

journalctl -q -u gleaner -o cat --no-pager | sed 's/^/journal: /' | tail -n 60
[ $failures = 0 ] || { cat /tmp/dpkg; journalctl -q -b -p warning --no-pager | tail -n 40; }
exit $failures
