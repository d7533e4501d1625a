# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a trial: what is written is read again, and what somebody else wrote is refused."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import trials
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records

PERIOD = {
    "period": 0, "block": 0, "arm": "smt_on", "complete": True, "reason": None,
    "started": "2026-11-23T12:00:00Z", "counted_from": "2026-11-23T12:01:00Z", "ended": "2026-11-23T12:05:00Z",
    "metrics": {
        "p99": {"value": 0.2, "points": 16, "expected": 17, "reason": None},
        "rate": {"value": None, "points": 0, "expected": 17, "reason": "no series"},
    },
    "series": {"p99": [[0.0, 0.2], [15.0, 0.21]]},
    "events": [{"at": "2026-11-23T12:00:00Z", "event": "switched", "detail": "smt_on"}],
}  # fmt: skip


@pytest.fixture(name="trial", params=design.DESIGNS)
def a_trial(request):
    members = [design.Member(f"web{number}", "x", float(number)) for number in range(13)]
    arms = {"smt_on": "SMT on", "smt_off_on_node_0": "SMT off on node 0"}
    drawn = design.draw(request.param, members, design.Wanted(tuple(arms), 24, 12, 6, 7))
    metrics = (records.Metric("p99", "s", "lower", True, None), records.Metric("rate", "", "higher", False, "p99"))
    begun = ("october", "2026-11-23T12:00:00Z", tuple(arms), arms, metrics, "rate", ("errors above 1",))
    return records.Trial(*begun, 0.01, 300.0, 60.0, drawn, 7)


def test_a_trial_is_read_as_it_was_written(trial):
    assert records.trial_of(json.loads(trial.written())) == trial
    known = dataclasses.replace(trial, looks_back_seconds=60.0)
    assert records.trial_of(json.loads(known.written())) == known


@pytest.mark.parametrize(
    ("place", "value", "about"),
    [
        (["schema_version"], 2, "schema_version"),
        (["arms"], [], "arms"),
        (["arms", 0, "name"], "../x", "arms"),
        (["hosts", "web1", "arms", 0], "smt_off", "another arm"),
        (["hosts", "web1", "arms"], ["smt_on"], "another length"),
        (["groups", 0], ["nobody"], "groups, waves and hosts"),
        (["waves"], [[0], [0]], "groups, waves and hosts"),
        (["metrics", 0, "primary"], False, "primary"),
        (["margin"], float("1e400"), "finite|margin"),
        (["run"], "../../etc", "run"),
        (["more"], 1, "more"),
        # Its periods count samples of each other.
        (["looks_back_seconds"], 61.0, "more than settle_seconds"),
    ],
)
def test_a_design_of_somebody_else_is_refused(trial, place, value, about):
    document = copy.deepcopy(trial.document())
    part = document
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    with pytest.raises(text.BorderError, match=about):
        records.trial_of(document)


def test_periods_are_read_without_a_line_that_was_not_written_whole():
    line = json.dumps(PERIOD)
    found = records.lines(f"{line}\n{line[: len(line) // 2]}".encode(), trials.PERIOD)
    assert found == [PERIOD] and records.lines(b"", trials.PERIOD) == []
    (period,) = records.complete(map(records.written_period, found))
    assert (period.number, period.arm, period.values) == (0, "smt_on", {"p99": 0.2})
    assert records.complete([records.written_period({**PERIOD, "complete": False})]) == []


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "",
        "not JSON",
        json.dumps({**PERIOD, "period": -1}),
        json.dumps({**PERIOD, "metrics": {"p99": {"value": 1e200, "points": 1, "expected": 1, "reason": None}}}),
        json.dumps({**PERIOD, "series": {"p99": [[0.0, 1.0]] * 601}}),
        '{"period": NaN}',
        '{"period": 1e400}',
        '{"period": ' + "9" * 5000 + "}",
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        "\xff",
        "\0" * 4096,
        json.dumps({**PERIOD, "reason": "x" * 30_000}),
        json.dumps({**PERIOD, "\ud800": 1}),
    ],
)
def test_a_line_that_is_not_valid_is_named(line):
    with pytest.raises(text.BorderError, match=r"^line 2: ") as caught:
        records.lines(json.dumps(PERIOD).encode() + b"\n" + line.encode("latin-1") + b"\n", trials.PERIOD)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("units", "share"), [((8, 4), (0.5, 0.6)), ((4, 8), (0.6, 0.5)), ((0,), (0.5,)), ((4,), (0.0,))]
)
def test_looks_that_do_not_follow_each_other_are_refused(units, share):
    looks = [{"at": PERIOD["ended"], "units": one, "share": part, "decided": {}} for one, part in zip(units, share)]
    with pytest.raises(text.BorderError):
        records.looks(records.lines("".join(json.dumps(look) + "\n" for look in looks).encode(), trials.LOOK))
