# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A re-check confirms a decision or flags it, and never takes its place."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import random

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import goals
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import yields
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions, rechecks
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding.basis import Basis
from ansible_collections.threadwise.smt.plugins.plugin_utils._pooled import series
from result_maker import accepted

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
LATER = NOW - datetime.timedelta(days=1)
OLD, NEW = "6.1.0-28-amd64", "6.12.9-1-amd64"
PTI = {"meltdown": {"status": "Mitigation: PTI", "smt": None}}


def measured(host="a", day="2026-10-01", share=0.6, kernel=OLD, goal=goals.DECISION, blocks=20, noise=0.005, **more):
    """What an evaluation of a host says, in which second threads give twice ``share``."""
    options = {"workloads": {"gzip": {**result_maker.GZIP, "share": share}}, **more}
    seed = sum(map(ord, host + day))
    document = result_maker.result(
        host=host, run=f"{goal}-{day}", blocks=blocks, noise=noise, seed=seed, names=("all_threads",), **options
    )
    document["plan"]["goal"] = goal
    document["environment"]["kernel"] = kernel
    document["facts"]["vulnerabilities"] = PTI
    document.update(collected=f"{day}T00:00:00Z")
    return decisions.conclude(accepted(document), NOW)


def again(host="a", day="2026-11-20", kernel=NEW, **options):
    """A re-check, which ends at a wide interval."""
    return measured(host, day, kernel=kernel, goal=goals.RECHECK, **{"blocks": 6, "noise": 0.02, **options})


def decided(*found, **options):
    (decision,) = decisions.decisions(found, NOW, **options).values()
    assert json.loads(json.dumps(decision)) == decision
    return decision


def stale(decision, kernel=NEW, vulnerabilities=None, max_age=365):
    return rechecks.stale(decision, {"kernel": kernel, "vulnerabilities": vulnerabilities or PTI}, max_age)


def to_measure(decision, kernel):
    facts = {"kernel": kernel, "vulnerabilities": PTI}
    return rechecks.to_measure("z", decision, facts, rechecks.stale(decision, facts, 365), 365)


FIRST = [measured(host) for host in "abc"]


def test_a_coarse_run_never_takes_the_place_of_a_precise_one():
    for hosts in (FIRST[:1], FIRST):
        before, after = decided(*hosts), decided(*hosts, again(share=0.59, noise=0.2))
        assert after["decision"] == before["decision"] == "enabled"
        assert all(after[name] == before[name] for name in ("runs", "age_days", "rests_on", "sentence", "whose"))
        assert [one["state"] for one in after["rechecks"]] == [series.NOT_DECIDED]


def test_what_holds_confirms_the_decision_for_the_kernel_of_the_re_check():
    assert stale(decided(*FIRST)) == ["it was measured on Linux 6.1, and the host runs 6.12"]
    decision = decided(*FIRST, again())
    assert decision["whose"].endswith(f"days old, confirmed on 2026-11-20 with Linux {NEW}")
    assert stale(decision) == stale(decision, OLD) == []
    assert stale(decision, "6.18.1") == ["it was measured on Linux 6.1 and 6.12, and the host runs 6.18"]
    # As in another file of this collection.
    (one,) = decision["rechecks"]
    assert one == {
        "host": "a",
        "run": "recheck-2026-11-20",
        "day": "2026-11-20",
        "age_days": 7,
        "kernel": NEW,
        "mitigations": ["meltdown: Mitigation: PTI"],
        "state": "holds",
    }


def test_what_holds_ends_staleness_by_age_and_by_mitigations():
    now = {**PTI, "mds": {"status": "Mitigation: Clear CPU buffers"}}
    old = [measured(host, "2025-10-01") for host in "abc"]
    assert len(stale(decided(*old), OLD, now)) == 2
    held = again(kernel=OLD)
    assert stale(decided(*old, held), OLD) == []
    assert ["mds" in one for one in stale(decided(*old, held), OLD, now)] == [True]
    basis = Basis(OLD, mitigations=("mds: Mitigation: Clear CPU buffers", "meltdown: Mitigation: PTI"))
    assert stale(decided(*old, dataclasses.replace(held, basis=basis)), OLD, now) == []
    # It gets old itself.
    assert stale(decided(*old, held), OLD, max_age=5) == ["it is 7 days old, more than smt_policy_max_age (5)"]


def test_what_has_changed_is_said_to_each_host_that_it_is_about_and_stays_in_force():
    decision = decided(*FIRST, again(share=0.53))
    assert decision["decision"] == "enabled" and "confirmed" not in decision["whose"]
    said = f"its re-check by a on 2026-11-20 with Linux {NEW} says that the effect has changed"
    assert stale(decision) == ["it was measured on Linux 6.1, and the host runs 6.12", said]
    # The kernel on which it was decided does what it did.
    assert stale(decision, OLD) == [] and to_measure(decision, OLD) == []
    # Of a third one, and of a host whose kernel is not known, nothing is known.
    assert stale(decision, "6.18.1")[-1] == stale(decision, None)[-1] == said
    assert to_measure(decision, "6.18.1") == ["a", "z"]
    same = decided(*FIRST, again(share=0.53, kernel=OLD))
    assert stale(same, OLD) == [said.replace(NEW, OLD)] and to_measure(same, OLD) == ["a", "z"]


def test_each_re_check_is_held_against_the_run_that_decides_and_no_earlier_one_spoils_it():
    """One on another kernel, or on a host that was disturbed, was part of one series with all later ones."""
    for kernel in (NEW, OLD):
        days = [f"2026-11-{day:02}" for day in (3, 10, 20)]
        found = decided(*FIRST, again(day="2026-10-20", share=0.53, kernel=kernel), *(again(day=day) for day in days))
        assert [one["state"] for one in found["rechecks"]] == ["holds"] * 3 + ["changed"]


def test_the_age_is_that_of_re_checks_that_speak_of_the_host():
    old = [measured(host, "2025-10-01") for host in "abc"]
    held = decided(*old, again(kernel=OLD), again("b", day="2026-11-25", share=0.53))
    assert stale(held, OLD) == [] and to_measure(held, OLD) == []
    assert held["whose"].endswith(f"confirmed on 2026-11-20 with Linux {OLD}")


@pytest.mark.parametrize(("number", "hosts"), [(1, 1), (2, 1), (8, 1), (1, 8), (2, 20)])
def test_a_change_is_called_in_at_most_five_of_100_re_checks_of_any_number_of_workloads_and_hosts(number, hosts):
    source, count = random.Random(number), 400
    (first,) = [FIRST[0]]
    (key,) = first.workloads

    def run(error):
        """What a run says of workloads that did not change, each otherwise by chance, and by the day."""
        found = {}
        for place in range(number):
            log = source.gauss(0, error) + source.gauss(0, 0.01)
            ends = {"ci_low": math.exp(log - 1.96 * error), "ci_high": math.exp(log + 1.96 * error)}
            found["w", float(place)] = {**first.workloads[key], "ratio": math.exp(log), **ends}
            found["w", float(place)]["interval_confidence"] = 0.95
        return dataclasses.replace(first, workloads=found)

    def is_called():
        """Whether a class of some hosts, all of them re-checked, is said to have changed."""
        deciding = [dataclasses.replace(run(0.005), host=str(host)) for host in range(hosts)]
        later = [dataclasses.replace(run(0.01), host=one.host, at=LATER) for one in deciding]
        return rechecks.counting(rechecks.of_class(deciding, later, NOW))["state"] == series.CHANGED

    called = sum(is_called() for _again in range(count))
    print(f"{number} workloads, {hosts} hosts: changed in {called} of {count}")
    # Where five in a hundred are, 33 of 400 are in one of 1000 such tests.
    assert called <= 33


def test_of_kernels_that_were_re_checked_each_speaks_for_itself():
    decision = decided(*FIRST, again(share=0.53), again(day="2026-11-24", kernel="6.18.1"))
    assert stale(decision)[-1] == f"its re-check by a on 2026-11-20 with Linux {NEW} says that the effect has changed"
    assert stale(decision, "6.18.1") == []


def test_what_one_kernel_changes_takes_no_confirmation_of_another_one_away():
    decision = decided(*FIRST, again(), again("b", share=0.53, kernel=OLD))
    assert stale(decision) == []
    assert stale(decision, OLD) == [
        f"its re-check by b on 2026-11-20 with Linux {OLD} says that the effect has changed"
    ]


def test_a_re_check_that_does_not_decide_is_said_and_takes_no_confirmation_away():
    vague = again(day="2026-11-25", noise=0.2)
    assert stale(decided(*FIRST, vague))[1:] == [
        f"its re-check by a on 2026-11-25 with Linux {NEW} does not tell whether it still holds"
    ]
    assert stale(decided(*FIRST, again(), vague)) == []
    # What one host holds another one changes.
    assert "has changed" in stale(decided(*FIRST, again(), again("b", share=0.53)))[-1]
    # After a change nothing is confirmed by a second look that says the same.
    twice = decided(*FIRST, again(day="2026-11-10", share=0.53), again(share=0.53))
    assert [one["state"] for one in twice["rechecks"]] == ["changed", "changed"]


def test_all_that_the_run_which_decides_has_measured_has_to_hold():
    both = {name: {**result_maker.GZIP, "share": 0.6} for name in ("gzip", "own")}
    first = measured(workloads=both)
    assert decided(first, again(workloads=both))["rechecks"][0]["state"] == "holds"
    assert decided(first, again())["rechecks"][0]["state"] == "not decided"
    changed = {**both, "own": {**both["own"], "share": 0.53}}
    assert decided(first, again(workloads=changed))["rechecks"][0]["state"] == "changed"
    # The same numbers of another unit say nothing.
    other = {**both, "own": {**both["own"], "unit": "kB/s"}}
    assert decided(first, again(workloads=other))["rechecks"][0]["state"] == "not decided"


def test_only_re_checks_since_the_run_that_decides_count():
    assert decided(*FIRST, again(day="2026-09-01", share=0.53), again("d", day="2026-09-01"))["rechecks"] == []
    anew = [measured(host, "2026-11-26", share=0.53, kernel=NEW) for host in "abc"]
    assert stale(decided(*FIRST, again(share=0.53), *anew)) == []
    # A host that does not decide is compared with nothing, and that is no reason.
    vain = decided(*FIRST, again("d"))
    assert [(one["host"], one["state"]) for one in vain["rechecks"]] == [("d", rechecks.NOT_COMPARED)]
    assert vain["whose"].endswith(", re-checked in vain with d, which did not decide")
    assert stale(vain, OLD) == [] and len(stale(vain)) == 1


def test_a_class_that_was_only_re_checked_has_no_decision():
    decision = decided(again())
    assert decision["decision"] is None and "only re-checked, which decides nothing" in decision["sentence"]
    assert yields.by_class([again()]) == {}


def test_a_re_check_of_a_host_that_is_of_another_class_now_says_nothing():
    (one,) = (found for found in decisions.decisions([*FIRST, again(share=0.53)], NOW, {"a": "other"}).values())
    assert one["rechecks"] == [] and one["hosts"] == ["b", "c"] and "a" in one["not_counted"]


@pytest.mark.parametrize("compared", [True, False])
def test_a_re_check_without_a_comparison_is_none(compared):
    one = again()
    choice = one.choice if compared else conclusion.NOT_COMPARED
    assert len(decided(*FIRST, dataclasses.replace(one, choice=choice))["rechecks"]) == compared
