# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about series of measurements whose changes are to be found, and about histories of checks."""

from __future__ import annotations

import datetime
import json

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._history import checks, document, effects
from ansible_collections.threadwise.smt.plugins.plugin_utils._pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build

MARGIN = 0.01
NOW = datetime.datetime(2026, 11, 27, 6, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def only(found):
    """The value of a mapping that has one."""
    (one,) = found.values()
    return one


def runs(*ratios, half=0.01):
    """What runs say that have these effects, each with an interval of this half width."""
    return [series.Interval(ratio, ratio * (1 - half), ratio * (1 + half), 0.95) for ratio in ratios]


def places(made):
    return [turn.place for turn in series.turns(made, MARGIN)]


def test_xtdb_5454_a_step_is_said_once_and_what_follows_it_holds():
    for after in range(1, 12):
        made = runs(*[1.0, 1.005, 0.995] * 4, *[1.35, 1.345, 1.355][: after % 3 + 1] * after)
        found = series.turns(made, MARGIN)
        assert [turn.place for turn in found] == [12], after
        state = series.standing(made, found, MARGIN)
        assert state == (series.CHANGED if len(made) == 13 else series.HOLDS), after


def test_xtdb_5454_one_run_that_is_far_off_between_others_is_no_step():
    assert places(runs(*[1.0, 1.005, 0.995] * 3, 1.35, *[1.0, 0.995, 1.005] * 3)) == []


def test_fak_1163_noise_without_a_step_is_none():
    assert places(runs(1.0, 1.012, 0.991, 1.006, 0.988, 1.01, 0.996, 1.003, 0.99, 1.008, half=0.015)) == []


def test_catapult_1574_an_early_step_does_not_hide_a_later_one():
    assert places(runs(*[0.8] * 2, *[1.0, 1.004] * 4, *[0.9, 0.896] * 4)) == [2, 10]


def test_catapult_2388_a_small_step_in_a_noisy_series_is_found_once_its_means_are_sure():
    noisy = [0.02, -0.02, 0.0, 0.015, -0.015] * 4
    made = runs(*(1 + one for one in noisy), *(1.06 + one for one in noisy), half=0.02)
    assert places(made) == [20]


def test_catapult_2419_where_a_step_is_does_not_follow_from_when_runs_were(tmp_path):
    for number, days in enumerate(([1, 2, 3, 4, 5], [1, 302, 302, 303, 333])):
        for run_number, (day, share) in enumerate(zip(days, (0.6, 0.6, 0.6, 0.5, 0.5), strict=True)):
            at = datetime.datetime(2025, 12, 31, run_number) + day * DAY
            run(tmp_path / str(number), f"r{run_number}", share, at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        of_key = only(effects.read(tmp_path / str(number), NOW)[0])
        assert places([one.interval for one in of_key]) == [3]


def test_conbench_383_a_step_does_not_make_later_ones_invisible():
    """What counts as scatter between runs is that within the parts, not what the step adds to it."""
    assert places(runs(*[1.0, 1.003] * 3, *[3.0, 3.009] * 3, *[2.7, 2.697] * 3)) == [6, 12]


def test_pints_998_an_absurd_value_before_a_step_does_not_hide_it():
    made = runs(1e9, *[1.0, 1.002] * 5, *[1.1, 1.102] * 5)
    assert 11 in places(made)


@pytest.mark.parametrize("half", [0.0, 1e-12])
def test_intervals_without_width_are_no_error(half):
    assert places(runs(1.0, 1.0, 1.0, half=half)) == [] and places(runs(1.0, 1.0, 1.2, 1.2, half=half)) == [2]


def run(directory, name, share, started, **environment):
    """The report of an evaluation in which second threads give twice ``share``."""
    path = directory / name
    path.mkdir(parents=True)
    made = result_maker.result(
        host="web1",
        run=name,
        workloads={"gzip": {"rate": 100.0, "share": share, "unit": "MB/s", "title": "gzip"}},
        names=("all_threads",),
        seed=7,
        collected=started,
    )
    made["environment"].update(environment)
    (path / "web1.json").write_text(json.dumps(made))
    build.build([path / "web1.json"], path)


def test_bencher_runs_are_in_the_order_of_their_days_whatever_they_are_called(tmp_path):
    """Names of users have no order of their own."""
    run(tmp_path, "z-first", 0.6, "2026-01-01T00:00:00Z")
    run(tmp_path, "b-second", 0.6, "2026-03-01T00:00:00Z")
    run(tmp_path, "a-third", 0.55, "2026-05-01T00:00:00Z")
    found, refused = effects.read(tmp_path, NOW)
    assert not refused and [[one.run for one in of_key] for of_key in found.values()] == [
        ["z-first", "b-second", "a-third"]
    ]


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
