# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a target of the Makefile and keeps what came of it; tests/RESULTS.md has the last result of each.

usage: results.py run TARGET COMMAND...    the exit code is the command's
       results.py write                    brings what was kept into tests/RESULTS.md
"""

from __future__ import annotations

import collections
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / ".cache" / "results"
TABLE = ROOT / "tests" / "RESULTS.md"
COLUMNS = ("target", "date", "commit", "machine", "passed", "seconds", "what is open")
# Most of what tests of files wait for is fsync, which costs nothing where files are in memory.
MEMORY, MIN_MEMORY = pathlib.Path("/dev/shm"), 6 * 2**30


def main(words: list[str]) -> int:
    """Do what the command line asks for."""
    if len(words) > 2 and words[0] == "run":
        return run(words[1], words[2:])
    if words == ["write"]:
        write()
        return 0
    print(__doc__, file=sys.stderr)
    return 2


def run(target: str, command: list[str]) -> int:
    """Run a command, say how it went and keep it. Returns its exit code."""
    KEPT.mkdir(parents=True, exist_ok=True)
    report = KEPT / f"{target}.xml"
    report.unlink(missing_ok=True)
    # Also the pytest that Molecule starts for testinfra leaves its counts there.
    environment = dict(os.environ, PYTEST_ADDOPTS=f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={report}")
    # A short name: a socket has 107 characters. Guests have their disks on disks.
    place = tempfile.mkdtemp(prefix="smt-", dir=MEMORY) if "pytest" in command and has_memory() else None
    if place:
        # As /tmp is: some tests act as other users.
        os.chmod(place, 0o1777)
        environment["TMPDIR"] = place
    begun = time.monotonic()
    try:
        code = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    finally:
        if place:
            shutil.rmtree(place, ignore_errors=True)
    cases = [*ElementTree.parse(report).iter("testcase")] if report.exists() else []
    failed, skipped = [*bad(cases)], collections.Counter(reasons(cases))
    if code and not failed:
        failed = [f"exit code {code}"]
    seen = {
        "target": target,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "commit": subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
        ).stdout.strip(),
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}",
        # A target without tests of its own is one.
        "passed": len(cases) - len(failed) - skipped.total() if cases else int(not code),
        "seconds": round(time.monotonic() - begun),
        "what is open": "; ".join(
            [*(f"failed: {name}" for name in failed), *(f"{n} skipped: {reason}" for reason, n in skipped.items())]
        ),
    }
    (KEPT / f"{target}.json").write_text(json.dumps(seen), encoding="utf-8")
    print(
        f"{target}: {seen['passed']} passed, {len(failed)} failed, {skipped.total()} skipped in {seen['seconds']} s",
        flush=True,
    )
    return code


def has_memory() -> bool:
    """Whether tests can have their temporary files, also programs, in memory."""
    try:
        filesystem = os.statvfs(MEMORY)
    except OSError:
        return False
    return not filesystem.f_flag & os.ST_NOEXEC and filesystem.f_bavail * filesystem.f_frsize >= MIN_MEMORY


def bad(cases: list[ElementTree.Element]) -> Iterator[str]:
    """Name of each test that failed."""
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            yield f"{case.get('classname')}::{case.get('name')}"


def reasons(cases: list[ElementTree.Element]) -> Iterator[str]:
    """Why each test was skipped that was."""
    for case in cases:
        for skipped in case.findall("skipped"):
            yield skipped.get("message", "")


def write() -> None:
    """Replace the rows of the table whose targets were run."""
    text = TABLE.read_text(encoding="utf-8")
    head, _separator, old = text.partition(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n")
    rows = {line.split(" | ")[0].strip("| `"): line for line in old.splitlines()}
    for path in KEPT.glob("*.json"):
        seen = json.loads(path.read_text(encoding="utf-8"))
        cells = [re.sub(r"[|\s]+", " ", str(seen[column])) for column in COLUMNS[1:]]
        rows[seen["target"]] = f"| `{seen['target']}` | {' | '.join(cells)} |"
    TABLE.write_text(f"{head}{_separator}" + "".join(f"{rows[name]}\n" for name in sorted(rows)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
