# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of workloads, created on the host: the fixed stream, and programs compiled from C."""

import gzip
import hashlib
import io
import os
import random
import subprocess
import typing as t
import zlib

from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import (
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


def verify(workload: Workload, stdin: "str | None") -> None:
    """Verify once that the workload does its work, where its samples cannot show it.

    The output of gzip is discarded while it is timed. Here it is decompressed and compared with the input.

    Args:
        workload: the declaration.
        stdin: the path of the input, or None.

    Raises:
        WorkloadError: the workload does not do its work.
    """
    if workload["stdin"] != "stream" or stdin is None:
        return
    try:
        with open(stdin, "rb") as stream:
            packed = subprocess.run(
                workload["argv"],
                stdin=stream,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=VERIFY_SECONDS,
                check=False,
            ).stdout
    except subprocess.TimeoutExpired:
        raise WorkloadError(
            f"{workload['argv'][0]} did not compress the stream within {VERIFY_SECONDS:.0f} s"
        ) from None
    with open(stdin, "rb") as stream:
        wanted = _digest(stream)
    try:
        got = _digest(gzip.GzipFile(fileobj=io.BytesIO(packed)))
    except (OSError, EOFError, zlib.error) as error:
        raise WorkloadError(f"the output of {workload['argv'][0]} cannot be decompressed: {error}") from error
    if got != wanted:
        raise WorkloadError(f"the output of {workload['argv'][0]} does not decompress to its input")


def _digest(stream: t.Union[t.BinaryIO, gzip.GzipFile]) -> bytes:
    """Return the SHA-256 of a stream. Reads in pieces, because a damaged file can decompress to any length."""
    digest = hashlib.sha256()
    for piece in iter(lambda: stream.read(MEGABYTE), b""):
        digest.update(piece)
    return digest.digest()


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
