# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of a fleet are measured for which others."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import sample

CLASSES = {"web2": "x86-b", "db1": "x86-a", "web1": "x86-b", "old1": None, "web3": "x86-b", "old2": None}


def test_the_first_hosts_of_each_class_are_measured_in_the_order_of_the_play():
    shares = sample.choose(CLASSES, 2)
    assert [(one.hardware_class, one.measured) for one in shares] == [("x86-a", ("db1",)), ("x86-b", ("web2", "web1")), (None, ("old1", "old2"))]


def test_who_is_represented_is_said():
    sentences = [sample.sentence(one) for one in sample.choose(CLASSES, 1)]
    assert sentences == [
        "x86-a: db1 measured, for db1.",
        "x86-b: web2 measured, for web2, web1, web3.",
        "Hardware class not known: old1 measured, for no other host.",
    ]
