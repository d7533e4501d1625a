# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What several tests of workloads need."""

import os
import shutil
import tempfile

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import RunDirectory


@pytest.fixture(name="files")
def run_directory():
    """Create a run's directory that other users can reach, unlike the directories of pytest."""
    base = tempfile.mkdtemp(prefix="smt-")
    os.chmod(base, 0o755)
    made = RunDirectory(os.path.join(base, "state", "runs"), "r")
    made.create()
    yield made
    shutil.rmtree(base)
