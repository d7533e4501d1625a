# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of a fleet are measured for which others."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import sample

CLASSES = {"web2": "x86-b", "db1": "x86-a", "web1": "x86-b", "old1": None, "web3": "x86-b", "old2": None}


def test_the_first_hosts_of_each_class_are_measured_in_the_order_of_the_play():
    shares = sample.choose(CLASSES, 2)
    assert [(one.hardware_class, one.measured) for one in shares] == [
        ("x86-a", ("db1",)),
        ("x86-b", ("web2", "web1")),
        (None, ("old1", "old2")),
    ]


def test_who_is_represented_is_said():
    sentences = [sample.sentence(one, True) for one in sample.choose(CLASSES, 1)]
    assert sentences == [
        "x86-a: db1 measured, for db1.",
        "x86-b: web2 measured, for web2, web1, web3.",
        "Hardware class not known: old1 measured, for no other host.",
    ]


def test_hosts_of_a_class_share_the_work_of_one_and_hosts_without_a_class_do_not():
    known, several, unknown = sample.choose(CLASSES, 2)
    assert (known.shared_by, several.shared_by, unknown.shared_by) == (1, 2, 1)
    said = "x86-b: web2, web1 measured, for web2, web1, web3."
    assert (
        sample.sentence(several, True)
        == f"{said} Each measures for 1/2 of smt_eval_budget, and longer only until it has 6 blocks."
    )
    assert sample.sentence(several, False) == said
    assert sample.sentence(unknown, True) == "Hardware class not known: old1, old2 measured, for no other host."
