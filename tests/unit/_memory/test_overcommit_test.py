# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the probes say on whatever machine runs the tests. Nothing here takes more than a few MiB; what policies do is shown in guests."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._memory import overcommit_test
from ansible_collections.threadwise.smt.plugins.module_utils._memory.overcommit_test import MIB


def test_allocatable_says_what_one_process_is_promised():
    answer = overcommit_test.allocatable()
    assert answer["largest_bytes"] > 0
    assert answer["largest_bytes"] % MIB == 0
    assert answer["total_limited"] in (True, False)


def test_more_than_any_address_space_is_refused_at_once():
    assert overcommit_test.overreach(1 << 60) == {"outcome": "enomem", "touched_bytes": 0}


def test_what_is_not_touched_is_only_granted():
    assert overcommit_test.overreach(4 * MIB) == {"outcome": "granted", "touched_bytes": 0}


def test_what_fits_is_survived():
    assert overcommit_test.overreach(20 * MIB, touch=True) == {"outcome": "survived", "touched_bytes": 20 * MIB}


def test_a_request_that_is_none_is_told():
    with pytest.raises(overcommit_test.ProbeError, match="without an answer"):
        overcommit_test.overreach(0)


def test_one_that_hangs_is_ended():
    with pytest.raises(overcommit_test.ProbeError, match="was ended"):
        overcommit_test.overreach(64 * MIB, touch=True, timeout=0)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_no_process_is_left():
    overcommit_test.allocatable()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
