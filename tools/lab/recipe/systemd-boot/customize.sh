#!/bin/sh
# Runs inside the new root file system, once the packages are there.
set -eu

echo 'root=LABEL=root ro console=ttyS0' >/etc/kernel/cmdline
mkdir -p /boot/efi

# A small initrd: emulated processors unpack it slowly.
sed -i 's/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf
printf 'virtio_pci\nvirtio_blk\next4\nvfat\nnls_ascii\nnls_cp437\n' >>/etc/initramfs-tools/modules
update-initramfs -u
