# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `ppc64_cpu`, IBM's own tool for SMT on POWER, says of the host; where it is installed.

Source: ppc64_cpu(8) of powerpc-utils. `ppc64_cpu --smt` prints `SMT=N`, `SMT is off`, or a table of the cores of each
number of threads where they differ.
"""

import os
import platform
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, processes

_PLACES = ("usr/sbin/ppc64_cpu", "sbin/ppc64_cpu")
_LINE = re.compile(r"SMT(=[0-9]{1,2}:?| is off)[0-9, *-]{0,2000}")
MAX_CHARACTERS = 4000

Run = t.Callable[["list[str]"], "tuple[int, str, str]"]


def read(fs: host_files.HostFs, run: Run = processes.run) -> "str | None":
    """Return what ``ppc64_cpu --smt`` prints, its lines separated by ``; ``; None on other architectures, where it is
    not installed, and in a recorded tree.

    Args:
        fs: the host's files; a problem is noted where the tool fails or prints something else
        run: runs a command, as :func:`processes.run`
    """
    if not fs.is_host or not platform.machine().startswith("ppc64"):
        return None
    path = next((path for path in map(fs.path, _PLACES) if os.access(path, os.X_OK)), None)
    if path is None:
        return None
    status, output, errors = run([path, "--smt"])
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    text = "; ".join(lines)
    if status != 0 or not lines or len(text) > MAX_CHARACTERS or not all(map(_LINE.fullmatch, lines)):
        fs.note(
            f"{path} --smt failed with exit code {status}, or printed something else than a number of threads:"
            f" {(errors or output).strip()!r:.200}"
        )
        return None
    return text
