#!/bin/sh
# A Proxmox VE hookscript: an agent of Gleaner's for a VM, as long as the VM runs.
#
#   cp gleaner-hook.sh /var/lib/vz/snippets/ && chmod +x /var/lib/vz/snippets/gleaner-hook.sh
#   qm set 101 --hookscript local:snippets/gleaner-hook.sh
#
# OPTIONS in /etc/gleaner/host.conf is what `gleaner host run` is told, such as OPTIONS="--slice 1ms". Proxmox calls it
# as `gleaner-hook.sh VMID PHASE`. One that fails in pre-start keeps a VM from starting, so this one never does.
vmid=${1:-} phase=${2:-}
OPTIONS=""
configuration=${GLEANER_HOST_CONF:-/etc/gleaner/host.conf}
# shellcheck source=/dev/null
[ ! -r "$configuration" ] || . "$configuration"
run=${GLEANER_QEMU_RUN:-/run/qemu-server}

set -f
case $vmid in
    "" | *[!0-9]*) ;;
    *)
        unit=gleaner-host-$vmid.service
        case $phase in
            post-start)
                # QEMU's own process: VMs may share a name. OPTIONS are words.
                # shellcheck disable=SC2086
                [ ! -r "$run/$vmid.pid" ] ||
                    systemd-run --quiet --collect --unit "$unit" --property ExecStopPost="/usr/bin/gleaner restore" \
                        /usr/bin/gleaner host run --vm "$(cat "$run/$vmid.pid")" $OPTIONS
                ;;
            # After a crash or a shutdown from inside there is no pre-stop.
            pre-stop | post-stop) systemctl --quiet stop "$unit" 2>/dev/null ;;
        esac
        ;;
esac </dev/null >/dev/null
exit 0
