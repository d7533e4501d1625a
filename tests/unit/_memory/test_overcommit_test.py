# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurements on the machine that runs the tests.

Nothing here uses more than a few MiB; the effects of policies are tested in guests.
"""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._memory import overcommit_test
from ansible_collections.threadwise.smt.plugins.module_utils._memory.overcommit_test import MIB


@pytest.fixture(autouse=True)
def _no_process_is_left():
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_allocatable_measures_what_one_process_can_allocate():
    measured = overcommit_test.allocatable()
    assert measured["largest_bytes"] > 0 and measured["largest_bytes"] % MIB == 0
    assert measured["total_limited"] in (True, False)


@pytest.mark.parametrize(
    ("length", "touch", "outcome", "touched"),
    [(1 << 60, False, "enomem", 0), (4 * MIB, False, "granted", 0), (20 * MIB, True, "survived", 20 * MIB)],
)
def test_what_becomes_of_a_request(length, touch, outcome, touched):
    assert overcommit_test.run(length, touch) == {"outcome": outcome, "touched_bytes": touched}


def test_what_has_no_result_or_hangs_is_an_error():
    with pytest.raises(overcommit_test.OvercommitTestError, match="without a result"):
        overcommit_test.run(0)
    begun = time.monotonic()
    with pytest.raises(overcommit_test.OvercommitTestError, match="was killed"):
        overcommit_test._in_child(lambda _report: (time.sleep(20), os._exit(0)), 0.1)
    assert time.monotonic() - begun < 15
