# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests with a compromised host share: what real modules answered."""

import sys

import one_run
import pytest
import recorded

# What makes and reads documents that are nested deeply has to go deeper than what is tried with them, from wherever
# pytest calls it.
sys.setrecursionlimit(10_000)


@pytest.fixture(scope="session", name="recordings")
def _recordings(tmp_path_factory):
    """What real modules answered, recorded once for all workers."""
    return one_run.once(tmp_path_factory, "recorded", recorded.Recordings.of)
