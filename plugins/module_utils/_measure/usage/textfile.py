# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus needs beside node_exporter's own counters to tell how much room is left: which CPUs share a core,
what second threads give, and how much of the CPU time is beside a busy sibling.
"""

import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span

LOW, HIGH = "low", "high"
BUSY, SHARED = "threadwise_smt_busy_ratio", "threadwise_smt_shared_ratio"
GUESS = "guess"
# How such a file begins, and how its name ends: the collector reads no others.
OURS, SUFFIX = ("# HELP threadwise_smt_sibling_info ", "# HELP threadwise_smt_yield "), ".prom"
_ESCAPED = {"\\": "\\\\", '"': '\\"'}
_HELP = {
    "threadwise_smt_sibling_info": "1 for each online CPU, with the lowest CPU number of its core, package and node",
    "threadwise_smt_yield": (
        "work of a core with all threads busy in that of one thread alone, as measured with a workload or as a guess"
    ),
    BUSY: "time in which at least one thread of a core was busy, by second of CPU time, as the last look found it",
    SHARED: ("time in which several threads of a core were busy, by second of CPU time, as the last look found it"),
    "threadwise_smt_looked_timestamp_seconds": "time of that look, in seconds since 1970",
}


class Ratios(t.NamedTuple):
    """What a look found of cores, each by second of CPU time.

    Attributes:
        busy: the time in which at least one thread was busy.
        shared: the time in which several were.
    """

    busy: Span
    shared: Span


class TextfileError(Exception):
    """The file cannot be written; the message names it, the reason and the way out."""


def text(
    topology: Topology,
    yields: "t.Sequence[tuple[str, float, float]]",
    ratios: "Ratios | None",
    at: float,
) -> str:
    """Return the content of a file for node_exporter's textfile collector.

    Args:
        topology: of the host.
        yields: workload, and the limits of its yield.
        ratios: what the look found; None where it did not see when siblings were busy together.
        at: time of the look, in seconds since 1970.
    """
    return "".join(
        f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n" + "".join(f"{name}{line}\n" for line in lines)
        for name, lines in (
            ("threadwise_smt_sibling_info", _siblings(topology)),
            (
                "threadwise_smt_yield",
                [
                    f'{{workload="{_label(workload)}",limit="{limit}"}} {value:.6g}'
                    for workload, low, high in yields
                    for limit, value in ((LOW, low), (HIGH, high))
                ],
            ),
            *(
                (name, [f'{{limit="{limit}"}} {value:.6g}' for limit, value in zip((LOW, HIGH), ratio)])
                for name, ratio in zip((BUSY, SHARED), ratios or ())
            ),
            ("threadwise_smt_looked_timestamp_seconds", [f" {int(at)}"] if ratios else []),
        )
        if lines
    )


def write(fs: HostFs, path: str, content: str, is_dry: bool = False) -> bool:
    """Replace the file.

    Args:
        fs: the host's files.
        path: of the file, from the root.
        content: its new text.
        is_dry: whether only to make the checks.

    Returns:
        Whether it is another text.

    Raises:
        TextfileError: it is another file, its directory is not there or has another one of these, or it cannot be
            written.
    """
    if not os.path.isabs(path) or not path.endswith(SUFFIX):
        raise TextfileError(f"textfile is {path}: it must be a path from / whose name ends in {SUFFIX}")
    name = path.lstrip("/")
    folder, own = os.path.split(name)
    if fs.status(folder) is None:
        raise TextfileError(f"there is no /{folder}, which node_exporter would read: install it, or name its directory")
    if fs.status(name) is not None and not is_ours(fs, name):
        raise TextfileError(f"{path} is there, and smt_usage did not write it: choose another path, or move it away")
    # The collector takes the same series of two files for one, whichever it reads first.
    others = [other for other in fs.names(folder) if other.endswith(SUFFIX) and other != own]
    same = [other for other in others if is_ours(fs, os.path.join(folder, other))]
    if same:
        raise TextfileError(f"/{folder}/{same[0]} has the same series as {path} would: use its path, or remove it")
    if fs.read(name) == content:
        return False
    refusal = fs.write_refusal(name)
    if refusal:
        raise TextfileError(refusal)
    try:
        if not is_dry:
            fs.write(name, content)
    except OSError as error:
        raise TextfileError(f"{path} cannot be written: {error.strerror or error}") from None
    return True


def is_ours(fs: HostFs, name: str) -> bool:
    """Return whether a file is one of these; the name is from the root, without the first slash."""
    return (fs.head(name, max(map(len, OURS))) or "").startswith(OURS)


def _label(value: str) -> str:
    """Return a text as the value of a label (Prometheus, text exposition format)."""
    return "".join(_ESCAPED.get(character, character) for character in value if character.isprintable())


def _siblings(topology: Topology) -> "list[str]":
    packages = {cpu: number for number, cpus in enumerate(topology.packages) for cpu in cpus}
    nodes = {cpu: number for number, cpus in topology.nodes.items() for cpu in cpus}
    return [
        f'{{cpu="{cpu}",core="{core[0]}",package="{packages.get(cpu, "")}",node="{nodes.get(cpu, "")}"}} 1'
        for core in topology.cores
        for cpu in core
        if cpu in topology.online
    ]
