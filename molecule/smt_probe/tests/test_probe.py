# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was measured in guests whose CPUs are pinned, against how they are pinned."""

from __future__ import annotations

import pytest

# CPUs of a guest that run on one CPU of the host, by the pins in molecule.yml, and whether its kernel knows.
TRUTH = {
    "smt-probe-agrees": (["0-1", "2-3"], "", True),
    "smt-probe-misled": (["0-1", "2-3"], "", False),
    "smt-probe-none": ([], "0-1", True),
}


@pytest.fixture
def facts(host):
    """The facts as a later play gets them."""
    return host.ansible("threadwise.smt.smt_facts", check=True)["ansible_facts"]["smt"]


def test_no_claim_is_wrong(host, facts):
    pairs, singles, agrees = TRUTH[host.ansible.get_variables()["inventory_hostname"]]
    measured = facts["measured"]
    assert set(measured["pairs"]) <= set(pairs)
    assert measured["singles"] in ("", singles)
    assert measured["agrees_with_kernel"] in (agrees, None)


def test_it_is_clear_when_this_machine_is_calm(host, facts):
    pairs, singles, agrees = TRUTH[host.ansible.get_variables()["inventory_hostname"]]
    measured = facts["measured"]
    assert (measured["pairs"], measured["singles"], measured["unclear"], measured["agrees_with_kernel"]) == (
        pairs,
        singles,
        "",
        agrees,
    )


def test_auto_measures_where_a_guest_claims_no_smt(host, facts):
    claims_none = facts["threads_per_core"]["max"] == 1
    assert host.ansible("threadwise.smt.smt_probe", "mode=auto", check=True)["probed"] is claims_none


def test_nothing_is_left_but_what_was_measured(host):
    assert host.check_output("pgrep -fc '[s]mt_probe' || true") == "0"
    kept = host.file("/var/lib/threadwise-smt/siblings.json")
    assert (kept.user, kept.mode) == ("root", 0o644)


def test_another_boot_makes_it_void(host, facts):
    host.run_expect(
        [0],
        "cp /var/lib/threadwise-smt/siblings.json /root/kept && sed -i s/$(cat /proc/sys/kernel/random/boot_id)/other/"
        " /var/lib/threadwise-smt/siblings.json",
    )
    try:
        assert host.ansible("threadwise.smt.smt_facts", check=True)["ansible_facts"]["smt"]["measured"] is None
    finally:
        host.run_expect([0], "mv /root/kept /var/lib/threadwise-smt/siblings.json")
    assert facts["measured"] is not None
