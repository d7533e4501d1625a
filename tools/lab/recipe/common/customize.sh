#!/bin/sh
# Runs inside the new root file system, once the packages are there. It and the keys lie in /root/lab.
set -eu

echo lab >/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 lab\n' >/etc/hosts
echo 'LABEL=root / ext4 errors=remount-ro 0 1' >/etc/fstab

# The address is the one to which QEMU's user network forwards; nothing to wait for, nothing to resolve.
cat >/etc/systemd/network/lab.network <<'NETWORK'
[Match]
Name=en*
[Network]
Address=10.0.2.15/24
LinkLocalAddressing=no
NETWORK
systemctl enable --quiet systemd-networkd
systemctl disable --quiet systemd-networkd-wait-online 2>/dev/null || true

install -d -m 700 /root/.ssh
install -m 600 /root/lab/id_ed25519.pub /root/.ssh/authorized_keys
rm -f /etc/ssh/ssh_host_*
install -m 600 /root/lab/host_ed25519 /etc/ssh/ssh_host_ed25519_key
install -m 644 /root/lab/host_ed25519.pub /etc/ssh/ssh_host_ed25519_key.pub
rm -r /root/lab
echo 'UseDNS no' >/etc/ssh/sshd_config.d/lab.conf

# A guest is quiet until it is asked: no timers, no database that runs by itself.
systemctl mask --quiet apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer

# Where packages come from is a matter of the machine that built this.
rm -f /etc/apt/apt.conf.d/99mmdebstrap /etc/apt/sources.list.d/*
: >/etc/apt/sources.list
