# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs steps of testing one after the other, shows how each went, and closes with the counts of all.

usage: test.py GROUP|STEP...        (groups: test, what CI runs; scenarios, what takes longer)
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import time
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "test"
LAST_LINES = 60

# What CI runs has to end within half an hour on two cores.
SHORT_SCENARIOS = ("smt_facts", "smt_eval")
LONG_SCENARIOS = (
    "smt_runtime", "smt_runtime_deep", "smt_boot_faults", "smt_boot", "smt_memory", "smt_probe", "smt_eval_truth", "smt_eval_faults", "smt_eval_boots",
    "smt_workloads", "smt_policy", "smt_pull")
STEPS = {
    "unit": ["python", "-m", "pytest", "-q", "tests/unit"],
    "browser": ["python", "-m", "pytest", "-q", "tests/browser"],
    "lint": ["sh", "-c", "yamllint --strict . && ansible-lint && antsibull-changelog lint && antsibull-docs lint-collection-docs --plugin-docs ."],
    "sanity": ["tools/sanity.sh"],
    **{scenario: ["molecule", "test", "-s", scenario] for scenario in SHORT_SCENARIOS + LONG_SCENARIOS},
}
GROUPS = {"test": [name for name in STEPS if name not in LONG_SCENARIOS], "scenarios": list(LONG_SCENARIOS)}


def main(words: list[str]) -> int:
    """Run the named groups and steps; the exit code is 0 when nothing failed."""
    names = [name for word in words for name in GROUPS.get(word, [word])]
    unknown = set(names) - set(STEPS)
    if unknown or not names:
        print(f"test: {', '.join(sorted(unknown)) or 'nothing'} is no step: choose from {', '.join([*GROUPS, *STEPS])}", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    total = {"passed": 0, "failed": 0, "skipped": 0}
    begun = time.monotonic()
    for name in names:
        for kind, count in run(name).items():
            total[kind] += count
    print(f"all steps: {time.monotonic() - begun:.0f} s")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped", flush=True)
    return 1 if total["failed"] or not total["passed"] else 0


def run(name: str) -> dict[str, int]:
    """Run one step and say how it went. Returns how many of its tests passed, failed and were skipped."""
    log, report = LOGS / f"{name}.log", LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    print(f"{name}: {' '.join(STEPS[name])}", flush=True)
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        # Also the pytest that molecule starts for testinfra leaves its counts there.
        environment = dict(os.environ, PYTEST_ADDOPTS=f"--junitxml={report}")
        done = subprocess.run(STEPS[name], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False)
    code = done.returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    counts = count(report, text, code)
    if code:
        print("\n".join(text.splitlines()[-LAST_LINES:]))
    told = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    print(f"{name}: {told} in {time.monotonic() - begun:.0f} s ({log.relative_to(ROOT)})", flush=True)
    return counts


def count(report: pathlib.Path, text: str, code: int) -> dict[str, int]:
    """What a step's tests came to: pytest's by its report, ansible-test's by its lines, and the step itself as one more."""
    counts = {"passed": len(re.findall(r"^Running sanity test ", text, re.MULTILINE)), "failed": 0, "skipped": 0}
    if report.exists():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            counts["failed"] += failed
            counts["skipped"] += skipped
            counts["passed"] += int(suite.get("tests", 0)) - failed - skipped
    if code and not counts["failed"]:
        counts["failed"] = 1
    elif not code:
        counts["passed"] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
