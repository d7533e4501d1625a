# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of a fleet are measured for which others."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import sample

CLASSES = {"web2": "x86-b", "db1": "x86-a", "web1": "x86-b", "old1": None, "web3": "x86-b", "old2": None}


def test_the_first_hosts_of_each_class_are_measured_in_the_order_of_the_play():
    shares = sample.choose(CLASSES, 2)
    measured = [("x86-a", ("db1",)), ("x86-b", ("web2", "web1")), (None, ("old1", "old2"))]
    assert [(one.hardware_class, one.measured) for one in shares] == measured
    # Hosts of a class share the work of one, and hosts without a class do not.
    assert [one.shared_by for one in shares] == [1, 2, 1]


@pytest.mark.parametrize(
    ("place", "is_shared", "sentence"),
    [
        (0, True, "x86-a: db1 measured, for db1."),
        (
            1,
            True,
            (
                "x86-b: web2, web1 measured, for web2, web1, web3. Each measures for 1/2 of smt_eval_budget, and longer"
                " only until it has 6 blocks."
            ),
        ),
        (1, False, "x86-b: web2, web1 measured, for web2, web1, web3."),
        (2, True, "Hardware class not known: old1, old2 measured, for no other host."),
    ],
)
def test_who_is_represented_is_said(place, is_shared, sentence):
    assert sample.sentence(sample.choose(CLASSES, 2)[place], is_shared) == sentence
