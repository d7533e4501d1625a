# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests with a compromised host share: what real modules answered, and the figures at the end."""

from __future__ import annotations

import dataclasses
import json
import sys

import one_run
import pytest
import recorded

# What makes and reads documents that are nested deeply has to go deeper than what is tried with them, from wherever
# pytest calls it.
sys.setrecursionlimit(10_000)


@pytest.fixture(scope="session", name="recordings")
def _recordings(tmp_path_factory):
    """What real modules answered, recorded once for all workers."""
    with one_run.shared(tmp_path_factory, "recorded") as directory:
        return recorded.Recordings.of(directory / "recordings")


@pytest.fixture(name="figure")
def _figure(record_property):
    """Called with what was tried, in which trial, and its cost; all are shown when all tests have ended."""

    def keep(what, trial, cost):
        # A worker's report takes it to the one that prints.
        record_property("hostile", json.dumps({"what": what, "trial": trial, **dataclasses.asdict(cost)}))

    return keep


def pytest_terminal_summary(terminalreporter):
    # Several tests may tell of one trial.
    costs = {
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "hostile"
    }
    groups = {}
    for cost in map(json.loads, costs):
        groups.setdefault(cost["what"], []).append(cost)
    if groups:
        terminalreporter.section("compromised hosts")
    for what, found in sorted(groups.items()):
        answers, memory, seconds = (
            sum(one["answers"] for one in found),
            max(one["memory"] for one in found),
            max(one["seconds"] for one in found),
        )
        needed = f"a run took at most {memory / 1e6:.0f} MB and {seconds:.0f} s more than with the honest hosts alone"
        terminalreporter.write_line(f"{what}: {answers} answers; {needed}")
    generated = [cost["answers"] for what, found in groups.items() if what.startswith("generated") for cost in found]
    if generated:
        terminalreporter.write_line(f"{sum(generated)} generated answers")
