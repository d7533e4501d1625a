# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of workloads: the fixed stream, and programs compiled from C by this machine's compiler."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in, inputs

PATH = os.environ["PATH"]
STRICT = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-O2", "-pthread"]
needs_compiler = pytest.mark.skipif(built_in.compiler(PATH) is None, reason="no C compiler is installed here")


def test_the_stream_is_the_same_on_every_python():
    assert hashlib.sha256(inputs.stream_block()).hexdigest() == "719b7af2b7f971e60f81ca2ab3f6a9f3f869090ee7a4b357c8a686970d76b95b"
    assert len(inputs.stream_block()) == built_in.MEGABYTE


def test_the_output_of_gzip_is_compared_with_its_input(tmp_path):
    stream = tmp_path / "stream"
    inputs.write_stream(str(stream), 2)
    assert stream.stat().st_size == 2 * built_in.MEGABYTE
    inputs.verify(built_in.GZIP, str(stream))
    with pytest.raises(built_in.WorkloadError, match=r"cannot be decompressed"):
        inputs.verify(dict(built_in.GZIP, argv=["cat"]), str(stream))
    # A file with a valid gzip header and damaged data: the error is from zlib, not from gzip.
    with pytest.raises(built_in.WorkloadError, match=r"cannot be decompressed: Error -3"):
        inputs.verify(dict(built_in.GZIP, argv=["sh", "-c", "gzip -c | head -c 1000; head -c 100000 /dev/zero | tr '\\\\0' '\\\\377'"]), str(stream))
    with pytest.raises(built_in.WorkloadError, match=r"does not decompress to its input"):
        inputs.verify(dict(built_in.GZIP, argv=["sh", "-c", "head -c 1000 | gzip"]), str(stream))


def test_a_command_that_hangs_during_verification_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "VERIFY_SECONDS", 0.2)
    stream = tmp_path / "stream"
    inputs.write_stream(str(stream), 1)
    with pytest.raises(built_in.WorkloadError, match=r"sleep did not compress the stream"):
        inputs.verify(dict(built_in.GZIP, argv=["sleep", "60"]), str(stream))


def built(name, tmp_path):
    return inputs.build(name, sources()[name], str(tmp_path), PATH)


def output(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_compiler
@pytest.mark.parametrize("name", sorted(sources()))
def test_the_sources_compile_without_a_warning(name, tmp_path):
    (tmp_path / name).write_text(sources()[name], encoding="utf-8")
    argv = [built_in.compiler(PATH), *STRICT, "-o", str(tmp_path / "program"), str(tmp_path / name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_compiler
def test_each_pass_visits_the_whole_array(tmp_path):
    program = built("array.c", tmp_path)
    once = {order: output(program, order, "read", "1")["sum"] for order in ("rows", "columns")}
    assert once["rows"] == once["columns"] == sum(row ^ column for row in range(5000) for column in range(5000)) % 2**32
    # The compiler neither drops nor merges passes.
    assert output(program, "rows", "read", "3")["sum"] == 3 * once["rows"] % 2**32
    for order in ("rows", "columns"):
        assert output(program, order, "write", "1")["mb_per_second"] > 0


@needs_compiler
def test_the_triad_includes_the_last_pass(tmp_path):
    assert output(built("triad.c", tmp_path), "3")["last"] == 8000 * 1000 - 1 + 2


@needs_compiler
def test_each_thread_of_the_cache_line_is_pinned(tmp_path):
    program = built("cache_line.c", tmp_path)
    cpu = str(min(os.sched_getaffinity(0)))
    for cpus in (cpu, f"{cpu},{cpu}", "-1,-1,-1"):
        assert output(program, cpus, "100000")["million_per_second"] > 0
    wrong = subprocess.run([program, f"{cpu},16383", "1000"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "cannot start a thread on CPU 16383" in wrong.stderr


@needs_compiler
@pytest.mark.parametrize("name", sorted(sources()))
def test_wrong_arguments_have_an_exit_status_of_their_own(name, tmp_path):
    wrong = subprocess.run([built(name, tmp_path)], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and wrong.stderr.startswith("usage: ")


@needs_compiler
def test_the_error_has_the_output_of_the_compiler(tmp_path):
    with pytest.raises(built_in.WorkloadError, match=r" could not compile broken.c: .*: error: .nothing. undeclared"):
        inputs.build("broken.c", "int main(void) { return nothing; }", str(tmp_path), PATH)


def test_a_missing_compiler_is_an_error(tmp_path):
    with pytest.raises(built_in.WorkloadError, match=r"array.c cannot be compiled: no C compiler"):
        inputs.build("array.c", "", str(tmp_path), str(tmp_path))


def test_a_compiler_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "COMPILE_SECONDS", 0.1)
    (tmp_path / "cc").write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 60\n")
    (tmp_path / "cc").chmod(0o755)
    with pytest.raises(built_in.WorkloadError, match=r"/cc did not compile array.c within 0 s"):
        inputs.build("array.c", "", str(tmp_path), str(tmp_path))
