# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about series of measurements whose changes are to be found, about histories of checks, and
about files that several processes or users write.
"""

import datetime
import json
import math
import re

import night
import pytest
import result_maker
import trial_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks, document, effects
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import looking

MARGIN = 0.01
NOW = datetime.datetime(2026, 11, 27, 6, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def runs(*ratios, half=0.01):
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


def test_catapult_2419_and_bencher_steps_do_not_follow_from_when_runs_were_nor_their_order_from_their_names(tmp_path):
    for number, days in enumerate(([1, 302, 302, 303, 333], [1, 2, 3, 4, 5])[: night.number(1, 2)]):
        for run_number, (day, share) in enumerate(zip(days, (0.6, 0.6, 0.6, 0.5, 0.5), strict=True)):
            at = datetime.datetime(2025, 12, 31, run_number) + day * DAY
            run(tmp_path / f"steps{number}", f"r{run_number}", share, at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        [of_key] = list(effects.read(tmp_path / f"steps{number}", NOW)[0].values())
        assert places([one.interval for one in of_key]) == [3]
    # Names of users have no order of their own.
    names = ["z-first", "b-second", "a-third"]
    for month, name in enumerate(names, 1):
        run(tmp_path / "days", name, 0.6, f"2026-{month:02}-01T00:00:00Z")
    found, refused = effects.read(tmp_path / "days", NOW)
    assert not refused and [[one.run for one in of_key] for of_key in found.values()] == [names]


def run(directory, name, share, started):
    """The report of an evaluation in which second threads give twice ``share``."""
    workloads = {"gzip": {"rate": 100.0, "share": share, "unit": "MB/s", "title": "gzip"}}
    shape = {"names": ("all_threads",), "seed": 7, "collected": started}
    (directory / name).mkdir(parents=True)
    path = directory / name / "web1.json"
    path.write_text(json.dumps(result_maker.result(host="web1", run=name, workloads=workloads, **shape)))
    build.build([path], directory / name)


def add(directory, at, statuses, others=()):
    checks.add(directory, statuses, others, at)


def test_netdata_cloud_690_cockroach_24636_and_cipp_417_hosts_that_are_gone_replaced_or_not_checked_any_more(tmp_path):
    add(tmp_path / "gone", NOW, {"a": "compliant", "gone": "drifted"})
    add(tmp_path / "gone", NOW + DAY, {"a": "compliant"}, ["a"])
    found = checks.read(tmp_path / "gone")
    assert dict(found.statuses) == {"a": "compliant"} and found.checks[-1].counts == {"compliant": 1}
    add(tmp_path / "replaced", NOW, {"a": "compliant", "b": "drifted"})
    add(tmp_path / "replaced", NOW + DAY, {"a": "compliant"}, ["a"])
    add(tmp_path / "replaced", NOW + 2 * DAY, {"a": "compliant", "b": "compliant"})
    found = checks.read(tmp_path / "replaced")
    assert dict(found.statuses) == {"a": "compliant", "b": "compliant"}
    # Nobody saw the first of them mended.
    assert [(one.host, one.is_removed, one.lasted) for one in found.drifts] == [("b", True, None)]
    # A host that has no policy any more is compliant; a status of a former policy is none of today's.
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


@pytest.fixture(name="begun")
def a_trial(tmp_path):
    return trial_maker.begun(tmp_path / "october")


def period(trial, number):
    return trial_maker.record(number, trial.design.schedule["web1"][number])


def part(files, trial):
    return looking.HostFiles(files, trial, "web1", lambda _line: None)


@pytest.mark.parametrize("source", ["tox_dev_filelock_461", "google_fscrypt_448"])
def test_a_file_that_is_a_link_is_neither_cut_off_nor_extended(begun, tmp_path, source):
    files, trial = begun
    (tmp_path / "precious").write_text("precious\n")
    link = files.path / ".lock" if source == "tox_dev_filelock_461" else files.host_file("web1")
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(text.BorderError, match=rf"{re.escape(link.name)}: cannot be written: it is a link"):
        part(files, trial).period(period(trial, 0))
    assert (tmp_path / "precious").read_text() == "precious\n"


def test_oh_my_pi_8596_openworker_56_and_ansible_13987_what_cannot_be_read_does_not_take_others_with_it(begun):
    files, trial = begun
    host = part(files, trial)
    host.period(period(trial, 0))
    with files.host_file("web1").open("ab") as stream:
        stream.write(records.period(trial, "web1", period(trial, 1)).encode()[:200])
    host.period(period(trial, 1))
    seen = looking.known(files, trial)
    assert not seen.unreadable and [one.number for one in seen.periods["web1"]] == [0, 1]
    files.host_file("web2").write_text('{"period": 0, "ar\n')
    seen = looking.known(files, trial)
    assert list(seen.unreadable) == ["web2"] and len(seen.periods["web1"]) == 2
    files.host_file("web2").unlink()
    files.host_file("web1").unlink()
    files.host_file("web1").mkdir()
    assert looking.known(files, trial).unreadable == {
        "web1": "hosts/web1.periods.jsonl: cannot be read: it is not a regular file"
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_memote_636_a_value_that_is_no_number_does_not_break_the_report(begun, value):
    files, trial = begun
    record = period(trial, 0)
    record.metrics["p99"] = parts.changed(record.metrics["p99"], value=value)
    with pytest.raises(records.RecordError):
        part(files, trial).period(record)
    (one,) = looking.known(files, trial).periods["web1"]
    assert not one.complete and "cannot be written down" in str(one.reason)


@pytest.mark.parametrize("depth", [900, 100_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"":[', "]}"), ('{"reason":', "}")])
def test_orjson_458_nesting_is_an_error_of_the_file_and_of_nothing_else(begun, depth, opens, closes):
    files, _trial = begun
    content = opens * depth + "1" + closes * depth
    (files.path / "ended.json").write_text(content)
    assert files.ended().startswith("somebody else ended the trial by ended.json, which cannot be read: ")
    with pytest.raises(text.BorderError, match=r"^line 1: "):
        records.lines(content.encode() + b"\n", records.Period)
