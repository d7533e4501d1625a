# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurements on the machine that runs the tests.

Nothing here uses more than a few MiB; the effects of policies are tested in guests.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._memory import overcommit_test
from ansible_collections.threadwise.smt.plugins.module_utils._memory.overcommit_test import MIB


def test_allocatable_measures_what_one_process_can_allocate():
    measured = overcommit_test.allocatable()
    assert measured["largest_bytes"] > 0
    assert measured["largest_bytes"] % MIB == 0
    assert measured["total_limited"] in (True, False)


def test_more_than_any_address_space_is_refused_at_once():
    assert overcommit_test.run(1 << 60) == {"outcome": "enomem", "touched_bytes": 0}


def test_memory_that_is_not_touched_is_only_granted():
    assert overcommit_test.run(4 * MIB) == {"outcome": "granted", "touched_bytes": 0}


def test_a_request_that_fits_is_survived():
    assert overcommit_test.run(20 * MIB, touch=True) == {"outcome": "survived", "touched_bytes": 20 * MIB}


def test_an_empty_request_is_an_error():
    with pytest.raises(overcommit_test.OvercommitTestError, match="without a result"):
        overcommit_test.run(0)


@pytest.mark.parametrize(
    "measure",
    [lambda: overcommit_test.run(64 * MIB, touch=True, timeout=0), lambda: overcommit_test.allocatable(timeout=0)],
)
def test_a_process_that_hangs_is_killed(measure):
    with pytest.raises(overcommit_test.OvercommitTestError, match="was killed"):
        measure()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_it_runs_on_a_host_without_the_collection(tmp_path):
    source = pathlib.Path(overcommit_test.__file__).parents[1]
    for name in ("_compat/typing_forms.py", "_memory/errors.py", "_memory/overcommit_test.py"):
        (tmp_path / "alone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, tmp_path / "alone" / name)
    code = (
        "from alone._memory import overcommit_test as m; print(m.run(1 << 60)['outcome'],"
        " issubclass(m.OvercommitTestError, m.MemoryPolicyError))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "enomem True\n", done.stderr


def test_no_process_is_left():
    overcommit_test.allocatable()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
