# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of workloads: the fixed stream, and programs that cannot be compiled."""

import hashlib
import os
import shutil

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import inputs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    WorkloadError,
    compiler,
)

PATH = os.environ["PATH"]


def test_the_stream_is_the_same_on_every_python_and_as_long_as_asked_for(tmp_path):
    block = inputs.stream_block()
    assert len(block) == inputs.MEGABYTE
    assert hashlib.sha256(block).hexdigest() == "719b7af2b7f971e60f81ca2ab3f6a9f3f869090ee7a4b357c8a686970d76b95b"
    inputs.write_stream(str(tmp_path / "stream"), 2)
    assert (tmp_path / "stream").read_bytes() == 2 * block


@pytest.mark.parametrize(
    ("argv", "unpack", "error"),
    [
        (["gzip", "-6", "-c"], ["gzip", "-d", "-c"], None),
        *((argv, ["gzip", "-d", "-c"], "does not unpack to its input$") for argv in (["cat"], ["true"])),
        (["sh", "-c", "head -c 1000 | gzip"], ["gzip", "-d", "-c"], "^the output of sh does not unpack to its input$"),
        # What compresses nothing is not run for it, and what hangs is given up.
        (["false"], None, None),
        (["sleep", "60"], ["cat"], "sleep did not end within 0 s"),
        (["cat"], ["sleep", "60"], "sleep did not end within 0 s"),
    ],
)
def test_an_output_that_does_not_unpack_to_the_stream_is_refused(argv, unpack, error, monkeypatch):
    monkeypatch.setattr(inputs, "VERIFY_SECONDS", 0.2 if "sleep" in {argv[0], *(unpack or ())} else 60)
    workload = dict(BUILT_IN["gzip"], argv=argv, unpack=unpack)
    if error is None:
        inputs.verify(workload)
        return
    with pytest.raises(WorkloadError, match=error):
        inputs.verify(workload)


@pytest.mark.skipif(compiler(PATH) is None, reason="no C compiler is installed here")
def test_the_error_has_the_output_of_the_compiler(tmp_path):
    with pytest.raises(WorkloadError, match=r" could not compile broken.c: .*: error: .nothing. undeclared"):
        inputs.build("broken.c", "int main(void) { return nothing; }", str(tmp_path), PATH)


def test_a_compiler_that_is_missing_or_hangs_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(WorkloadError, match=r"array.c cannot be compiled: no C compiler"):
        inputs.build("array.c", "", str(tmp_path), str(tmp_path))
    monkeypatch.setattr(inputs, "COMPILE_SECONDS", 0.1)
    (tmp_path / "cc").write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 60\n")
    (tmp_path / "cc").chmod(0o755)
    with pytest.raises(WorkloadError, match=r"/cc did not compile array.c within 0 s"):
        inputs.build("array.c", "", str(tmp_path), str(tmp_path))
