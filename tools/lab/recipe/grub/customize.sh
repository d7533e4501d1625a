#!/bin/sh
# Runs inside the new root file system, once the packages are there.
set -eu

# Each machine that boots from this image makes its own.
: >/etc/machine-id

# A small initrd: emulated processors unpack it slowly.
sed -i 's/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf
printf 'virtio_pci\nvirtio_blk\next4\n' >>/etc/initramfs-tools/modules
update-initramfs -u

# A database that runs by itself is no quiet guest.
systemctl disable --quiet postgresql

# The administrator's /etc/default/grub stays as Debian ships it.
mkdir -p /etc/default/grub.d
cat >/etc/default/grub.d/10-lab.cfg <<'GRUB'
GRUB_TIMEOUT=0
GRUB_RECORDFAIL_TIMEOUT=0
GRUB_TERMINAL=serial
GRUB_DISABLE_OS_PROBER=true
GRUB_CMDLINE_LINUX_DEFAULT=""
GRUB_CMDLINE_LINUX="console=ttyS0"
GRUB
