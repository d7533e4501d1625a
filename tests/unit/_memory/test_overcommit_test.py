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


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (lambda: overcommit_test.run(0), "without a result"),
        (lambda: overcommit_test.run(64 * MIB, touch=True, timeout=0), "was killed"),
        (lambda: overcommit_test.allocatable(timeout=0), "was killed"),
    ],
)
def test_what_has_no_result_or_hangs_is_an_error(measure, said):
    with pytest.raises(overcommit_test.OvercommitTestError, match=said):
        measure()


def test_it_runs_on_a_host_without_the_collection(tmp_path):
    source = pathlib.Path(overcommit_test.__file__).parents[1]
    for name in ("_compat/typing_forms.py", "_memory/errors.py", "_memory/overcommit_test.py"):
        (tmp_path / "alone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, tmp_path / "alone" / name)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from alone._memory import overcommit_test as m;"
    code += "print(m.run(1 << 60)['outcome'], issubclass(m.OvercommitTestError, m.MemoryPolicyError))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "enomem True\n", done.stderr
