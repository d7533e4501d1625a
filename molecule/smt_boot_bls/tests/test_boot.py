# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest of systemd-boot after a round of boots that ended with SMT enabled."""

from __future__ import annotations


def test_the_boot_files_are_as_they_were_byte_for_byte(host):
    host.run_test("sha256sum --check --quiet /root/boot-files")


def test_no_entry_turns_smt_off_also_not_that_of_the_later_kernel(host):
    assert host.check_output("ls /boot/efi/loader/entries | wc -l") == "2"
    assert host.run("grep -rE 'nosmt|maxcpus' /boot/efi/loader /etc/kernel/cmdline /proc/cmdline").rc == 1


def test_quoted_options_and_crlf_line_ends_stay(host):
    assert host.check_output("grep -c '^options \"root=.*\"\r$' /boot/efi/loader/entries/*.CONF") == "1"


def test_all_siblings_run(host):
    assert host.check_output("cat /sys/devices/system/cpu/smt/active /sys/devices/system/cpu/online") == "1\n0-7"


def test_nothing_is_left_beside_the_files(host):
    assert host.check_output("find /etc /boot -name '*threadwise*'") == ""
