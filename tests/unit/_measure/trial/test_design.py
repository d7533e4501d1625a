# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The design of a trial: balanced, opposite at the same time, fair; and its files, also those of somebody else."""

import collections
import json

import pytest
import trial_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.design import PARALLEL, SWITCHBACK, Member

TWO, THREE = ("smt_on", "smt_off"), ("smt_on", "smt_off", "threads_per_core_2")


def members(count, **changed):
    return [Member(f"web{n}", **{"hardware_class": "x", "load": float(n), **changed}) for n in range(1, count + 1)]


def drawn(hosts, name=SWITCHBACK, arms=TWO, periods=24, before=12, most=100, seed=1):
    return design.draw(name, hosts, design.Wanted(arms, periods, before, most, seed))


@pytest.mark.parametrize("arms", [TWO, THREE])
def test_each_block_of_a_host_has_each_arm_once_and_hosts_of_a_group_are_in_different_arms(arms):
    found, size = drawn(members(2 * len(arms)), arms=arms), len(arms)
    assert [len(group) for group in found.groups] == [size, size]
    for periods in found.schedule.values():
        assert all(sorted(periods[block : block + size]) == sorted(arms) for block in range(0, 24, size))
    for group in found.groups:
        assert all(len(set(at_once)) == size for at_once in zip(*(found.schedule[host] for host in group)))


def test_the_lot_is_fair_independent_and_the_same_for_the_same_seed():
    found = collections.Counter()
    for seed in range(400):
        one, other = (drawn(members(4), seed=seed, periods=6).schedule[host] for host in ("web1", "web3"))
        found.update({"off": one[0] == "smt_off", "next": one[0] == one[2], "other": one[0] == other[0]})
    assert all(150 < count < 250 for count in found.values()), found
    assert drawn(members(8), seed=5) == drawn(members(8)[::-1], seed=5) != drawn(members(8), seed=6)


def test_groups_are_of_one_class_and_of_neighbours_by_load():
    given = [("a", "x", 9.0), ("b", "y", 1.0), ("c", "x", 1.0), ("d", "x", 8.0), ("e", "x", 2.0), ("f", None, 1.0)]
    assert set(drawn([Member(*one) for one in given]).groups) == {("c", "e"), ("d", "a"), ("b",), ("f",)}


def away(found, hosts):
    """The most hosts that are in another arm than the baseline in one period."""
    begun = {host: dict(enumerate(found.schedule[host], found.first[host])) for host in hosts}
    return max(sum(begun[host].get(period, "smt_on") != "smt_on" for host in hosts) for period in range(found.periods))


def test_no_more_hosts_are_switched_at_once_than_allowed():
    for most, waves in ((4, 1), (3, 2), (2, 2), (1, 4)):
        found = drawn(members(8), most=most)
        assert len(found.waves) == waves and found.periods == 24 * waves
        assert away(found, found.schedule) <= most
    # A wave begins when the one before has done its whole blocks.
    found = drawn(members(8), most=2, periods=25)
    assert {found.first[host] for host in found.schedule} == {0, 24} and found.periods == 48


def test_hosts_of_a_policy_group_are_never_switched_at_once_but_a_pair_may_be_compared():
    hosts = [Member(f"web{n}", "x", float(n), group="front" if n % 3 == 0 else None) for n in range(1, 9)]
    assert away(drawn(hosts), ["web3", "web6"]) == 1
    assert len(drawn(members(2, group="front")).groups) == 1


def test_parallel_draws_one_of_each_pair():
    found = drawn(members(13), name=PARALLEL)
    assert len(found.groups) == 6 and list(found.left_out) == ["web13"]
    for group in found.groups:
        assert {found.schedule[host][:12] for host in group} == {("smt_on",) * 12}
        assert {found.schedule[host][12:] for host in group} == {("smt_on",) * 12, ("smt_off",) * 12}


def test_a_design_that_cannot_lead_to_a_verdict_is_refused_with_what_can():
    for hosts, options, said in (
        (0, {}, "no host can take part in the trial"),
        (1, {"periods": 10}, "has 5 observations, and a verdict needs 6: give it 12 periods or more"),
        (10, {"name": PARALLEL}, "these hosts give 5, and a verdict needs 6, so 12 hosts"),
    ):
        with pytest.raises(design.DesignError, match=said):
            drawn(members(hosts), **options)
    assert drawn(members(1), periods=12).groups == (("web1",),)


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
    return trial_maker.of_design(drawn, arms, metrics, "rate", ("errors above 1",))


def test_a_trial_is_read_as_it_was_written(trial):
    for one in (trial, parts.changed(trial, looks_back_seconds=60.0)):
        assert records.trial_of(records.written(one, 1)) == one


@pytest.mark.parametrize(
    ("place", "value", "about"),
    [
        (["schema_version"], 2, "schema_version"),
        (["arms", 0, "name"], "../x", "arms"),
        (["hosts", "web1", "arms", 0], "smt_off", "another arm"),
        (["hosts", "web1", "arms"], ["smt_on"], "another length"),
        (["groups", 0], ["nobody"], "groups, waves and hosts"),
        (["metrics", 0, "primary"], False, "primary"),
        (["margin"], float("1e400"), "finite|margin"),
        # Its periods count samples of each other.
        (["looks_back_seconds"], 61.0, "more than settle_seconds"),
    ],
)
def test_a_design_of_somebody_else_is_refused(trial, place, value, about):
    document = parts.plain(trial)
    part = document
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    with pytest.raises(text.BorderError, match=about):
        records.trial_of(json.dumps(document))


def test_periods_are_read_without_a_line_that_was_not_written_whole():
    line = json.dumps(PERIOD)
    found = records.lines(f"{line}\n{line[: len(line) // 2]}".encode(), records.Period)
    assert parts.plain(found) == [PERIOD] and records.lines(b"", records.Period) == []
    (period,) = records.complete(found)
    assert (period.number, period.arm, period.values) == (0, "smt_on", {"p99": 0.2})
    assert records.complete([parts.changed(found[0], complete=False)]) == []


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        json.dumps({**PERIOD, "metrics": {"p99": {"value": 1e200, "points": 1, "expected": 1, "reason": None}}}),
        json.dumps({**PERIOD, "series": {"p99": [[0.0, 1.0]] * 601}}),
        '{"period": ' + "9" * 5000 + "}",
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        "\xff",
        json.dumps({**PERIOD, "reason": "x" * 30_000}),
        json.dumps({**PERIOD, "\ud800": 1}),
    ],
)
def test_a_line_that_is_not_valid_is_named(line):
    with pytest.raises(text.BorderError, match=r"^line 2: ") as caught:
        records.lines(json.dumps(PERIOD).encode() + b"\n" + line.encode("latin-1") + b"\n", records.Period)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("looks", [((8, 0.5), (4, 0.6)), ((4, 0.6), (8, 0.5)), ((0, 0.5),), ((4, 0.0),)])
def test_looks_that_do_not_follow_each_other_are_refused(looks):
    made = [{"at": PERIOD["ended"], "units": units, "share": share, "decided": {}} for units, share in looks]
    with pytest.raises(text.BorderError):
        records.looks(records.lines("".join(json.dumps(look) + "\n" for look in made).encode(), records.Look))
