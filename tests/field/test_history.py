# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about series of measurements whose changes are to be found, and about histories of checks."""

from __future__ import annotations

import datetime
import json

import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks, document, effects
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

MARGIN = 0.01
NOW = datetime.datetime(2026, 11, 27, 6, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def runs(*ratios, half=0.01):
    """What runs say that have these effects, each with an interval of this half width."""
    return [series.Interval(ratio, ratio * (1 - half), ratio * (1 + half), 0.95) for ratio in ratios]


def places(made):
    return [turn.place for turn in series.turns(made, MARGIN)]


NOISY = [0.02, -0.02, 0.0, 0.015, -0.015] * 4


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        # One run that is far off between others is no step; noise without a step is none.
        pytest.param(runs(*[1.0, 1.005, 0.995] * 3, 1.35, *[1.0, 0.995, 1.005] * 3), [], id="xtdb_5454"),
        pytest.param(runs(1.0, 1.012, 0.991, 1.006, 0.988, 1.01, 0.996, 1.003, half=0.015), [], id="fak_1163"),
        # An early step does not hide a later one.
        pytest.param(runs(*[0.8] * 2, *[1.0, 1.004] * 4, *[0.9, 0.896] * 4), [2, 10], id="catapult_1574"),
        # A small step in a noisy series is found once its means are sure.
        pytest.param(
            runs(*(1 + one for one in NOISY), *(1.06 + one for one in NOISY), half=0.02), [20], id="catapult_2388"
        ),
        # What counts as scatter between runs is that within the parts, not what the step adds to it.
        pytest.param(runs(*[1.0, 1.003] * 3, *[3.0, 3.009] * 3, *[2.7, 2.697] * 3), [6, 12], id="conbench_383"),
        # An absurd value before a step does not hide it.
        pytest.param(runs(1e9, *[1.0, 1.002] * 5, *[1.1, 1.102] * 5), [1, 11], id="pints_998"),
        # Intervals without width are no error.
        *(pytest.param(runs(1.0, 1.0, 1.0, half=half), [], id="no width") for half in (0.0, 1e-12)),
        *(pytest.param(runs(1.0, 1.0, 1.2, 1.2, half=half), [2], id="no width") for half in (0.0, 1e-12)),
    ],
)
def test_where_a_series_has_steps(made, expected):
    assert places(made) == expected


def test_xtdb_5454_a_step_is_said_once_and_what_follows_it_holds():
    for after in range(1, 12):
        made = runs(*[1.0, 1.005, 0.995] * 4, *[1.35, 1.345, 1.355][: after % 3 + 1] * after)
        found = series.turns(made, MARGIN)
        assert [turn.place for turn in found] == [12], after
        expected = series.CHANGED if len(made) == 13 else series.HOLDS
        assert series.standing(made, found, MARGIN) == expected, after


def test_catapult_2419_where_a_step_is_does_not_follow_from_when_runs_were(tmp_path):
    for number, days in enumerate(([1, 302, 302, 303, 333], [1, 2, 3, 4, 5])[: night.number(1, 2)]):
        for run_number, (day, share) in enumerate(zip(days, (0.6, 0.6, 0.6, 0.5, 0.5), strict=True)):
            at = datetime.datetime(2025, 12, 31, run_number) + day * DAY
            run(tmp_path / str(number), f"r{run_number}", share, at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        [of_key] = list(effects.read(tmp_path / str(number), NOW)[0].values())
        assert places([one.interval for one in of_key]) == [3]


def run(directory, name, share, started):
    """The report of an evaluation in which second threads give twice ``share``."""
    workloads = {"gzip": {"rate": 100.0, "share": share, "unit": "MB/s", "title": "gzip"}}
    shape = {"names": ("all_threads",), "seed": 7, "collected": started}
    (directory / name).mkdir(parents=True)
    path = directory / name / "web1.json"
    path.write_text(json.dumps(result_maker.result(host="web1", run=name, workloads=workloads, **shape)))
    build.build([path], directory / name)


def test_bencher_runs_are_in_the_order_of_their_days_whatever_they_are_called(tmp_path):
    """Names of users have no order of their own."""
    names = ["z-first", "b-second", "a-third"]
    for month, name in enumerate(names, 1):
        run(tmp_path, name, 0.6, f"2026-{month:02}-01T00:00:00Z")
    found, refused = effects.read(tmp_path, NOW)
    assert not refused and [[one.run for one in of_key] for of_key in found.values()] == [names]


def add(directory, at, statuses, others=()):
    checks.add(directory, statuses, others, at)


def test_netdata_cloud_690_a_host_that_is_gone_is_not_listed_for_ever(tmp_path):
    add(tmp_path, NOW, {"a": "compliant", "gone": "drifted"})
    add(tmp_path, NOW + DAY, {"a": "compliant"}, ["a"])
    found = checks.read(tmp_path)
    assert dict(found.statuses) == {"a": "compliant"} and found.checks[-1].counts == {"compliant": 1}


def test_cockroach_24636_a_host_that_was_replaced_under_its_name_is_one_host(tmp_path):
    add(tmp_path, NOW, {"a": "compliant", "b": "drifted"})
    add(tmp_path, NOW + DAY, {"a": "compliant"}, ["a"])
    add(tmp_path, NOW + 2 * DAY, {"a": "compliant", "b": "compliant"})
    found = checks.read(tmp_path)
    assert dict(found.statuses) == {"a": "compliant", "b": "compliant"}
    # Nobody saw the first of them mended.
    assert [(one.host, one.is_removed, one.lasted) for one in found.drifts] == [("b", True, None)]


def test_cipp_417_what_is_not_checked_any_more_does_not_count_as_it_was_last(tmp_path):
    """A host that has no policy any more is compliant; a status of a former policy is none of today's."""
    add(tmp_path, NOW, {"a": "drifted"})
    add(tmp_path, NOW + 9 * DAY, {"a": "compliant"})
    found = checks.read(tmp_path)
    assert found.checks[-1].counts == {"compliant": 1} and found.drifts[0].until == NOW + 9 * DAY


def test_manageiq_6798_the_latest_state_is_said_before_what_was(tmp_path):
    for day in range(30):
        add(tmp_path, NOW + day * DAY, {"a": "drifted" if day < 3 else "compliant", "b": "drifted"})
    record = document.joined(checks.read(tmp_path), {}, [], MARGIN)
    page = document.page(record, NOW + 30 * DAY, MARGIN)
    # Those that still drift are first.
    assert page.index(">b<") < page.index(">a<")
