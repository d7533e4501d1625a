# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the real grub made of an administrator's settings that turn SMT off,
after `enabled` and a run that was killed.
"""

from __future__ import annotations

import shlex


def test_no_entry_turns_smt_off_and_each_keeps_the_rest(host):
    text = host.file("/boot/grub/grub.cfg").content_string
    entries = [shlex.split(line)[2:] for line in text.splitlines() if line.strip().startswith("linux\t")]
    assert len(entries) >= 3
    for words in entries:
        assert not [word for word in words if "nosmt" in word or word.startswith("maxcpus")]
        assert "console=ttyS0" in words and "dyndbg=file smp.c  +p" in words
        assert "mds=full" in words or "single" in words


def test_the_administrators_files_are_his(host):
    assert "GRUB_CMDLINE_LINUX_DEFAULT='quiet nosmt=force'\n" in host.file("/etc/default/grub").content_string
    assert "maxcpus=4" in host.file("/etc/default/grub.d/50-cloudimg-settings.cfg").content_string


def test_nothing_is_left_beside_the_files(host):
    assert host.check_output("find /etc /boot -name '.*threadwise*'") == ""


def test_grub_understands_its_configuration(host):
    host.run_test("grub-script-check /boot/grub/grub.cfg")
