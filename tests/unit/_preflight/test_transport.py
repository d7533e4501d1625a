# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a controller cannot reach for want of a program."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import transport
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight.transport import Connection

WAYS = [
    Connection("a", "ssh", "ssh"),
    Connection("b", "ansible.builtin.ssh", "/opt/ssh"),
    Connection("c", "local", "ssh"),
    Connection("d", "smart", "ssh"),
]


@pytest.mark.parametrize(
    ("installed", "lost"),
    [
        (("ssh", "/opt/ssh"), {}),
        (("ssh",), {"b": "/opt/ssh"}),
        (("/opt/ssh",), {"a": "ssh", "d": "ssh"}),
        ((), {"a": "ssh", "b": "/opt/ssh", "d": "ssh"}),
    ],
)
def test_each_host_is_held_against_the_program_that_it_takes(installed, lost):
    assert transport.unreachable(WAYS, lambda name: name if name in installed else None) == lost


def test_a_fleet_is_described_in_one_short_sentence_and_a_program_is_looked_for_once():
    asked = []
    lost = transport.unreachable([Connection(f"h{number}", "ssh", "ssh") for number in range(9)], asked.append)
    assert asked == ["ssh"] and transport.sentence({}, 3) is None
    assert transport.sentence(lost, 20) == (
        "this controller has no ssh, which 9 of 20 hosts need for their connection (h0, h1, h2, h3, h4 and 4 more):"
        " install it (Debian: package openssh-client), or set ansible_ssh_executable"
    )
