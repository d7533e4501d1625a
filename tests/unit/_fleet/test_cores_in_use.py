# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a look: sentences, the table, the page and the document; and what second threads give."""

from __future__ import annotations

import dataclasses
import datetime

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import cores_in_use, yields
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.cores_in_use import Host
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions
from looks import UNITS, USE, answer, looked


def test_the_border_lets_an_answer_through_and_no_other():
    check = answers.KINDS["smt_usage"].check
    check(answer())
    for wrong in (
        {"use": {**USE, "work": [0.1]}},
        {"use": {**USE, "work": [0.1, 7.0]}},
        {"cores": [{"cpus": ["0"], "usage": 0.5, "busy": [0, 1], "several": [0, 1]}]},
        {"units": [{**UNITS[0], "ran": "many"}]},
        {"units": [UNITS[0]] * 101},
        {"pairs": [{"units": ["/a"], "seconds": 1.0}]},
        {"method": "guess"},
        {"reason": "two\nlines"},
    ):
        with pytest.raises(BorderError):
            check(answer(**wrong))


@pytest.mark.parametrize(("by_usage", "said"), [(1.0, "less"), (0.1, "more")])
def test_a_summary_says_whether_there_is_less_room_or_more(by_usage, said):
    one = looked(use={**USE, "by_usage": by_usage})
    assert cores_in_use.summary([one]) == f"1 host: 1 with {said} room than usage says."


def test_room_is_said_beside_what_usage_says():
    said = cores_in_use.sentences(looked())
    assert said[0] == (
        "CPU usage is 50 %, and it does 76 to 84 % of the work that it can do: there is room for 19 to 32 % more of"
        " such work, not for 100 % as usage says."
    )
    assert said[1] == (
        "Siblings were busy together for 5 to 10 % of the time of a core: under this load SMT off can change what the"
        " host does by up to 5 %; an evaluation tells."
    )
    assert said[2] == (
        "/system.slice/postgresql.service spent 40 % of its CPU time beside a busy sibling: with SMT off the same work"
        " can take up to 20 % less of it, where no CPU is missing then."
    )
    assert said[3].startswith("/system.slice/backup.service spent 16 %")
    assert said[4] == (
        "So much of their CPU time units spent beside a sibling with other work: /system.slice/postgresql.service 31 %,"
        " /system.slice/backup.service 16 %."
    )
    assert said[5] == "What second threads give is a guess: 1.0 to 1.3 (no evaluation of this class)."


def test_where_smt_cannot_matter_that_is_said():
    one = looked(use={**USE, "bound": 0.004, "several": [0.0, 0.003]})
    assert "SMT off cannot change what the host does by more than 0.4 %." in cores_in_use.sentences(one)[1]
    assert cores_in_use.summary([one]).startswith("1 host: 1 on which SMT cannot matter under this load")


def test_what_was_measured_is_named():
    one = cores_in_use.host("web01", answer(), ["gzip", "oltp 8"])
    assert cores_in_use.sentences(one)[-1] == "What second threads give is as measured with gzip and oltp 8."


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"method": "counters", "reason": "only root can watch"},
            "the limits are those of its counters: only root can",
        ),
        ({"cut": 3}, "3 of 60 windows ended early, because a buffer was full."),
    ],
)
def test_what_was_not_seen_is_said(changed, said):
    assert said in cores_in_use.sentences(looked(**changed))[-1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"source": "purr", "guessed": False, "method": "counters", "reason": "no tracefs"},
            [
                "How much of its work it does is what the processor counts of its cores (PURR).",
                "When siblings were busy together was not seen, so the limits are those of its counters: no tracefs.",
            ],
        ),
        (
            {"source": "one_thread_active", "method": "counters", "reason": "only root can watch"},
            [
                "What second threads give is a guess: 1.0 to 1.3 (no evaluation of this class).",
                "How long siblings were busy together is what the processor counted of the whole time.",
            ],
        ),
        (
            {"source_reason": "perf is not installed"},
            [
                "What second threads give is a guess: 1.0 to 1.3 (no evaluation of this class).",
                "The processor's own counters were not used: perf is not installed.",
            ],
        ),
    ],
)
def test_what_the_processor_counts_itself_is_said(changed, said):
    assert cores_in_use.sentences(looked(**changed))[-2:] == said


FACTS = {"vulnerabilities": {"mds": {"smt": "vulnerable"}, "l1tf": {"smt": "vulnerable"}, "gds": {"smt": "no"}, 5: 7}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"pairs": [{"units": [None, "/a"], "seconds": 999.0}, {"units": ["/a", "/b"], "seconds": 102.5}]},
            (
                "l1tf and mds are open across threads here, and /a and /b share cores for 41 minutes of a day like"
                " this; tasks whose unit is not known share cores, with each other or with units, for 400 minutes of"
                " it."
            ),
        ),
        ({"pairs": []}, "l1tf and mds are open across threads here, and no two units shared a core in the windows."),
        ({"method": "counters"}, "l1tf and mds are open across threads here."),
    ],
)
def test_what_is_open_across_threads_is_said_with_whose_work_shares_cores(changed, said):
    assert said in cores_in_use.sentences(cores_in_use.host("web01", answer(**changed), [], FACTS))
    assert not [one for one in cores_in_use.sentences(looked(**changed)) if "open across threads" in one]


def test_who_shares_cores_with_a_task_that_has_no_name_is_said_too():
    one = looked(pairs=[{"units": [None, "/a"], "seconds": 102.5}])
    (said,) = [
        one
        for one in cores_in_use.sentences(dataclasses.replace(one, open_to=("MDS",)))
        if one.startswith("MDS is open across threads here")
    ]
    unnamed = "tasks whose unit is not known share cores, with each other or with units, for 41 minutes of it."
    assert said == f"MDS is open across threads here, and {unnamed}"
    # Beside those that have names, however little they share.
    pairs = [{"units": [None, None], "seconds": 102.5}, {"units": ["/a", "/b"], "seconds": 0.9}]
    (said,) = cores_in_use._of_security(dataclasses.replace(looked(pairs=pairs), open_to=("MDS",)))
    named = "/a and /b share cores for less than a minute of a day like this"
    assert said == f"MDS is open across threads here, and {named}; {unnamed}"


def test_a_virtual_machine_that_sees_no_siblings_is_not_judged():
    alone = {"cores": [{"cpus": [0], "usage": 0.5, "busy": [0.5, 0.5], "several": [0.0, 0.0]}]}
    one = cores_in_use.host("web01", answer(**alone), [], {"hypervisor": "kvm"})
    usage, hidden = cores_in_use.sentences(one)
    assert usage == "CPU usage is 50 %." and "whether its CPUs share cores" in hidden
    assert cores_in_use.cells(one) == ("50 %", "-", "-", "-")
    assert cores_in_use.summary([one]) == "1 host: 1 virtual and without siblings in sight."
    assert cores_in_use.described(one)["use"] is None and "virtual machine" in cores_in_use.described(one)["reason"]
    # A machine that has siblings, all of them offline, is none of these, nor is a partition of which the processor says
    # what it uses.
    off = {"hypervisor": "phyp", "supported": True, "control": "off"}
    assert not cores_in_use.host("web01", answer(**alone), [], off).hides_siblings
    assert not cores_in_use.host("web01", answer(**alone, source="purr"), [], {"hypervisor": "phyp"}).hides_siblings
    # One that sees siblings is judged by them.
    assert not cores_in_use.host("web01", answer(), [], {"hypervisor": "kvm"}).hides_siblings


def test_of_more_threads_each_does_less_of_what_their_core_does():
    core = {"cpus": [0, 1, 2, 3], "usage": 1.0, "busy": [1.0, 1.0], "several": [1.0, 1.0]}
    unit = {"unit": "/pg", "ran": 100.0, "beside": 100.0, "apart": 0.0}
    for gain, less in (([1.0, 1.3], 75), ([2.1, 2.4], 48)):
        one = looked(cores=[core], units=[unit], use={**USE, "gain": gain})
        assert f"can take up to {less} % less of it" in " ".join(cores_in_use.sentences(one))


def test_why_a_host_is_not_judged_is_its_own_reason():
    one = looked(use=None, cores=[], use_reason="CPUs 2 went offline while it was looked at: look again")
    assert cores_in_use.sentences(one) == [
        "How its CPUs are used is not known: CPUs 2 went offline while it was looked at: look again."
    ]


def test_a_host_without_siblings_online():
    one = looked(cores=[{"cpus": [0], "usage": 0.5, "busy": [0.5, 0.5], "several": [0.0, 0.0]}])
    assert cores_in_use.sentences(one)[1:] == ["No two siblings are online, so no work shares a core."]
    assert cores_in_use.summary([one]).startswith("1 host: 1 without siblings online")


@pytest.mark.parametrize(
    ("registered", "reason"),
    [
        (None, "it was not looked at: an earlier task failed"),
        ({"msg": "no such host", "unreachable": True}, "no such host"),
        ({"failed": True, "msg": ["a"]}, "it was not looked at: an earlier task failed"),
        ("nonsense", "it was not looked at: an earlier task failed"),
    ],
)
def test_a_host_without_a_look(registered, reason):
    one = cores_in_use.host("web02", registered, [])
    assert one.use is None and one.reason == reason
    assert reason in cores_in_use.sentences(one)[0] and reason in "\n".join(cores_in_use.table([one]))


def test_first_those_without_a_look_then_those_with_the_least_room():
    full, empty = looked(use={**USE, "work": [0.97, 0.99]}), looked(use={**USE, "work": [0.1, 0.2]})
    names = [
        one.name
        for one in cores_in_use.ordered(
            [
                Host("empty", None, empty.answer),
                Host("full", None, full.answer),
                Host("gone", "it is not reachable", {}),
            ]
        )
    ]
    assert names == ["gone", "full", "empty"]


# ---- what second threads give ----------------------------------------------------------------------------------------


def concluded(host, share, **options):
    """The conclusion of an evaluation in which SMT off does `share` of the work of SMT on."""
    workloads = {"gzip": {**result_maker.GZIP, "share": 1 / (2 * share)}}
    document = result_maker.result(blocks=8, workloads=workloads, **options)
    document["host"] = host
    return decisions.conclude(result_maker.accepted(document), datetime.datetime.now(datetime.UTC))


def test_the_yield_is_the_work_with_smt_on_in_that_with_smt_off():
    one = concluded("web01", 0.8)
    ((name, found),) = yields.by_class([one]).items()
    (of_gzip,) = found
    comparison = one.workloads["gzip", None]
    assert name == one.hardware_class and (of_gzip.workload, of_gzip.hosts) == ("gzip", 1)
    assert of_gzip.value == pytest.approx(1 / comparison["ratio"])
    assert of_gzip.low <= of_gzip.value <= of_gzip.high
    assert (of_gzip.low, of_gzip.high) == pytest.approx((1 / comparison["ci_high"], 1 / comparison["ci_low"]))


def test_the_latest_run_of_each_host_counts_and_hosts_are_combined():
    found = yields.by_class([concluded("web01", 0.8), concluded("web02", 0.82), concluded("web03", 0.81)])
    ((of_gzip,),) = found.values()
    assert of_gzip.hosts == 3 and of_gzip.low <= 1 / 0.81 <= of_gzip.high


def test_a_host_that_is_of_another_class_now_does_not_count():
    one, other = concluded("web01", 0.8), concluded("web02", 0.5)
    found = yields.by_class([one, other], {"web01": one.hardware_class, "web02": "x86_64-other"})
    assert [of_gzip.hosts for (of_gzip,) in found.values()] == [1]


@pytest.mark.parametrize(("aggregate", "is_one"), [("per_job", True), ("mean_per_job", False), ("max", False)])
def test_what_a_worker_waits_or_takes_is_no_yield(aggregate, is_one):
    job = {
        "title": "job",
        "metrics": {"time": {"unit": "s", "better": "lower", "aggregate": aggregate}},
        "model": lambda arm, _spot, workers: [12.0 if arm == "smt_off" else 10.0] * len(workers),
    }
    document = result_maker.result(blocks=8, workloads={"job": job})
    conclusion = decisions.conclude(result_maker.accepted(document), datetime.datetime.now(datetime.UTC))
    assert [bool(found) for found in yields.by_class([conclusion]).values()] == [is_one]


def test_no_evaluation_is_no_yield():
    assert yields.by_class([]) == {}
