# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the probes say on whatever machine runs the tests. Nothing here takes more than a few MiB; what policies do is shown in guests."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils import memory_probe
from ansible_collections.threadwise.smt.plugins.module_utils.memory_probe import MIB


def test_allocatable_says_what_one_process_is_promised():
    answer = memory_probe.allocatable()
    assert answer["largest_bytes"] > 0
    assert answer["largest_bytes"] % MIB == 0
    assert answer["total_limited"] in (True, False)


def test_more_than_any_address_space_is_refused_at_once():
    assert memory_probe.overreach(1 << 60) == {"outcome": "enomem", "touched_bytes": 0}


def test_what_is_not_touched_is_only_granted():
    assert memory_probe.overreach(4 * MIB) == {"outcome": "granted", "touched_bytes": 0}


def test_what_fits_is_survived():
    assert memory_probe.overreach(20 * MIB, touch=True) == {"outcome": "survived", "touched_bytes": 20 * MIB}


def test_a_request_that_is_none_is_told():
    with pytest.raises(memory_probe.ProbeError, match="without an answer"):
        memory_probe.overreach(0)


def test_one_that_hangs_is_ended():
    with pytest.raises(memory_probe.ProbeError, match="was ended"):
        memory_probe.overreach(64 * MIB, touch=True, timeout=0)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_no_process_is_left():
    memory_probe.allocatable()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
