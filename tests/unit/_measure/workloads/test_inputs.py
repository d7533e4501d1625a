# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of workloads: the fixed stream, and the programs that are compiled."""

import hashlib
import json
import os
import subprocess

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import inputs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    WorkloadError,
    compiler,
)

PATH = os.environ["PATH"]
needs_compiler = pytest.mark.skipif(compiler(PATH) is None, reason="no C compiler is installed here")


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
        (["false"], None, None),
        (["sleep", "60"], ["cat"], "sleep did not end within 0 s"),
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


@needs_compiler
def test_the_error_has_the_output_of_the_compiler(tmp_path):
    with pytest.raises(WorkloadError, match=r" could not compile broken.c: .*: error: .nothing. undeclared"):
        inputs.build("broken.c", "int main(void) { return nothing; }", str(tmp_path), PATH)


def test_a_compiler_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(WorkloadError, match=r"array.c cannot be compiled: no C compiler"):
        inputs.build("array.c", "", str(tmp_path), str(tmp_path))


STRICT = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-O2", "-pthread"]
PROGRAMS = sorted(name for name in sources() if name.endswith(".c"))


def built(name, tmp_path):
    return inputs.build(name, sources()[name], str(tmp_path), PATH)


def output(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_sources_compile_without_a_warning_and_wrong_arguments_have_an_exit_status_of_their_own(name, tmp_path):
    (tmp_path / name).write_text(sources()[name], encoding="utf-8")
    argv = [compiler(PATH), *STRICT, "-o", str(tmp_path / "program"), str(tmp_path / name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    wrong = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and wrong.stderr.startswith("usage: ")


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
def test_each_thread_of_the_cache_line_is_pinned(tmp_path):
    program = built("false_sharing.c", tmp_path)
    cpu = str(min(os.sched_getaffinity(0)))
    for cpus in (cpu, f"{cpu},{cpu}", "-1,-1,-1"):
        assert output(program, cpus, "100000")["million_per_second"] > 0
    wrong = subprocess.run([program, f"{cpu},16383", "1000"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "cannot start a thread on CPU 16383" in wrong.stderr


@needs_compiler
def test_random_reads_are_the_same_whatever_the_pages_are(tmp_path):
    program = built("random_access.c", tmp_path)
    found = {pages: output(program, pages, "6", "1000") for pages in ("small", "transparent", "reserved")}
    assert len({one["check"] for one in found.values()}) == 1
    assert found["small"]["huge_mebibytes"] == 0
    assert all(one["million_per_second"] > 0 and one["cpu_ns"] > 0 for one in found.values())
    # More than memory has: refused in words, not killed.
    refused = subprocess.run([program, "small", "1000000", "1"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and refused.stderr == "random_access: mmap: Cannot allocate memory\n"
