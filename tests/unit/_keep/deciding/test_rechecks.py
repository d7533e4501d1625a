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
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions, rechecks, yields
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding.basis import Basis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
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


SAYS = "says that the effect has changed"


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
    (one,) = decision["rechecks"]
    run = {"host": "a", "run": "recheck-2026-11-20", "day": "2026-11-20", "age_days": 7, "kernel": NEW}
    assert one == {**run, "mitigations": ["meltdown: Mitigation: PTI"], "state": "holds"}


def test_what_holds_ends_staleness_by_age_and_by_mitigations():
    now = {**PTI, "mds": {"status": "Mitigation: Clear CPU buffers"}}
    old = [measured(host, "2025-10-01") for host in "abc"]
    assert len(stale(decided(*old), OLD, now)) == 2
    held = again(kernel=OLD)
    assert stale(decided(*old, held), OLD) == []
    assert ["mds" in one for one in stale(decided(*old, held), OLD, now)] == [True]
    basis = Basis(OLD, mitigations=("mds: Mitigation: Clear CPU buffers", "meltdown: Mitigation: PTI"))
    assert stale(decided(*old, dataclasses.replace(held, basis=basis)), OLD, now) == []
    # It gets old itself, and that of another host does not count for a kernel that it is not about.
    assert len(stale(decided(*old, held), OLD, max_age=5)) == 1
    beside = decided(*old, held, again("b", day="2026-11-25", share=0.53))
    assert stale(beside, OLD) == [] and to_measure(beside, OLD) == []


# What is re-checked, in which hosts run the new kernel unless they have another one; what a host on the new kernel, on
# the old one and on a third one hears last, and what is to be measured for a host of these.
CHANGED = f"its re-check by a on 2026-11-20 with Linux {NEW} {SAYS}"
CHANGED_OLD = CHANGED.replace(NEW, OLD)
B_CHANGED = CHANGED_OLD.replace("by a", "by b")
VAGUE = f"its re-check by a on 2026-11-25 with Linux {NEW} does not tell whether it still holds"
row = pytest.param


@pytest.mark.parametrize(
    ("found", "new", "old", "third", "to_be_measured"),
    [
        # It is said to each host that it is about and stays in force; of a third kernel nothing is known.
        row([again(share=0.53)], CHANGED, None, CHANGED, "az"),
        row([again(share=0.53, kernel=OLD)], CHANGED_OLD, CHANGED_OLD, CHANGED_OLD, "az"),
        # Of kernels that were re-checked each speaks for itself.
        row([again(share=0.53), again(day="2026-11-24", kernel="6.18.1")], CHANGED, None, None, ""),
        row([again(), again("b", share=0.53, kernel=OLD)], None, B_CHANGED, B_CHANGED, "bz"),
        # One that does not decide takes no confirmation away.
        row([again(day="2026-11-25", noise=0.2)], VAGUE, None, VAGUE, "az"),
        row([again(), again(day="2026-11-25", noise=0.2)], None, None, "6.18", "z"),
        # Of a host the latest one counts.
        row([again(day="2026-11-10", share=0.53), again()], None, None, "6.18", "z"),
        # What one host holds another one changes.
        row([again(), again("b", share=0.53)], SAYS, None, SAYS, "bz"),
        # A host that does not decide is compared with nothing, and that is no reason.
        row([again("d")], "6.12", None, "6.18", "z"),
        # Only those since the run that decides count.
        row([again(day="2026-09-01", share=0.53)], "6.12", None, "6.18", "z"),
    ],
)
def test_what_has_changed_is_said_to_each_host_that_it_is_about(found, new, old, third, to_be_measured):
    decision = decided(*FIRST, *found)
    assert decision["decision"] == "enabled"
    for kernel, said in ((NEW, new), (OLD, old), ("6.18.1", third)):
        reasons = stale(decision, kernel)
        assert (said in reasons[-1]) if said else (reasons == []), (kernel, reasons)
    assert to_measure(decision, "6.18.1") == [*to_be_measured]


def test_each_re_check_is_held_against_the_run_that_decides_and_no_earlier_one_spoils_it():
    for kernel in (NEW, OLD):
        days = [f"2026-11-{day:02}" for day in (3, 10, 20)]
        found = decided(*FIRST, again(day="2026-10-20", share=0.53, kernel=kernel), *(again(day=day) for day in days))
        assert [one["state"] for one in found["rechecks"]] == ["holds"] * 3 + ["changed"]
    # After a change nothing is confirmed by a second look that says the same.
    twice = decided(*FIRST, again(day="2026-11-10", share=0.53), again(share=0.53))
    assert [one["state"] for one in twice["rechecks"]] == ["changed", "changed"] and "confirmed" not in twice["whose"]


@pytest.mark.night(after=2)
@pytest.mark.parametrize(("number", "hosts"), [(8, 1), (1, 8), (2, 20), (1, 1), (2, 1)])
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

    # Where five in a hundred are, 33 of 400 are in one of 1000 such tests.
    assert sum(is_called() for _again in range(count)) <= 33


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


def test_who_did_not_decide_or_was_only_re_checked():
    vain = decided(*FIRST, again("d"))
    assert [(one["host"], one["state"]) for one in vain["rechecks"]] == [("d", rechecks.NOT_COMPARED)]
    assert vain["whose"].endswith(", re-checked in vain with d, which did not decide")
    assert decided(*FIRST, again("d", day="2026-09-01"))["rechecks"] == []
    anew = [measured(host, "2026-11-26", share=0.53, kernel=NEW) for host in "abc"]
    assert stale(decided(*FIRST, again(share=0.53), *anew)) == []
    alone = decided(again())
    assert alone["decision"] is None and alone["sentence"].startswith("Its hosts were only re-checked")
    assert yields.by_class([again()]) == {}
    # One of a host that is of another class now, or without a comparison, says nothing.
    (one,) = (found for found in decisions.decisions([*FIRST, again(share=0.53)], NOW, {"a": "other"}).values())
    assert one["rechecks"] == [] and one["hosts"] == ["b", "c"] and "a" in one["not_counted"]
    assert decided(*FIRST, dataclasses.replace(again(), choice=conclusion.NOT_COMPARED))["rechecks"] == []
