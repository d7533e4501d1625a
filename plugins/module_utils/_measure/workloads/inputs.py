# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of workloads, created on the host: the fixed stream, and programs compiled from C."""

import os
import random
import subprocess

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    Workload,
    WorkloadError,
    compiler,
)

MEGABYTE = 1000 * 1000

# The stream repeats one block of a megabyte. gzip looks back 32 KiB only, so a repeated block takes as much work as a
# new one.
STREAM_SEED = 20040817
STREAM_WORDS = 4096
COMPILE_SECONDS = 120
VERIFY_SECONDS = 300
MAX_CHARACTERS = 500
INPUT = ".input"
"""The suffix of a workload's input file, which can be large and is not needed after the run."""


def stream_block() -> bytes:
    """Return one megabyte of text-like bytes, the same on every host and in every run.

    The frequencies of the words are skewed, so that the block compresses about as well as text. It is neither the best
    nor the worst case of gzip -6.
    """
    source = random.Random(STREAM_SEED)
    words = [
        bytes(source.choices(b"abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 11))) for _word in range(STREAM_WORDS)
    ]
    weights = [1 / (rank + 1) for rank in range(STREAM_WORDS)]
    text = b" ".join(source.choices(words, weights, k=MEGABYTE // 4))
    return text[:MEGABYTE]


def write_stream(path: str, megabytes: int) -> None:
    """Write the fixed stream with a length in megabytes (10^6 bytes) to a file."""
    block = stream_block()
    with open(path, "wb") as stream:
        stream.writelines(block for _block in range(megabytes))


def verify(workload: Workload) -> None:
    """Verify once that a workload does its work, where its samples cannot show it: what a command that compresses makes
    of a megabyte of the stream is unpacked again and compared.

    Args:
        workload: the declaration.

    Raises:
        WorkloadError: the workload does not do its work.
    """
    if workload["unpack"] is None:
        return
    block = stream_block()
    if _output(workload["unpack"], _output(workload["argv"], block)) != block:
        raise WorkloadError(f"the output of {workload['argv'][0]} does not unpack to its input")


def _output(argv: "list[str]", given: bytes) -> bytes:
    """Return what a command makes of its input; a failure shows in what it returns."""
    try:
        return subprocess.run(
            argv,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=VERIFY_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"{argv[0]} did not end within {VERIFY_SECONDS:.0f} s with a megabyte to read") from None


def build(name: str, text: str, folder: str, path: str) -> str:
    """Compile a program from one C source file.

    Args:
        name: the file name of the source.
        text: the source.
        folder: the directory for the source and the program.
        path: the search path for the compiler.

    Returns:
        The path of the program.

    Raises:
        WorkloadError: no compiler is installed, or the compilation failed. The message has the compiler's output.
        OSError: the source cannot be written.
    """
    tool = compiler(path)
    if tool is None:
        raise WorkloadError(f"{name} cannot be compiled: no C compiler is installed")
    source = os.path.join(folder, name)
    program = os.path.splitext(source)[0]
    with open(source, "w", encoding="utf-8") as stream:
        stream.write(text)
    try:
        done = subprocess.run(
            [tool, "-O2", "-pthread", "-o", program, source],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMPILE_SECONDS,
            check=False,
            env={"LC_ALL": "C", "PATH": path},
        )
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"{tool} did not compile {name} within {COMPILE_SECONDS:.0f} s") from None
    if done.returncode != 0:
        output = " | ".join(done.stdout.decode("utf-8", "replace").replace(folder, ".").splitlines())
        raise WorkloadError(f"{tool} could not compile {name}: {output[:MAX_CHARACTERS]}")
    return program
