# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run-time changes on Linux 6.12, after a round of boots that ended with SMT enabled."""

from __future__ import annotations

from guest import SAVED, control, cores_of, firsts, online, smt_state


def test_off_and_back(host):
    cores = cores_of(host)
    assert online(host) == firsts(cores, 2)
    done = smt_state(host, state="disabled")
    assert (done["changed"], online(host), control(host)) == (True, firsts(cores, 1), "off")
    assert smt_state(host, state="disabled")["changed"] is False
    assert smt_state(host, state="restored")["not_restored"] == []
    assert (online(host), control(host)) == (firsts(cores, 2), "on")
    assert not host.file(SAVED).exists


def test_nothing_about_smt_is_left_in_grub(host):
    assert host.run("grep -E 'nosmt|maxcpus' /boot/grub/grub.cfg /proc/cmdline").rc == 1
