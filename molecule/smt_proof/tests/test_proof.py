# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proofs of a guest whose siblings share nothing: a real kernel takes them offline and brings them back."""

from __future__ import annotations

import json

import pytest
from proofs import document, prove

GUEST = "smt-proof"
testinfra_hosts = [f"ansible://{GUEST}"]
ONLINE = "/sys/devices/system/cpu/online"


@pytest.fixture(name="pinned")
def pin_a_process_of_a_user(host):
    """A thread of an ordinary user that may run on CPU 3 alone: kernels before 6.2 do not give it back."""
    host.check_output("useradd --no-create-home pinned 2>/dev/null; true")
    host.check_output("systemd-run --quiet --unit=pinned --uid=pinned taskset -c 3 sleep 10000")
    yield host.check_output("systemctl show --property=MainPID --value pinned")
    host.check_output("systemctl stop pinned")


def test_a_whole_proof(host, pinned, tmp_path):
    before = host.check_output(f"cat {ONLINE}; taskset -pc {pinned}")
    done = prove(GUEST, tmp_path, smt_proof_seconds=240)
    print(done.stdout[-6000:], done.stderr[-2000:])
    found = document(GUEST, tmp_path)
    assert found["findings"]["facts"] == "holds"
    assert {one["source"] for one in found["views"] if one["answered"]} >= {"lscpu", "topology/core_cpus_list"}
    # The truth of this guest: its siblings are two threads of the emulator, which share nothing.
    assert found["findings"]["siblings"] in ("fails", "open") and found["siblings"]["agrees_with_kernel"] is not True
    assert found["findings"]["switch"] == "holds", found["switch"]
    assert found["switch"]["cpus"] == "1,3" and found["switch"]["seconds_off"] > 0
    assert found["findings"]["equal arms"] == "holds" and found["equal"]["blocks"] >= 5
    assert found["planted"]["low"] <= 0.05 <= found["planted"]["high"] + 0.005
    assert host.check_output(f"cat {ONLINE}; taskset -pc {pinned}") == before
    assert not host.file("/var/lib/threadwise-smt/smt-snapshot.json").exists
    assert GUEST not in json.dumps(found) and "pinned" not in json.dumps(found)
    page = (tmp_path / "smt_proof_results" / "first" / "proof" / "index.html").read_text()
    assert GUEST in page and "were offline after" in page


def test_a_conflict_is_named_and_nothing_is_switched(host, tmp_path):
    host.check_output("systemd-run --quiet --unit=bound --property=CPUAffinity=3 sleep 10000")
    try:
        done = prove(GUEST, tmp_path, "--check")
        assert "would take its second threads offline once" in done.stdout, done.stdout + done.stderr
        assert "bound.service" in done.stdout and "Siblings were not switched" in done.stdout
        assert not (tmp_path / "smt_proof_results" / "first" / "proof").exists()
    finally:
        host.check_output("systemctl stop bound")


def test_a_cpu_that_the_kernel_refuses_is_named(host, tmp_path):
    """A file that cannot be written stands for a kernel that refuses."""
    path = "/sys/devices/system/cpu/smt/control"
    host.check_output(f"echo on >/run/refusing; mount --bind /run/refusing {path}; mount -o remount,bind,ro {path}")
    try:
        done = prove(GUEST, tmp_path, "--check")
        assert "Siblings were not switched" in done.stdout and "smt/control" in done.stdout, done.stdout
    finally:
        host.check_output(f"umount {path}")
