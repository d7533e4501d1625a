# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sample is as short as the start of its command allows."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import prepared, sample_length
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import PLAIN

UNIT_SECONDS = 0.001
RATE = {"name": "throughput", "unit": "1/s", "better": "higher", "aggregate": "sum", "rate": True}
PRINTED = {"name": "throughput", "unit": "1/s", "better": "higher", "aggregate": "sum", "pattern": r"rate ([0-9.]+)"}
TIME = {"name": "wall_time", "unit": "s", "better": "lower", "aggregate": "mean", "clock": "wall_seconds"}
WORK = {"unit": "pieces", "start": 2, "step": 1, "limit": 100_000}


@pytest.mark.parametrize(("start", "seconds"), [(0.0, 0.2), (0.002, 0.2), (0.005, 0.5), (0.02, 1.0)])
def test_a_sample_is_a_hundred_times_as_long_as_its_start_within_limits(start, seconds):
    # The start is what two runs have in common; below zero it is noise.
    timings = (sample_length.Timing(work, start + work * UNIT_SECONDS) for work in (50, 200))
    assert sample_length.start_seconds(*timings) == pytest.approx(start)
    assert sample_length.start_seconds(sample_length.Timing(50, 0.04), sample_length.Timing(200, 0.2)) == 0.0
    assert sample_length.enough(start) == pytest.approx(seconds)


def calibrated(files, monkeypatch, start, seconds, **changed):
    """A workload whose command takes a known time to start and for each piece of work, calibrated."""
    wanted = []

    def run(argv, *_arguments, **_options):
        work = int(argv[-1])
        wanted.append(work)
        worker = {"wall_seconds": start + work * UNIT_SECONDS, "output": "rate 5", "errors": "", "exit_status": 0}
        return {"workers": [worker], "timed_out": False, "cpu_usage": {}, "steal": 0.0, "co_runners": 0}

    monkeypatch.setattr(prepared.runner, "run", run)
    own = {"name": "own", "title": "own", "argv": ["true", "{work}"], "metrics": [RATE], "work": WORK}
    one = prepared.PreparedWorkload({**PLAIN, **own, **changed}, files, {}, seconds, os.cpu_count())
    said = one.calibrate([[0]])
    return one.work, said


@pytest.mark.parametrize(
    ("start", "changed", "least", "most"),
    [
        (0.0, {}, 133, 300),
        (0.006, {}, 390, 900),
        (0.1, {}, 560, 1500),
        # A step of work that takes longer than a sample still shows the start.
        (0.006, {"work": {"unit": "pieces", "start": 250, "step": 250, "limit": 100_000}}, 500, 750),
        # What the program reports of its work has no part in its start.
        (0.1, {"metrics": [PRINTED]}, 30, 200),
        # The time of its run has, also beside what it reports, and also as the one that decides.
        (0.1, {"metrics": [PRINTED, TIME]}, 560, 1500),
        (0.006, {"metrics": [TIME]}, 390, 900),
    ],
)
def test_calibration_chooses_the_length_by_the_start_of_the_command(files, monkeypatch, start, changed, least, most):
    work, said = calibrated(files, monkeypatch, start, None, **changed)
    assert least <= work <= most
    assert said == f"own: {work} pieces, samples of about {start + work * UNIT_SECONDS:.2f} s"


def test_a_length_that_is_given_is_kept(files, monkeypatch):
    assert 33 <= calibrated(files, monkeypatch, 0.006, 0.05)[0] <= 75
