#!/bin/sh
# The only process of the system that nobody starts: mounts what a host has, and answers by ssh.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /root/.ssh /run /tmp /var/lib
mount -t devpts pts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
@LOAD@
echo root:x:0:0:root:/root:/bin/sh >/etc/passwd
echo root:x:0: >/etc/group
printf '127.0.0.1 localhost\n127.0.1.1 lab\n' >/etc/hosts
cp /root/lab/id_ed25519.pub /root/.ssh/authorized_keys
ip link set lo up
ip link set eth0 up
# The one address that QEMU's user network leads to.
ip addr add 10.0.2.15/24 dev eth0
dropbearconvert openssh dropbear /root/lab/host_ed25519 /run/host_key
exec dropbear -F -E -s -r /run/host_key
