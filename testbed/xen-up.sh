# Sourced by the scripts that run in a Xen dom0 (xen.sh puts it at /xen-up.sh): xenstored, without which xl hangs, and
# the names of dom0 in it.

mount -t xenfs xenfs /proc/xen
mkdir -p /var/lib/xenstored /var/lib/xen /var/log/xen /run/xenstored /run/xen
ln -sfn /run /var/run
xenstored --pid-file /run/xenstored.pid
within 30 test -S /run/xenstored/socket
xen-init-dom0
