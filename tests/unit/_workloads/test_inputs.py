# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of workloads: the fixed stream, and programs that cannot be compiled."""

from __future__ import annotations

import hashlib
import os
import shutil

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import inputs
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import (
    WorkloadError,
    compiler,
    missing,
)

PATH = os.environ["PATH"]
needs_compiler = pytest.mark.skipif(compiler(PATH) is None, reason="no C compiler is installed here")


def test_the_stream_is_the_same_on_every_python():
    assert (
        hashlib.sha256(inputs.stream_block()).hexdigest()
        == "719b7af2b7f971e60f81ca2ab3f6a9f3f869090ee7a4b357c8a686970d76b95b"
    )
    assert len(inputs.stream_block()) == inputs.MEGABYTE


def test_a_file_of_the_stream_has_the_megabytes_that_are_asked_for(tmp_path):
    stream = tmp_path / "stream"
    inputs.write_stream(str(stream), 2)
    assert stream.read_bytes() == 2 * inputs.stream_block()


@pytest.mark.parametrize("name", [name for name, workload in BUILT_IN.items() if workload["unpack"]])
def test_what_a_built_in_workload_compresses_is_unpacked_again(name):
    if missing(BUILT_IN[name], PATH):
        pytest.skip(missing(BUILT_IN[name], PATH))
    inputs.verify(BUILT_IN[name])


@pytest.mark.parametrize(
    "argv", [["cat"], ["sh", "-c", "gzip -c | head -c 1000"], ["sh", "-c", "head -c 1000 | gzip"], ["true"]]
)
def test_an_output_that_does_not_unpack_to_the_stream_is_refused(argv):
    with pytest.raises(WorkloadError, match=rf"^the output of {argv[0]} does not unpack to its input$"):
        inputs.verify(dict(BUILT_IN["gzip"], argv=argv))


def test_a_workload_that_compresses_nothing_is_not_run_for_it():
    inputs.verify(dict(BUILT_IN["gzip"], argv=["false"], unpack=None))


@pytest.mark.parametrize("hangs", ["argv", "unpack"])
def test_a_command_that_hangs_during_verification_is_given_up(monkeypatch, hangs):
    monkeypatch.setattr(inputs, "VERIFY_SECONDS", 0.2)
    with pytest.raises(WorkloadError, match=r"sleep did not end within 0 s with a megabyte to read"):
        inputs.verify({**BUILT_IN["gzip"], "argv": ["cat"], "unpack": ["cat"], hangs: ["sleep", "60"]})


def test_the_command_that_unpacks_is_needed_too():
    assert "nothing-like-it is not installed" in missing(dict(BUILT_IN["gzip"], unpack=["nothing-like-it"]), PATH)


@needs_compiler
def test_the_error_has_the_output_of_the_compiler(tmp_path):
    with pytest.raises(WorkloadError, match=r" could not compile broken.c: .*: error: .nothing. undeclared"):
        inputs.build("broken.c", "int main(void) { return nothing; }", str(tmp_path), PATH)


def test_a_missing_compiler_is_an_error(tmp_path):
    with pytest.raises(WorkloadError, match=r"array.c cannot be compiled: no C compiler"):
        inputs.build("array.c", "", str(tmp_path), str(tmp_path))


def test_a_compiler_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "COMPILE_SECONDS", 0.1)
    (tmp_path / "cc").write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 60\n")
    (tmp_path / "cc").chmod(0o755)
    with pytest.raises(WorkloadError, match=r"/cc did not compile array.c within 0 s"):
        inputs.build("array.c", "", str(tmp_path), str(tmp_path))
