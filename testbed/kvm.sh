#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner --file MODULE:/kvm/NUMBER-MODULE... KERNEL
# testbed/kvm.sh, with the modules that `fetch-kernel.sh --modules SERIES kvm` prints): what a VM exit costs, asked by a
# host that has a KVM. QEMU emulates AMD's virtualization too, so the VM of one page is a real one, on a processor that
# is not.

. /checks.sh

exits() { # exits NAME: the probe, as JSON
    gleaner host probe --json >"/tmp/$1.json" 2>"/tmp/$1.txt"
    check "the probe ends with 0 ($1)" [ $? = 0 ]
    grep exit "/tmp/$1.txt"
    json "$1" "/tmp/$1.json"
}
exits without
for module in /kvm/*.ko; do
    check "$module is inserted" insmod "$module"
done
check "there is a /dev/kvm" [ -c /dev/kvm ]
exits with
# A VM that is left holds the module.
check "nothing of the VM is left" rmmod kvm_amd

exit $failures
