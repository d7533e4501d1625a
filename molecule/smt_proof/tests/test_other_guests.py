# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proofs of guests of other kinds, and what is wrong on them by intent."""

from __future__ import annotations

import json

import pytest
from proofs import document, prove, reached

# Each fails if something does not hold.
FAILED = 2
SHARED, WITHOUT_CONTROL = "smt-proof-shared", "smt-proof-arm64"
CPUS = "/sys/devices/system/cpu"


@pytest.mark.parametrize(
    ("guest", "siblings", "control"),
    # Siblings that share nothing contradict the kernel, or it does not become clear beside other work.
    [(SHARED, ["holds"], "on"), (WITHOUT_CONTROL, ["fails", "open"], "notimplemented")],
)
def test_a_guest_of_which_it_is_known_what_its_siblings_share(guest, siblings, control, tmp_path):
    host = reached(guest)
    state = f"cat {CPUS}/online {CPUS}/smt/control /proc/irq/*/smp_affinity_list; grep Cpus_allowed_list /proc/1/status"
    before = host.check_output(state)
    assert control in before
    done = prove(guest, tmp_path, smt_proof_seconds=270)
    print(done.stdout[-6000:], done.stderr[-2000:])
    found = document(guest, tmp_path)
    assert found["findings"]["facts"] == found["findings"]["switch"] == "holds", found
    assert found["findings"]["siblings"] in siblings, found["siblings"]
    assert found["switch"]["cpus"] == "1,3" and found["switch"]["seconds_back"] > 0
    assert found["findings"]["equal arms"] == "holds" and found["equal"]["blocks"] >= 4, found["equal"]
    # The effect is in its interval; it is found where this machine is quiet enough for one of this size.
    planted = found["planted"]
    assert planted["low"] <= 0.05 <= planted["high"] + 0.005, planted
    assert found["findings"]["known effect"] == ("holds" if planted["called"] else "fails")
    assert planted["called"] or planted["least"] > 0.05, planted
    assert (done.returncode == 0) == ("fails" not in found["findings"].values()), done.stdout
    assert host.check_output(state) == before
    assert guest not in json.dumps(found)


def test_other_work_that_keeps_a_cpu_busy_is_named(tmp_path):
    host = reached(SHARED)
    host.check_output("systemd-run --quiet --unit=busy bash -c 'while :; do :; done'")
    try:
        done = prove(SHARED, tmp_path, smt_proof_seconds=120, smt_proof_switch=False)
        found = document(SHARED, tmp_path)
    finally:
        host.check_output("systemctl stop busy")
    assert done.returncode == FAILED and found["findings"]["quiet"] == "fails", done.stdout
    assert found["switch"] is None and found["findings"]["switch"] == "open"


def test_a_clock_of_ticks_is_named(tmp_path):
    host = reached(SHARED)
    drop_in = "/etc/default/grub.d/coarse.cfg"
    reboot = ("ansible.builtin.reboot", "reboot_timeout=1800")
    host.check_output(
        "mkdir -p /etc/default/grub.d && echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX highres=off nohz=off\"' >%s"
        " && update-grub 2>&1",
        drop_in,
    )
    try:
        host.ansible(*reboot, check=False)
        done = prove(SHARED, tmp_path, smt_proof_seconds=60, smt_proof_switch=False)
        found = document(SHARED, tmp_path)
    finally:
        host.check_output("rm -f %s && update-grub 2>&1", drop_in)
        host.ansible(*reboot, check=False)
    assert done.returncode == FAILED and found["findings"]["instruments"] == "fails", done.stdout
    (timer,) = [one for one in found["instruments"] if one["name"] == "timer"]
    assert not timer["usable"] and "ms late" in timer["detail"], timer
    assert "samples have to be" in done.stdout
