# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a recommendation decides, or is named beside it: on one host, and of a hardware class."""

from __future__ import annotations

import datetime
import html

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import fleet
from result_maker import accepted, analysed

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
EIGHT = (1, 4, 2)
JOBS = {"jobs": {"unit": "jobs/s", "better": "higher", "aggregate": "sum"}}
ERRORS = {"errors": {"unit": "errors", "better": "lower", "aggregate": "sum"}}
BETTER_OFF = {**result_maker.GZIP, "share": 0.45, "title": "gzip"}


def jobs(title, of_all, further=None, metrics=None):
    """A workload that does ``of_all(arm, number of workers)`` jobs a second."""
    workload = {
        "title": title,
        "metrics": {**JOBS, **(metrics or {})},
        "model": lambda arm, _spot, placed: [of_all(arm, len(placed)) / len(placed)] * len(placed),
    }
    return {**workload, "further": further} if further else workload


def made(workloads, names=("all_threads",), **options):
    return result_maker.result(
        workloads=workloads, **{"shape": EIGHT, "blocks": 8, "noise": 0.002, "names": list(names), **options}
    )


def said(document):
    analysis = analysed(document)
    return conclusion.conclude(analysis), recommendation.recommend(analysis)


def failing(document, is_failing, error="segfault"):
    for sample in document["samples"]:
        if is_failing(sample):
            sample.update(ok=False, error=error, metrics={}, workers=[])
    return document


def of_class(*documents):
    """What is said of the hosts of these results together, on the page and as a decision."""
    rows = [hardware_classes.row(result_maker.summarised(one), f"{one['host']}.html") for one in documents]
    (found,) = hardware_classes.by_class(rows, 0.01, 0.95)
    (decided,) = decisions.decisions([decisions.conclude(accepted(one), NOW) for one in documents], NOW).values()
    return found, decided


def cannot_do_orders(host, seed):
    document = made({"a": BETTER_OFF, "b": {**result_maker.GZIP, "title": "orders"}}, host=host, seed=seed)
    return failing(document, lambda one: (one["workload"], one["arm"]) == ("b", "smt_off"))


def waits_of_each(host, seed):
    times = {"wall_time": {"unit": "s", "better": "lower", "aggregate": "mean"}}
    model = {
        "title": "jobs",
        "metrics": times,
        "model": lambda arm, _s, ws: [10.0 if arm == "smt_off" else 16.0] * len(ws),
    }
    return made({"w": model}, host=host, seed=seed)


@pytest.mark.parametrize("kind", [cannot_do_orders, waits_of_each])
def test_many_hosts_do_not_decide_what_none_of_them_could_measure(kind):
    found, decided = of_class(*(kind(f"h{number}", number) for number in range(4)))
    assert (found["recommendation"], found["title"]) == ("undecided", "not decided")
    assert decided["decision"] is None


def test_the_page_of_a_fleet_names_hosts_that_leave_something_open():
    documents = [cannot_do_orders("h0", 0), *(made({"a": BETTER_OFF}, host=f"h{number}") for number in (1, 2, 3))]
    rows = [hardware_classes.row(result_maker.summarised(one), f"{one['host']}.html") for one in documents]
    page = html.unescape(fleet.render(rows, [], hardware_classes.by_class(rows, 0.01, 0.95)))
    answer = page.partition("By hardware class")[0]
    assert "1 host left something open that neither more blocks nor more hosts tell: h0: Not decided: " in answer
    assert "each sample of orders failed with SMT off" in answer and "h1: Turn SMT off" not in answer


def test_an_arm_that_cannot_do_a_workload_is_not_better():
    def host(name, arms):
        workloads = {
            "a": jobs("web", lambda arm, _n: 110 if arm == "isolated" else 100),
            "b": jobs("orders", lambda *_at: 100),
        }
        document = made(workloads, arms=dict.fromkeys(arms, 1.0), host=name)
        return failing(document, lambda one: (one["workload"], one["arm"]) == ("b", "isolated"))

    for arms in (["as_found", "isolated"], ["as_found", "isolated", "thp_never"]):
        found, recommended = said(host("a", arms))
        assert "Each sample of orders failed with isolated." in found["sentence"]
        assert recommended["arms"][0]["outcome"] == "undecided" and recommended["best"] is None
        rows = [hardware_classes.row(result_maker.summarised(host(name, arms)), f"{name}.html") for name in "abcd"]
        (together,) = hardware_classes.by_class(rows, 0.01, 0.95)
        assert "isolated: not decided" in together["title"] and together["counts"] == {together["title"]: 4}


def test_hosts_that_streams_decide_differently_disagree():
    names = [f"free_{number}" for number in (2, 4, 5, 6, 7, 8)]

    def host(name, factor):
        return made(
            {"o": jobs("orders", lambda arm, n: factor if arm == "smt_on" and n > 4 else 1.0)}, names, host=name
        )

    found, decided = of_class(host("a", 1.3), host("b", 0.7))
    assert found["recommendation"] == "hosts_disagree" and decided["decision"] is None
    found, decided = of_class(host("a", 1.3), host("b", 1.3))
    assert (found["recommendation"], decided["decision"]) == ("on", "enabled")


def test_hosts_of_which_some_serve_no_load_with_one_side_agree_with_the_others():
    none = failing({**studies.sap(), "host": "b"}, lambda one: one["arm"] == "smt_off")
    found, _decided = of_class({**studies.sap(), "host": "a"}, none)
    assert (found["recommendation"], found["counts"]) == ("on", {"SMT on": 2})


def array(names):
    """HP's test "outer" as rates, on a machine of four cores."""
    times = dict(zip(("smt_on", "smt_off"), studies.HP["outer"]))
    return {"o": jobs("array", lambda arm, number: 1000 / times[arm][number - 1])}, names


def test_numbers_of_streams_contradict_the_whole_machine():
    names = [f"free_{number}" for number in (1, 2, 4, 5, 6, 7, 8, 12)]
    alone, _made = said(made(*array(names)))
    found, recommended = said(made(*array([*names, "all_threads"])))
    assert found["recommendation"] == recommended["choice"] == alone["recommendation"] == "by_workload"
    for sentence in (alone["sentence"], found["sentence"]):
        assert (
            sentence.startswith("It depends on how much runs at once: ") and "SMT costs most with 4 streams" in sentence
        )
    assert {reason["points_to"] for reason in recommended["reasons"] if reason["about"] == "performance"} == {
        "on",
        "off",
    }
    together, decided = of_class(*(made(*array([*names, "all_threads"]), host=host) for host in "ab"))
    assert together["recommendation"] == "by_workload" and decided["decision"] is None


def test_a_workload_that_was_measured_on_a_part_of_the_machine_only_can_contradict_the_others():
    document = made(
        {
            "a": jobs("web", lambda arm, _n: 110 if arm == "smt_off" else 100),
            "b": jobs("analytics", lambda arm, _n: 60 if arm == "smt_off" else 100),
        },
        ["all_threads", "one_per_core", "cores"],
    )
    document["samples"] = [
        one for one in document["samples"] if (one["workload"], one["placement"]) != ("b", "all_threads")
    ]
    found, recommended = said(document)
    assert found["recommendation"] == "undecided" and not recommended["agreed"]
    assert "; with two workers on two cores it changes analytics by −40.0 %" in found["sentence"]


def test_a_workload_that_was_left_out_of_one_side_is_named():
    document = made({"a": BETTER_OFF, "b": {**result_maker.GZIP, "title": "analytics"}})
    document["samples"] = [one for one in document["samples"] if (one["workload"], one["arm"]) != ("b", "smt_on")]
    document["skipped"] = [
        {"workload": "b", "placement": "all_threads", "arm": "smt_on", "reason": "too little memory for 8 workers"}
    ]
    found, _recommended = said(document)
    assert found["recommendation"] == "undecided"
    assert found["sentence"].endswith(
        "; analytics could not be measured with SMT on (too little memory for 8 workers)."
    )


def test_what_a_host_says_it_left_out_of_an_arm_that_it_does_not_have_is_nothing():
    document = made({"a": BETTER_OFF}, arms={"smt_on": 1.0, "isolated": 1.0})
    document["skipped"] = [{"workload": "a", "placement": "all_threads", "arm": "smt_off", "reason": "x"}]
    # A host can write what it likes: its page is made all the same.
    assert hardware_classes.row(result_maker.summarised(document), "a.html")["host"] == document["host"]


def loads(value, limit=None):
    """Orders under 2 to 16 clients: ``value(arm, clients)`` gives jobs/s and the 99th percentile in ms."""
    latency = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
    document = made({"o": jobs("orders", lambda _arm, _n: 1.0, metrics=latency)})
    document["plan"]["workloads"][0].update(
        parameter={"name": "clients", "unit": "clients", "values": [2, 4, 8, 16], "per_worker": False},
        **({"response_limit": limit} if limit else {}),
    )
    document["samples"] = [
        {
            **one,
            "parameter": clients,
            "metrics": {
                "jobs": {"value": value(one["arm"], clients)[0] * (1 + 0.001 * one["block"]), **JOBS["jobs"]},
                "latency_p99": {
                    "value": value(one["arm"], clients)[1] * (1 + 0.001 * one["block"]),
                    **latency["latency_p99"],
                },
            },
        }
        for one in document["samples"]
        for clients in (2, 4, 8, 16)
    ]
    for one in document["samples"]:
        for metric in one["metrics"].values():
            metric.pop("aggregate", None)
    return document


def test_a_most_load_is_not_agreed_where_half_of_the_work_is_done_at_each_load():
    def value(arm, clients):
        return 100 * clients * (1 if arm == "smt_on" else 0.5), {"smt_on": 14, "smt_off": 8}[arm] * clients

    found, recommended = said(loads(value, limit=0.1))
    assert recommended["choice"] == "off" and not recommended["agreed"]
    assert sum("with SMT off jobs changes by −50.0 %" in cost for cost in found["costs"]) >= 3
    # So is a response time at a load that both sides serve.
    slow = studies.sap()
    for one in slow["samples"]:
        if one["parameter"] == 550:
            one["metrics"]["latency_mean"]["value"] = 1.9 if one["arm"] == "smt_on" else 0.4
    _found, recommended = said(slow)
    assert recommended["choice"] == "on" and not recommended["agreed"]
    assert any(reason["points_to"] == "off" and "latency_mean" in reason["text"] for reason in recommended["reasons"])


def test_it_depends_on_the_load_where_one_workload_has_several():
    found, _recommended = said(loads(lambda arm, clients: (100 if arm == "smt_on" or clients > 4 else 120, 5.0)))
    assert found["sentence"].startswith("Turn SMT off")
    found, _recommended = said(
        loads(lambda arm, clients: (100 if arm == "smt_on" else {2: 100, 4: 120, 8: 110, 16: 80}[clients], 5.0))
    )
    assert found["sentence"].startswith("It depends on the load: ")


def test_failures_on_one_side_alone_are_of_that_side_and_no_agreement():
    document = made(
        {"a": jobs("web", lambda arm, _n: 100 if arm == "smt_on" else 70), "b": {**BETTER_OFF, "share": 0.7}}
    )
    _found, recommended = said(document)
    assert recommended["choice"] == "on"
    document["facts"]["vulnerabilities"] = {}
    _found, recommended = said(document)
    assert recommended["agreed"]
    failed = failing(document, lambda one: (one["workload"], one["arm"]) == ("b", "smt_on") and one["block"] < 3)
    found, recommended = said(failed)
    assert recommended["choice"] == "on" and not recommended["agreed"]
    assert found["cautions"][0].startswith("3 of 32 samples failed, all of gzip with SMT on; ")


def test_errors_that_are_far_apart_are_named_although_some_samples_have_none():
    document = made(
        {"a": jobs("web", lambda arm, _n: 100 if arm == "smt_on" else 80, lambda *_at: {"errors": 1.0}, ERRORS)}
    )
    document["facts"]["vulnerabilities"] = {}
    for one in document["samples"]:
        few, many = (2 if one["block"] % 2 else 0), (400 if one["block"] % 4 else 0)
        one["metrics"]["errors"]["value"] = many if one["arm"] == "smt_on" else few
    found, recommended = said(document)
    assert "web: errors was 300 with SMT on and 1 with SMT off, which has no ratio and no verdict." in found["cautions"]
    assert recommended["choice"] == "on" and not recommended["agreed"]


def test_where_a_response_time_becomes_worse_no_other_reason_decides():
    latency = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
    document = made(
        {"a": jobs("web", lambda *_at: 100, lambda arm, _s: {"latency_p99": 5.0 if arm == "smt_on" else 7.0}, latency)}
    )
    found, recommended = said(document)
    assert (recommended["choice"], recommended["decided_by"]) == ("either", None)
    assert "and with it on the kernel calls this host vulnerable to mds: " in found["sentence"]
    equal = made({"a": jobs("web", lambda *_at: 100)})
    _found, recommended = said(equal)
    assert (recommended["choice"], recommended["decided_by"]) == ("off", "other reasons")
    together, _decided = of_class(*({**equal, "host": host} for host in "ab"))
    assert together["recommendation"] == "off"


def booted(names=("all_threads",), **options):
    document = made({"o": jobs("orders", lambda arm, n: 110 if arm != "smt_off" and n > 1 else 100)}, names, **options)
    document["plan"].update(boots=1, booted=[arm["name"] for arm in document["arms"]], confounded=True)
    for one in document["samples"]:
        one.update(boot=int(one["arm"] == document["arms"][1]["name"]), pair=0)
    return document


@pytest.mark.parametrize("names", [["all_threads"], ["cores"], ["free_2", "free_4", "free_6", "free_8"]])
def test_one_boot_of_each_side_is_said_wherever_its_effect_is(names):
    found, _recommended = said(booted(names))
    assert "confounded with the reboot between" in found["sentence"], found["sentence"]
    assert "8 blocks of one boot on each side, not interleaved; " in found["basis"]
    assert "interleaved blocks" not in found["basis"]


def test_one_boot_of_another_arm_is_said_too():
    document = booted(arms={"as_found": 1.0, "mitigations_off": 1.1})
    found, _recommended = said(document)
    assert ", confounded with the reboot between." in found["sentence"], found["sentence"]


def test_what_is_no_time_does_not_take_long():
    scores = {"scoring": {"unit": "points", "better": "higher", "aggregate": "mean"}}
    model = {
        "title": "scoring",
        "metrics": scores,
        "model": lambda _a, spot, ws: [6.0 if spot == "siblings" else 10.0] * len(ws),
    }
    found, _recommended = said(made({"s": model}, ["siblings", "cores"], compared=False, reason="x"))
    assert "two workers on one core had 0.60 times" in found["sentence"] and "as long" not in found["sentence"]


def test_more_of_the_same_loads_are_not_asked_for():
    document = studies.sap(blocks=10)
    for one in document["samples"]:
        if (one["arm"], one["parameter"]) == ("smt_on", 650) and one["block"] % 2:
            one["metrics"]["latency_mean"]["value"] = 2.1
    found, recommended = said(document)
    assert found["recommendation"] == "undecided" and recommended["measure"]["blocks"] is None
    assert found["next"].startswith("To decide, measure loads between 550 and 650 users of SAP SD")


def test_licences_for_the_same_work_are_of_work():
    latency = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
    model = {
        "title": "web",
        "metrics": latency,
        "model": lambda arm, _s, ws: [10.0 if arm == "smt_off" else 25.0] * len(ws),
    }
    licence = recommendation.Licence("core", 1000.0)

    def reason(workload):
        found = recommendation.recommend(analysed(made({"w": workload})), licence)
        return next(one for one in found["reasons"] if one["about"] == "licence")

    assert reason(model)["points_to"] is None and "same work" not in reason(model)["text"]
    assert (
        "for the same work SMT off costs 1.25 times as much"
        in reason(jobs("web", lambda arm, _n: 80 if arm == "smt_off" else 100))["text"]
    )


TAIL = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
MEDIAN = {"latency_median": {"unit": "ms", "better": "lower", "aggregate": "max"}}
MEAN = {"latency_mean": {"unit": "ms", "better": "lower", "aggregate": "max"}}


def open_load(metrics, on, off, asked=None, used=0.4, rates=(1000, 1000), **options):
    """A load whose generator gives 1000 jobs a second, with these further metrics in each arm: numbers, or functions of
    the block.
    """
    of_arm = {"smt_on": dict(zip(metrics, on)), "smt_off": dict(zip(metrics, off))}
    web = jobs("web", lambda arm, _n: rates[arm == "smt_off"], lambda arm, _s: dict.fromkeys(metrics, 1.0), metrics)
    document = made({"web": web}, **options)
    for sample in document["samples"]:
        sample["parameter"] = asked
        sample["telemetry"]["cpu_usage"] = dict.fromkeys(sample["telemetry"]["cpu_usage"], used)
        for name, value in of_arm[sample["arm"]].items():
            found = sample["metrics"][name]
            found["value"] = value(sample["block"]) if callable(value) else value * found["value"]
    if asked:
        about = {"name": "rate", "unit": "jobs/s", "values": [asked], "per_worker": False}
        document["plan"]["workloads"][0]["parameter"] = about
    document["facts"]["vulnerabilities"] = {}
    return document


def none(_block):
    return 0.0


def many(block):
    return 110.0 + block


@pytest.mark.parametrize("given", [{}, {"asked": 1000, "used": 1.0}])
@pytest.mark.parametrize(
    ("metrics", "on", "off", "choice"),
    [
        (TAIL, [9.0], [14.0], "on"),
        (TAIL, [14.0], [9.0], "off"),
        (MEAN, [9.0], [14.0], "on"),
        # The tail is what is waited for, whatever the median says.
        ({**TAIL, **MEDIAN}, [9.0, 5.0], [14.0, 4.0], "on"),
        (ERRORS, [none], [many], "on"),
        ({**TAIL, **ERRORS}, [9.0, many], [9.0, none], "off"),
        ({**TAIL, **ERRORS}, [9.0, 5.0], [14.0, 120.0], "on"),
        ({**TAIL, **ERRORS}, [9.0, many], [14.0, none], "by_workload"),
        # One error in all is none of the arm.
        ({**TAIL, **ERRORS}, [9.0, lambda block: float(block == 3)], [14.0, none], "on"),
    ],
)
def test_what_the_load_generator_gives_decides_nothing(metrics, on, off, choice, given):
    found, recommended = said(open_load(metrics, on, off, **given))
    assert (found["recommendation"], recommended["choice"]) == (choice, choice), found["sentence"]
    assert not any("no verdict" in words for words in found["cautions"]) or "lambda" in str(on)


@pytest.mark.parametrize(
    ("document", "choice"),
    [
        # Less than was asked for is what the arm can do.
        (open_load(TAIL, [14.0], [9.0], asked=1000, rates=(1000, 900)), "on"),
        # So many arrivals scatter.
        (open_load(TAIL, [14.0], [9.0], asked=1000, noise=0.03), "off"),
        # Nothing that may differ is known.
        (open_load({}, [], [], asked=1000), "undecided"),
        # Each block has to say it, or nearly each.
        (open_load(ERRORS, [none], [many], blocks=4), "undecided"),
        # All CPUs are full, so that the rate is what they can do.
        (open_load(TAIL, [14.0], [9.0], used=1.0), "either"),
    ],
)
def test_what_else_is_known_of_a_rate_that_is_the_same(document, choice):
    assert said(document)[0]["recommendation"] == choice
