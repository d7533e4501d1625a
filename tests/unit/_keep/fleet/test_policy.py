# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a policy's variables ask of a host; waves of a rollout; waivers by the calendar, wherever they were written."""

from __future__ import annotations

import datetime
import json

import compliance_maker
import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.scope import Scope
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import (
    compliance_report,
    policy,
    rollout,
    waivers,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Change
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.policy import DesiredState
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.rollout import Member
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from hypothesis import given, strategies as st

MEMBERS = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), max_size=60).map(
    lambda rows: [Member(f"h{number}", group, pending) for number, (group, pending) in enumerate(rows)]
)
SIZES = st.lists(st.integers(1, 20) | st.integers(1, 100).map("{}%".format), min_size=1, max_size=5)


@given(MEMBERS, SIZES)
def test_each_pending_host_is_in_one_wave_and_no_wave_has_two_of_a_group(members, sizes):
    waves = rollout.waves(members, sizes)
    assert sorted(host for wave in waves for host in wave) == sorted(
        member.host for member in members if member.pending
    )
    groups = {member.host: member.group for member in members}
    for wave in waves:
        named = [groups[host] for host in wave if groups[host]]
        assert wave and len(named) == len(set(named))


@given(MEMBERS, SIZES, st.integers(0, 60))
def test_begun_again_it_goes_on_with_the_waves_that_are_left(members, sizes, done):
    members = [Member(member.host, member.group) for member in members]
    waves = rollout.waves(members, sizes)
    gone = {host for wave in waves[:done] for host in wave}
    again = rollout.waves([Member(member.host, member.group, member.host not in gone) for member in members], sizes)
    assert again == waves[done:]


CANARY = [Member(f"h{number:03}") for number in range(100)]
TWO_SLOTS = [Member("a", slot="s"), Member("b", slot="s"), Member("c", "db", slot="x"), Member("d", "x")]
ONE_GROUP = [Member("1"), Member("2", "db"), Member("3"), Member("4", "db"), Member("5", "db")]


@pytest.mark.parametrize(
    ("members", "sizes", "waves"),
    [
        # A share of a small fleet is one host.
        ([Member("a"), Member("b")], ["10%"], ["a", "b"]),
        # More waves than were asked for.
        (ONE_GROUP, ["100%"], ["123", "4", "5"]),
        # The same slot.
        (TWO_SLOTS, [9], ["acd", "b"]),
    ],
)
def test_waves(members, sizes, waves):
    assert rollout.waves(members, sizes) == [list(wave) for wave in waves]
    assert [len(wave) for wave in rollout.waves(CANARY, [1, "10%", "25%"])] == [1, 10, 25, 25, 25, 14]


def test_each_of_a_group_follows_the_one_before_and_waits_for_one_that_is_gone():
    groups = {"a": "db", "b": None, "c": "db", "d": "web", "e": "db"}
    assert rollout.predecessors([["a", "b"], ["c", "d"], ["e"]], groups) == {"c": "a", "e": "c"}
    members = [Member("a", "db", pending=False, reachable=False), Member("b", "db"), Member("c", "db", pending=False)]
    members += [Member("d", "web"), Member("e"), Member("f", None, False, reachable=False)]
    assert rollout.waiting(members) == {"b": "a"}
    # Nobody waits for another one of a slot that cannot be reached: it says whether it is down.
    assert rollout.waiting([Member("a", slot="s", reachable=False, pending=False), Member("b", slot="s")]) == {}


def test_what_is_no_size_is_refused():
    for sizes in ([], [0], ["0%"], ["x"], [True], ["1" * 50], [1.5]):
        with pytest.raises(rollout.RolloutError, match="size"):
            rollout.waves([Member("a")], sizes)


def verdict(status="drifted", reboot=False, **actual):
    return compliance_maker.found(status, change={"reboot": reboot}, **actual)


HINDERED = {"status": "drifted", "reasons": [], "blocked_by": "no way"}
FREE = {**HINDERED, "blocked_by": None}


@pytest.mark.parametrize(
    ("actual", "reboot_ok", "pending"),
    [
        (verdict(running=FREE), False, True),
        (verdict(running=HINDERED), True, False),
        (verdict(running=HINDERED, reboot=True), False, False),
        (verdict(running=HINDERED, reboot=True), True, True),
        (verdict(running=FREE, configured=HINDERED), False, False),
        (verdict("compliant", pending_rollback={}), False, True),
        (verdict("compliant", holds_slot="h holds a slot"), False, True),
        (verdict(memory_configured=HINDERED), False, False),
        (verdict(memory=HINDERED), True, False),
        (verdict("compliant", reboot=True), True, True),
        (verdict("compliant", reboot=True), False, False),
        (verdict("unknown"), True, False),
    ],
)
def test_who_is_changed(actual, reboot_ok, pending):
    assert rollout.is_pending(actual, reboot_ok) is pending


# ---- waivers ---------------------------------------------------------------------------------------------------------

NEXT = {"reason": "the vendor counts threads", "owner": "jo"}
at = datetime.datetime.fromisoformat


def written(until, quoted=False):
    """A waiver as a file of variables has it."""
    day = json.dumps(until) if quoted else until
    return yaml.safe_load(f"{{until: {day}, reason: {NEXT['reason']}, owner: {NEXT['owner']}}}")


def drifted(status="drifted", **more):
    known = {"wanted": "disabled", "hardware_class": "c1", "change": {"running": {"state": "disabled"}}}
    return compliance_maker.found(status, "running: CPUs 2-3 are online", **{**known, **more})


# What was written, the last day that it stands for, a moment on that day, and one after it.
CALENDAR = """2027-03-01 | 2027-03-01 | 2027-03-01T23:59:59+00:00 | 2027-03-02T00:00:00+00:00
2027-03-01 | 2027-03-01 | 2027-03-02T12:59:59+13:00 | 2027-03-02T13:00:00+13:00
2028-02-29 | 2028-02-29 | 2028-02-29T12:00:00+00:00 | 2028-03-01T00:00:00+00:00
2027-10-31 | 2027-10-31 | 2027-11-01T00:59:59+01:00 | 2027-11-01T01:00:00+01:00
2027-03-01 18:00:00 | 2027-03-01 | 2027-03-01T23:59:59+00:00 | 2027-03-02T00:00:00+00:00
2027-03-01T23:30:00-05:00 | 2027-03-02 | 2027-03-02T23:59:59+00:00 | 2027-03-03T00:00:00+00:00
2027-03-01T00:30:00+09:00 | 2027-02-28 | 2027-02-28T23:59:59+00:00 | 2027-03-01T00:00:00+00:00
9999-12-31 | 9999-12-31 | 2027-03-01T00:00:00+00:00 | """


@pytest.mark.parametrize("quoted", [False, True], ids=["YAML's own", "text"])
@pytest.mark.parametrize(("until", "last", "during", "after"), [row.split(" | ") for row in CALENDAR.splitlines()])
def test_the_last_day_counts_and_days_are_those_of_utc(until, last, during, after, quoted):
    value = written(until, quoted)
    assert isinstance(value["until"], str if quoted else datetime.date)
    waiver = waivers.parse(value)
    assert waiver == waivers.Waiver(datetime.date.fromisoformat(last), **NEXT)
    assert drifted().under(waiver, at(during)).status == "waived"
    if after:
        found = drifted().under(waiver, at(after))
        assert (found.status, found.waiver.state, found.waiver.days_left) == ("drifted", "expired", -1)
        assert found.waiver.end == at(after).timestamp()


@pytest.mark.parametrize(
    "until",
    [
        *("2027-3-1", "03/01/2027", "20270301", 20270301, 1803859200.0, "2027-W09-1", "2027-02-29", "0000-01-01"),
        *("2027-060", "tomorrow", "+30d", True, ["2027-03-01"], "2027-03-01T25:00:00Z", "2027-03-01T00:00:00+99:00"),
        *("9" * 5000, "\u0662\u0660\u0662\u0667-03-01", "2027-03-01\x00", "2027-03-01\n2028-01-01"),
        *(at("0001-01-01T00:00:00+14:00"), at("9999-12-31T23:00:00-05:00")),
    ],
)
def test_what_is_no_day_is_refused_and_waives_nothing(until):
    with pytest.raises(waivers.WaiverError) as failure:
        waivers.parse({"until": until, **NEXT})
    assert "until" in str(failure.value) and str(failure.value).isprintable() and len(str(failure.value)) < 300


def test_a_waiver_says_until_when_why_and_who_in_lines_that_can_be_read_and_a_host_may_have_none():
    usual = written("2027-03-01")
    lacking = ({key: value for key, value in usual.items() if key != name} for name in usual)
    for value in (*lacking, *({**usual, name: odd} for name in usual for odd in (None, " \n", 7, {"a": 1}))):
        (name,) = [name for name in usual if value.get(name) != usual[name]]
        with pytest.raises(waivers.WaiverError, match=name):
            waivers.parse(value)
    for value in ("2027-03-01", True, ["2027-03-01"], {**usual, "untill": 1}):
        with pytest.raises(waivers.WaiverError, match="smt_policy_waiver"):
            waivers.parse(value)
    found = waivers.parse({**usual, "reason": "a\x1b[31m\n<b>{{ 1 }}\u202e" + "x" * 9000, "owner": "\x07o\u2028p"})
    assert all(text.isprintable() and len(text) <= waivers.MAX_TEXT for text in (found.reason, found.owner))
    assert [waivers.parse(value) for value in (None, False, "", {})] == [None] * 4


BY = "by jo: the vendor counts threads"


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [
        (31, "valid", f"waived until 2027-03-01 (UTC) {BY}"),
        (30, "ending", f"waived until 2027-03-01 (UTC, 30 more days) {BY}"),
        (1, "ending", f"waived until 2027-03-01 (UTC, 1 more day) {BY}"),
        (0, "ending", f"waived until 2027-03-01 (UTC, its last day) {BY}"),
        (-1, "expired", f"its waiver ended with 2027-03-01 (UTC) {BY}"),
    ],
)
def test_a_waiver_is_named_thirty_days_before_it_ends(days, state, words):
    now = at("2027-03-01T12:00:00+00:00") - datetime.timedelta(days=days)
    found = drifted().under(waivers.parse(written("2027-03-01")), now)
    assert found.waiver == waivers.Leave("2027-03-01", state, days, **NEXT)
    assert found.sentence == f"running: CPUs 2-3 are online. {words}"
    said = compliance_report.sentence([("a", found), ("b", drifted("compliant"))])
    assert ("a (2027-03-01)" in said) == (state != "valid")
    assert compliance_report.exit_worthy([("a", found)]) == (state == "expired")


@pytest.mark.parametrize("status", [one for one in Status if one not in ("drifted", "waived")])
def test_a_waiver_excuses_a_difference_and_nothing_else_and_keeps_its_host_as_it_is(status):
    waiver = waivers.parse(written("2027-03-01"))
    before = drifted(status, pending_rollback={}, change={"reboot": True})
    found = before.under(waiver, at("2026-03-01T00:00:00+00:00"))
    assert (found.status, found.sentence, found.change) == (status, before.sentence, Change())
    assert not rollout.is_pending(found, reboot_ok=True)
    over = before.under(waiver, at("2027-03-02T00:00:00+00:00"))
    assert over.change == before.change and rollout.is_pending(over, True) == (status == "compliant")


def test_a_notice_of_a_fleet_names_a_few():
    waiver, now = waivers.parse(written("2027-03-01")), at("2027-02-20T00:00:00+00:00")
    fleet = [(f"h{number}", drifted().under(waiver, now)) for number in range(9)]
    said = "Waivers that end within 30 days: " + ", ".join(f"h{number} (2027-03-01)" for number in range(5))
    assert f"{said} and 4 more." in compliance_report.sentence(fleet)
    over = [("h", drifted().under(waiver, at("2027-03-02T00:00:00+00:00")))]
    assert "Waivers that ended: h (2027-03-01)." in compliance_report.sentence(over)


CLASS = "x86_64-1s2c4t-split-00000000"
EVALUATION = "evaluation of a in run r, 3 days old"


def decided(decision):
    return {CLASS: {"decision": decision, "whose": EVALUATION, "sentence": "Because."}}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        # The words of smt_state, and what YAML makes of them.
        *((word, DesiredState("enabled")) for word in ("enabled", "on", True)),
        *((word, DesiredState("disabled")) for word in ("disabled", "off", False)),
        ({"threads_per_core": "2"}, DesiredState(threads=2)),
        ({"disabled_on": {"node": 0}}, DesiredState("disabled", cores=Scope("node", "0"))),
        ({"disabled_on": {"cpus": "0-3,4"}}, DesiredState("disabled", cores=Scope("cpus", "0-4"))),
    ],
)
def test_a_value_becomes_a_desired_state(value, wanted):
    assert policy.desired_state(value, {}, CLASS, None) == wanted
    policy.check(value, None)


# A policy is compared with facts, which have no units.
NO_PARTS = None, {}, "node", {"node": 0, "package": 0}, {"node": "x"}, {"cpus": "0-"}, {"unit": "db.service"}


@pytest.mark.parametrize(
    "value",
    [
        *("yes", 2, [], {}, {"threads_per_core": 2, "more": 1}, {"enabled": True}),
        *({"threads_per_core": count} for count in (0, 9, True, 1.5, "x" * 10**4)),
        {"disabled_on": {"node": 0}, "threads_per_core": 2},
        *({"disabled_on": part} for part in NO_PARTS),
    ],
)
def test_what_is_no_policy_is_refused_also_without_a_host(value):
    for check in (policy.check, lambda *given: policy.desired_state(*given, CLASS, None)):
        with pytest.raises(policy.PolicyError):
            check(value, None)
        with pytest.raises(policy.PolicyError, match=r"smt_policy_classes|disabled_on|threads"):
            check("enabled", {"of-no-host": value})


def test_a_policy_that_some_host_can_have_passes_without_a_host_and_a_class_goes_before_it():
    policy.check("auto", {})
    policy.check(None, {CLASS: "disabled"})
    for value, classes in ((None, None), (None, {}), ("on", ["x"])):
        with pytest.raises(policy.PolicyError):
            policy.check(value, classes)
    asked = ({CLASS: "disabled"}, CLASS), ({"other": "disabled"}, CLASS), ({CLASS: "disabled"}, None)
    states = [policy.desired_state("enabled", *one, None) for one in asked]
    assert states == [DesiredState("disabled"), DesiredState("enabled"), DesiredState("enabled")]
    with pytest.raises(policy.PolicyError, match="runtime, boot or both"):
        policy.scope("all")


def test_auto_takes_the_decision_says_whose_it_is_and_has_nothing_to_decide_without_smt():
    for decision, state in (("enabled", "enabled"), ("disabled", "disabled"), ("any", None)):
        desired = policy.desired_state("auto", None, CLASS, decided(decision))
        assert desired == DesiredState(state, decided_by=f"{EVALUATION}: Because.")
    assert all(policy.desired_state("auto", None, one, {}, without_smt=True).anything for one in (CLASS, None))
    assert policy.desired_state("enabled", None, CLASS, None, without_smt=True) == DesiredState("enabled")


AUTO = "smt_policy is auto, and"
NO_RESULTS = f"{AUTO} no results are configured: set smt_policy_results to a directory of"
NOTHING_SET = f"no policy is set: give smt_policy, or its hardware class {CLASS} in"
NO_CLASS = f"{AUTO} the hardware class of this host is not known, so no evaluation"
NO_EVALUATION = f"{AUTO} the results have no evaluation of hardware class {CLASS}: evaluate a"
REFUSED = [
    ((None, {"other": "on"}, CLASS, None), False, NOTHING_SET),
    (("auto", None, CLASS, None), False, NO_RESULTS),
    # A policy that no host could have is no other where there is no SMT.
    (("auto", None, CLASS, None, None, True), False, NO_RESULTS),
    (("auto", None, None, {}, "gone", True), True, f"{AUTO} the results cannot be read: gone"),
    (("auto", None, None, decided("on")), True, NO_CLASS),
    (("auto", None, CLASS, {}), True, NO_EVALUATION),
    (("auto", None, CLASS, decided(None)), True, f"{AUTO} the evaluations do not decide: {EVALUATION}: Because."),
    (("auto", None, CLASS, decided("by_workload")), True, f"{AUTO} the evaluations do not decide"),
]


@pytest.mark.parametrize(("asked", "is_undecided", "sentence"), REFUSED)
def test_what_does_not_decide_is_no_fault_of_the_policy(asked, is_undecided, sentence):
    with pytest.raises(policy.PolicyError) as refused:
        policy.desired_state(*asked)
    assert isinstance(refused.value, policy.UndecidedError) == is_undecided
    assert str(refused.value).startswith(sentence)
