#!/bin/sh
# The first process of the initrd: loads what the disk needs and goes over to it, with lab.init= of the kernel's command line or its own init.
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sys /sys
/busybox mount -t devtmpfs dev /dev
@LOAD@
init=/sbin/init
for word in $(/busybox cat /proc/cmdline); do
    case $word in lab.init=*) init=${word#lab.init=} ;; esac
done
/busybox mount -t ext4 /dev/vda /root
/busybox mount --move /dev /root/dev
/busybox umount /proc /sys
exec /busybox switch_root /root "$init"
