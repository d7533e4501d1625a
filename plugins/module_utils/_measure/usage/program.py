# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the role smt_usage, which a unit of systemd runs: one look, and the file of it for node_exporter."""

import json
import signal
import sys
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look, room, textfile
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span


def main(root: str, settings: str) -> int:
    """Look, and write the file; return the exit status.

    Args:
        root: the host's files.
        settings: path of the role's settings: ``seconds``, ``windows``, ``window_seconds``, ``textfile``, and
            ``yields``, each ``workload``, ``low`` and ``high``.
    """
    signal.signal(signal.SIGTERM, _end)
    try:
        with open(settings, encoding="utf-8") as stream:
            given = json.load(stream)
        plan = look.Plan(float(given["seconds"]), int(given["windows"]), float(given["window_seconds"]))
        yields = [(str(entry["workload"]), float(entry["low"]), float(entry["high"])) for entry in given["yields"]]
        path = str(given["textfile"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"{settings} cannot be used ({error!r}): call the role smt_usage again\n")
        return 1
    try:
        written = record(HostFs(root), plan, yields, path)
    except textfile.TextfileError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{written}\n")
    return 0


def record(fs: HostFs, plan: look.Plan, yields: "t.Sequence[tuple[str, float, float]]", path: str) -> str:
    """Take a look and write its file; return a sentence about what was found.

    Args:
        fs: the host's files.
        plan: how to look.
        yields: what second threads give, as measured: workload, and the limits.
        path: of the file.

    Raises:
        TextfileError: it is somebody else's file, or cannot be written.
    """
    # Which CPUs share a core is known at once. Of an earlier look counts what it saw of the same cores: it is not gone
    # while the next one looks.
    siblings = text(fs, yields, None)
    is_of_others = not (fs.read(path.lstrip("/")) or "").startswith(siblings)
    textfile.write(fs, path, siblings, is_dry=not is_of_others)
    looked = look.take(fs, topology.read_topology(fs).cores, plan)
    textfile.write(fs, path, text(fs, yields, looked))
    if looked["shared_ratio"] is None:
        why = (
            looked["use_reason"] or looked["reason"] or ("nothing ran" if plan.windows else "no windows were asked for")
        )
        return f"it was not seen how long siblings were busy together: {why}"
    low, high = looked["shared_ratio"]
    return f"siblings were busy together in {low:.3f} to {high:.3f} s of a second of CPU time"


def text(
    fs: HostFs, yields: "t.Sequence[tuple[str, float, float]]", looked: "t.Optional[t.Mapping[str, t.Any]]"
) -> str:
    """Return the file's content as of now.

    Args:
        fs: the host's files.
        yields: as for :func:`record`.
        looked: of the look; None before it.
    """
    known = yields or [(textfile.GUESS, *room.GUESS)]
    ratios = None
    if looked is not None and looked["shared_ratio"] is not None:
        ratios = textfile.Ratios(Span(*looked["busy_ratio"]), Span(*looked["shared_ratio"]))
    return textfile.text(topology.read_topology(fs), known, ratios, time.time())


def _end(_number: int, _frame: object) -> "t.NoReturn":
    raise SystemExit(143)
