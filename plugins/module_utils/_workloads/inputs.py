# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a workload works on or with, made on the host: the fixed stream, and programs compiled from C."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import subprocess
import typing as t
import zlib

from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import MEGABYTE, Workload, WorkloadError, compiler

# The stream repeats one block of a megabyte: gzip looks back 32 KiB only, so a repeated block is as hard as a new one.
STREAM_SEED = 20040817
STREAM_WORDS = 4096
COMPILE_SECONDS = 120
VERIFY_SECONDS = 300
COMPLAINT = 500
INPUT = ".input"
"""How the name of a file ends that a workload reads: large, and of no use after the run."""


def stream_block() -> bytes:
    """One megabyte of text-like bytes, the same on every host and in every run.

    Words of a skewed frequency compress about as text does; gzip -6 works on it neither at its best nor at its worst case.
    """
    source = random.Random(STREAM_SEED)
    words = [bytes(source.choices(b"abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 11))) for _word in range(STREAM_WORDS)]
    weights = [1 / (rank + 1) for rank in range(STREAM_WORDS)]
    text = b" ".join(source.choices(words, weights, k=MEGABYTE // 4))
    return text[:MEGABYTE]


def write_stream(path: str, megabytes: int) -> None:
    """Write the fixed stream of a length in megabytes (10^6 bytes) to a file."""
    block = stream_block()
    with open(path, "wb") as stream:
        stream.writelines(block for _block in range(megabytes))


def verify(workload: Workload, stdin: str | None) -> None:
    """See once that the workload does what it says, where its samples do not show it.

    gzip's output is thrown away while it is timed; here it is unpacked and held against what went in.

    Raises:
        WorkloadError: it does not.
    """
    if workload["stdin"] != "stream" or stdin is None:
        return
    try:
        with open(stdin, "rb") as stream:
            packed = subprocess.run(
                workload["argv"], stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=VERIFY_SECONDS, check=False
            ).stdout
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"{workload['argv'][0]} did not pack the stream within {VERIFY_SECONDS:.0f} s") from None
    with open(stdin, "rb") as stream:
        wanted = _digest(stream)
    try:
        got = _digest(gzip.GzipFile(fileobj=io.BytesIO(packed)))
    except (OSError, EOFError, zlib.error) as error:
        raise WorkloadError(f"{workload['argv'][0]} wrote what cannot be unpacked: {error}") from error
    if got != wanted:
        raise WorkloadError(f"{workload['argv'][0]} changed the stream: what it packed does not unpack to what went in")


def _digest(stream: t.BinaryIO | gzip.GzipFile) -> bytes:
    """The SHA-256 of all that can be read from a stream, piece by piece: what a damaged one unpacks to may be of any length."""
    digest = hashlib.sha256()
    for piece in iter(lambda: stream.read(MEGABYTE), b""):
        digest.update(piece)
    return digest.digest()


def build(name: str, text: str, folder: str, path: str) -> str:
    """Compile a program from one file of C.

    Args:
        name: the source's file name.
        text: the source.
        folder: where source and program go.
        path: the search path for the compiler.

    Returns:
        The program's path.

    Raises:
        WorkloadError: there is no compiler, or it did not compile; with what it said.
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
        raise WorkloadError(f"{name} was not compiled by {tool} within {COMPILE_SECONDS:.0f} s") from None
    if done.returncode != 0:
        said = " | ".join(done.stdout.decode("utf-8", "replace").replace(folder, ".").splitlines())
        raise WorkloadError(f"{name} was not compiled by {tool}: {said[:COMPLAINT]}")
    return program
