# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest after a round of boots that ended with SMT enabled."""

from __future__ import annotations


def test_each_file_of_etc_default_is_as_it_was(host):
    now = host.check_output("find /etc/default -exec ls -lnd --time-style=+ {} + -type f -exec sha256sum {} +")
    assert now == host.file("/root/etc-default").content_string.rstrip("\n")


def test_nothing_about_smt_is_left_in_grub(host):
    assert host.run("grep -E 'nosmt|maxcpus' /boot/grub/grub.cfg /proc/cmdline").rc == 1


def test_all_siblings_run(host):
    assert host.check_output("cat /sys/devices/system/cpu/smt/active /sys/devices/system/cpu/online") == "1\n0-7"


def test_nothing_is_left_beside_the_files(host):
    assert host.check_output("find /etc /boot -name '*threadwise*'") == ""
