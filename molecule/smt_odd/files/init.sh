#!/bin/sh
# The init of a host without systemd: what ssh needs, and no more. The initrd has mounted /dev, /proc, /run and /sys.
mount -o remount,rw /
mkdir -p /dev/pts /dev/shm /run/sshd
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
modprobe virtio_net
# Without udev the card has the kernel's name. The address is the one to which QEMU's user network forwards.
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
/usr/sbin/sshd
while :; do
    sleep 60
done
