#!/bin/sh
# Runs where root/ is the root file system and disk.img the disk: puts the loader, the kernel and an entry for it on the EFI system partition, as
# `bootctl install` and `kernel-install` do it on a machine that runs.
version=$(basename root/lib/modules/*)
# The entries are named by it, so it is the same for each machine that boots from this image. mmdebstrap leaves none.
id=5ad0b007000000000000000000001ab0
echo "$id" >root/etc/machine-id
truncate -s "${ESP_MB}M" esp.img
mkfs.vfat -F 32 -n ESP esp.img >/dev/null
export MTOOLS_SKIP_CHECK=1
mmd -i esp.img ::/EFI ::/EFI/BOOT ::/EFI/systemd ::/loader ::/loader/entries "::/$id" "::/$id/$version"
loader=root/usr/lib/systemd/boot/efi/systemd-bootx64.efi
mcopy -i esp.img "$loader" ::/EFI/BOOT/BOOTX64.EFI
mcopy -i esp.img "$loader" ::/EFI/systemd/systemd-bootx64.efi
mcopy -i esp.img "root/boot/vmlinuz-$version" "::/$id/$version/linux"
mcopy -i esp.img "root/boot/initrd.img-$version" "::/$id/$version/initrd.img-$version"
printf 'timeout 0\nconsole-mode keep\n' >loader.conf
printf 'type1\n' >entries.srel
cat >entry.conf <<ENTRY
title      Debian GNU/Linux
version    $version
machine-id $id
sort-key   debian
options    $(cat root/etc/kernel/cmdline)
linux      /$id/$version/linux
initrd     /$id/$version/initrd.img-$version
ENTRY
mcopy -i esp.img loader.conf ::/loader/loader.conf
mcopy -i esp.img entries.srel ::/loader/entries.srel
mcopy -i esp.img entry.conf "::/loader/entries/$id-$version.conf"
dd if=esp.img of=disk.img bs=1M seek="$ESP_OFFSET_MB" conv=notrunc,sparse status=none
rm esp.img loader.conf entries.srel entry.conf
echo 'LABEL=ESP /boot/efi vfat umask=0077 0 1' >>root/etc/fstab
