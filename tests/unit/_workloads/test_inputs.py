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
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import WorkloadError, compiler

PATH = os.environ["PATH"]
needs_compiler = pytest.mark.skipif(compiler(PATH) is None, reason="no C compiler is installed here")


def test_the_stream_is_the_same_on_every_python():
    assert (
        hashlib.sha256(inputs.stream_block()).hexdigest()
        == "719b7af2b7f971e60f81ca2ab3f6a9f3f869090ee7a4b357c8a686970d76b95b"
    )
    assert len(inputs.stream_block()) == inputs.MEGABYTE


def test_the_output_of_gzip_is_compared_with_its_input(tmp_path):
    stream = tmp_path / "stream"
    inputs.write_stream(str(stream), 2)
    assert stream.stat().st_size == 2 * inputs.MEGABYTE
    inputs.verify(BUILT_IN["gzip"], str(stream))
    with pytest.raises(WorkloadError, match=r"cannot be decompressed"):
        inputs.verify(dict(BUILT_IN["gzip"], argv=["cat"]), str(stream))
    # A file with a valid gzip header and damaged data: the error is from zlib, not from gzip.
    with pytest.raises(WorkloadError, match=r"cannot be decompressed: Error -3"):
        inputs.verify(
            dict(
                BUILT_IN["gzip"],
                argv=["sh", "-c", "gzip -c | head -c 1000; head -c 100000 /dev/zero | tr '\\\\0' '\\\\377'"],
            ),
            str(stream),
        )
    with pytest.raises(WorkloadError, match=r"does not decompress to its input"):
        inputs.verify(dict(BUILT_IN["gzip"], argv=["sh", "-c", "head -c 1000 | gzip"]), str(stream))


def test_a_command_that_hangs_during_verification_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "VERIFY_SECONDS", 0.2)
    stream = tmp_path / "stream"
    inputs.write_stream(str(stream), 1)
    with pytest.raises(WorkloadError, match=r"sleep did not compress the stream"):
        inputs.verify(dict(BUILT_IN["gzip"], argv=["sleep", "60"]), str(stream))


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
