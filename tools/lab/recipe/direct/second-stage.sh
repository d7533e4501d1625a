#!/bin/sh
# Runs once, as init of the new disk's first boot: configures the packages that debootstrap has unpacked, and powers off.
# Whoever started the machine waits for its end and looks for the last line.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/debootstrap/debootstrap --second-stage || { tail -n 20 /debootstrap/debootstrap.log; exec sleep 1000000; }
# Each machine that boots from this image makes its own.
: >/etc/machine-id
apt-get clean
sh /root/lab/customize.sh && done=yes
# debootstrap has unmounted it. The file system is written before the word is said, because nobody waits after it.
mount -t proc proc /proc
sync
[ "${done-}" = yes ] && echo "lab: the second stage is done"
for key in u o; do echo "$key" >/proc/sysrq-trigger; done
while :; do sleep 1; done
