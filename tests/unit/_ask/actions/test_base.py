# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an answer of a host comes to that is none: a failure, of which a terminal shows a line."""

from __future__ import annotations

import json
import types

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import base


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ({"rc": 1, "stdout": "", "stderr": "Trace\x1b[31mback\n" + "x" * 9999}, "exit status 1"),
        ({"rc": 0, "stdout": json.dumps({"changed": "\x1b[31m"}), "stderr": ""}, "was refused"),
    ],
)
def test_no_answer_and_a_wrong_one_are_a_failure(printed, said):
    action = object.__new__(base.HostAction)
    action._kind, action._host, action._task = "smt_state", "web01", types.SimpleNamespace(action="smt_state")
    found = action._accepted(printed)
    assert found["failed"] is True and found["msg"].startswith("web01: ") and said in found["msg"]
    assert found["msg"].isprintable() and len(found["msg"]) < 1000
