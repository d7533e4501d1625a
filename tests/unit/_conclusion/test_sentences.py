# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sentences of a conclusion beside the raw numbers: results of which a part is missing, that point both ways, or whose
numbers are large.
"""

from __future__ import annotations

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion, recommendation, wording
from result_maker import GZIP, analysed

EIGHT = (1, 4, 2)
BETTER_OFF = {"rate": 100.0, "share": 0.45, "unit": "MB/s", "title": "gzip"}
XZ = {"rate": 50.0, "share": 0.45, "unit": "MB/s", "title": "xz"}
RATE = {"unit": "orders/s", "better": "higher", "aggregate": "sum"}
TIME = {"unit": "ms", "better": "lower", "aggregate": "max"}


def said(document):
    analysis = analysed(document)
    return conclusion.conclude(analysis), recommendation.recommend(analysis)


def failing(document, is_failing):
    """The same result, of which some samples failed."""
    failed = {"ok": False, "error": "exit status 1", "metrics": {}, "workers": []}
    return {**document, "samples": [{**one, **failed} if is_failing(one) else one for one in document["samples"]]}


def of(title, metrics, model, further=None):
    return {"title": title, "metrics": metrics, "model": model, **({"further": further} if further else {})}


def test_nothing_is_recommended_where_one_side_cannot_do_a_workload():
    document = result_maker.result(workloads={"gzip": BETTER_OFF, "xz": XZ}, blocks=6, noise=0.002, shape=EIGHT)
    whole, _reasons = said(document)
    assert whole["recommendation"] == "off"
    found, recommended = said(failing(document, lambda one: (one["workload"], one["arm"]) == ("xz", "smt_off")))
    assert found["recommendation"] == "undecided" and not recommended["agreed"]
    assert found["sentence"].startswith("Not decided: with every online thread busy, turning it off changes gzip")
    assert found["sentence"].endswith("; each sample of xz failed with SMT off.")
    # Where nothing else is left to compare, that is the reason.
    alone = result_maker.result(blocks=6, noise=0.002, shape=EIGHT)
    found, _recommended = said(failing(alone, lambda one: one["arm"] == "smt_off"))
    assert "were not compared here: each sample of gzip of a fixed stream failed with SMT off." in found["sentence"]


def test_streams_of_one_workload_can_contradict_another_one_with_all_threads():
    times = {"wall_time": {"unit": "s", "better": "lower", "aggregate": "mean"}}
    numbers = range(5, 13)
    helped = of("array", times, lambda arm, _spot, workers: [1.0 if arm == "smt_on" else 1.3] * len(workers))
    streams = result_maker.result(
        workloads={"array": helped}, blocks=6, noise=0.002, shape=EIGHT, names=[f"free_{number}" for number in numbers]
    )
    whole = result_maker.result(
        workloads={"gzip": BETTER_OFF}, blocks=6, noise=0.002, shape=EIGHT, names=["all_threads"]
    )
    both = {**whole, "samples": [*whole["samples"], *streams["samples"]]}
    both["plan"] = {
        **whole["plan"],
        "workloads": [*whole["plan"]["workloads"], *streams["plan"]["workloads"]],
        "placements": {
            arm: {**spots, **streams["plan"]["placements"][arm]} for arm, spots in whole["plan"]["placements"].items()
        },
    }
    found, recommended = said(both)
    assert found["recommendation"] == "by_workload" and not recommended["agreed"], found["sentence"]


def test_work_and_times_of_jobs_are_both_said_as_work():
    jobs = {"time": {"unit": "s", "better": "lower", "aggregate": "per_job"}}
    compiled = of(
        "compile",
        jobs,
        lambda _arm, spot, workers: [16.0 if spot == "all_threads" else 10.0] * len(workers),
    )
    document = result_maker.result(
        workloads={"gzip": GZIP, "compile": compiled}, shape=EIGHT, blocks=8, noise=0.002, compared=False, reason="x"
    )
    for workloads in (document["plan"]["workloads"], document["plan"]["workloads"][::-1]):
        sentence = said({**document, "plan": {**document["plan"], "workloads": workloads}})[0]["sentence"]
        assert "all threads combined did 1.25 times" in sentence and "0.80" not in sentence, sentence
    waits = of(
        "query",
        {"latency_mean": {**TIME, "aggregate": "mean"}},
        lambda _arm, spot, workers: [13.0 if spot == "siblings" else 10.0] * len(workers),
    )
    document = result_maker.result(
        workloads={"gzip": GZIP, "query": waits},
        shape=EIGHT,
        blocks=8,
        noise=0.002,
        compared=False,
        reason="x",
        names=["single", "siblings", "cores"],
    )
    sentence = said(document)[0]["sentence"]
    assert "two workers on one core did 0.6" in sentence
    assert "the work of two on two cores (gzip of a fixed stream), and took 1.30 times" in sentence


@pytest.mark.parametrize(("tail", "word", "points_to"), [(15.0, "worse", "on"), (2.0, "better", "off")])
def test_a_tail_that_changes_is_said_where_the_work_stays_the_same(tail, word, points_to):
    orders = of(
        "orders",
        {"throughput": RATE, "latency_p99": TIME},
        lambda arm, _spot, workers: [800.0 / len(workers)] * len(workers),
        lambda arm, _spot: {"latency_p99": 5.0 if arm == "smt_on" else tail},
    )
    document = result_maker.result(workloads={"orders": orders}, shape=EIGHT, blocks=8, noise=0.002)
    found, recommended = said(document)
    (first,) = [one for one in found["statements"][:2] if "latency_p99" in one]
    assert first.startswith("The other side of it, orders: with SMT off latency_p99 changes by ")
    assert first.endswith(f", {word}.")
    # The kernel's vulnerabilities ask for off: that is contradicted by a tail that becomes worse.
    assert recommended["choice"] == ("off" if points_to == "off" else "either")
    assert recommended["agreed"] == (points_to == "off")
    assert [one["points_to"] for one in recommended["reasons"] if "latency" in one["text"]] == [points_to]


def test_a_tail_is_said_of_other_arms_too():
    orders = of(
        "orders",
        {"throughput": RATE, "latency_p99": TIME},
        lambda arm, _spot, workers: [(840.0 if arm == "isolated" else 800.0) / len(workers)] * len(workers),
        lambda arm, _spot: {"latency_p99": 15.0 if arm == "isolated" else 5.0},
    )
    document = result_maker.result(
        workloads={"orders": orders}, shape=EIGHT, blocks=8, noise=0.002, arms={"smt_on": 1.0, "isolated": 1.0}
    )
    costs = said(document)[0]["costs"]
    assert costs[0].startswith("The other side of it, orders: with isolated latency_p99 changes by +"), costs


@pytest.mark.parametrize(("others", "is_busy"), [(0.0, False), (0.7, True), (None, True)])
def test_workers_that_wait_do_not_make_a_host_busy(others, is_busy):
    """A disk is waited for: each worker takes 30 % of its CPU. Other work leaves a worker as much of a CPU, and none
    of the rest is idle.
    """
    document = result_maker.result(blocks=6, noise=0.002, shape=EIGHT)
    for sample in document["samples"]:
        busy = set()
        for worker in sample["workers"]:
            worker["cpu_seconds"] = 0.3 * worker["wall_seconds"]
            busy.add(worker["cpus"])
        usage = sample["telemetry"]["cpu_usage"]
        sample["telemetry"]["cpu_usage"] = (
            None if others is None else {cpu: 0.3 + others if cpu in busy else 0.0 for cpu in usage}
        )
    cautions = said(document)[0]["cautions"]
    assert any("too busy with other work" in one for one in cautions) == is_busy, cautions


def loads(rates, unit="requests/s", compared=False):
    """A load at several values: rates is placement -> value -> (rate, usage of a CPU); with SMT off a fifth less."""
    document = result_maker.result(
        workloads={
            "req": of(
                "requests", {"throughput": {**RATE, "unit": unit}}, lambda _arm, _spot, workers: [1.0] * len(workers)
            )
        },
        shape=EIGHT,
        blocks=8,
        noise=0.002,
        names=list(rates),
        compared=compared,
        reason=None if compared else "x",
    )
    values = sorted(next(iter(rates.values())))
    document["plan"]["workloads"][0]["parameter"] = {
        "name": "load",
        "unit": "of each CPU",
        "values": values,
        "per_worker": True,
    }
    samples = []
    for sample in document["samples"]:
        noise, workers = sample["workers"][0]["value"], sample["workers"]
        noise *= 0.8 if sample["arm"] == "smt_off" else 1.0
        for value, (rate, usage) in rates[sample["placement"]].items():
            share = [{**one, "value": rate * noise / len(workers), "cpu_seconds": 0.8 * usage} for one in workers]
            telemetry = {**sample["telemetry"], "cpu_usage": dict.fromkeys(sample["telemetry"]["cpu_usage"], usage)}
            metrics = {"throughput": {"value": rate * noise, "unit": unit, "better": "higher"}}
            samples.append({**sample, "parameter": value, "metrics": metrics, "workers": share, "telemetry": telemetry})
    return {**document, "samples": samples}


def test_room_is_said_with_its_placement_without_an_exponent_and_never_below_none():
    large = loads(
        {
            "one_per_core": {0.3: (11900.0, 0.15), 1.0: (37000.0, 0.54)},
            "all_threads": {0.3: (23400.0, 0.3), 1.0: (40700.0, 1.0)},
        },
        "pieces/s",
    )
    sentence = said(large)[0]["sentence"]
    assert sentence.startswith("requests, load 0.3 of each CPU, one worker per core: by CPU usage there is room for 67")
    assert "e+" not in sentence and "\u202f500 pieces/s more, in truth for 28\u202f800." in sentence, sentence
    falling = loads(
        {"one_per_core": {0.9: (9.0, 0.45), 1.0: (10.0, 0.5)}, "all_threads": {0.9: (8.0, 0.9), 1.0: (8.0, 1.0)}}
    )
    assert "requests/s more, in truth for none." in said(falling)[0]["sentence"]


@pytest.mark.parametrize(
    ("value", "text"), [(14.0, "14"), (0.0512, "0.0512"), (67_512.0, "67\u202f500"), (123.4, "123"), (2e12, "2e+12")]
)
def test_amounts_have_no_digits_that_say_nothing(value, text):
    assert wording.amount(value) == text


def pinned(rates, siblings=True, names=("cpus_0_2", "cpus_0_1")):
    workloads = {
        name: of(name, studies.RATES, lambda _arm, spot, workers, rates=rates: [rates[spot]] * len(workers))
        for name, rates in rates.items()
    }
    return result_maker.result(
        workloads=workloads,
        shape=EIGHT if siblings else (1, 4, 1),
        blocks=6,
        noise=0.002,
        compared=False,
        names=list(names),
        reason="x",
    )


@pytest.mark.parametrize(
    ("shared", "siblings", "sentence"),
    [
        ((60.0, 78.0), True, "CPUs 0 and 1 share a core, as the kernel says."),
        ((78.0,), True, "CPUs 0 and 1 share a core, as the kernel says."),
        ((60.0,), True, "CPUs 0 and 1, siblings of a core by the kernel, do no more work than one CPU."),
        ((60.0,), False, "CPUs 0 and 1 are one CPU, and the kernel says otherwise."),
        ((78.0, 60.0), False, "CPUs 0 and 1 share a core, and the kernel says otherwise."),
        ((119.0,), True, ""),
    ],
)
def test_what_two_cpus_share_is_said_once(shared, siblings, sentence):
    rates = {f"w{place}": {"cpus_0_2": 119.0, "cpus_0_1": rate} for place, rate in enumerate(shared)}
    found = said(pinned(rates, siblings))[0]["sentence"]
    assert found.count("CPUs 0 and 1") == (1 if sentence else 0) and found.startswith(sentence)


def test_each_pair_is_held_against_the_fastest_one_and_not_only_the_first():
    rates = {"cpus_0_1": 78.0, "cpus_2_3": 77.0, "cpus_0_2": 119.0, "cpus_1_3": 118.0}
    sentence = said(pinned({"w": rates}, siblings=False, names=rates))[0]["sentence"]
    for pair in ("0 and 1", "2 and 3"):
        assert f"CPUs {pair} share a core, and the kernel says otherwise." in sentence
    assert "CPUs 1 and 3" not in sentence and "CPUs 0 and 2" not in sentence


def test_one_more_sentence_is_said_and_not_counted():
    names = [f"latency_{name}" for name in ("mean", "p50", "p90", "p99")]
    orders = of(
        "orders",
        {"throughput": RATE, **dict.fromkeys(names, TIME)},
        lambda _arm, _spot, workers: [100.0] * len(workers),
        lambda arm, _spot: dict.fromkeys(names, 2.0 if arm == "smt_on" else 1.0),
    )
    document = result_maker.result(
        workloads={"orders": orders}, shape=EIGHT, blocks=8, noise=0.002, names=["all_threads"]
    )
    costs = said(document)[0]["costs"]
    assert sum(one.startswith("The other side of it") for one in costs) == 4
    assert not any("further metrics" in one for one in costs)


def test_values_of_one_parameter_are_loads_and_no_workloads():
    rates = {value: (10.0 * value, 0.5) for value in (1, 2, 4, 8)}
    both = loads({"all_threads": rates}, compared=True)
    both["plan"]["workloads"][0]["parameter"].update(name="clients", unit="clients", per_worker=False)
    found = said(both)[0]
    assert "turning it off changes 4 loads by \u221220" in found["sentence"], found["sentence"]
    assert "95 % confidence for the 4 comparisons combined" in found["basis"]
    assert any("requests, 1 client:" in one for one in found["costs"]) or "1 clients" not in str(found)


def test_a_margin_is_said_as_it_was_asked_for():
    same = {"rate": 100.0, "share": 0.5, "unit": "MB/s", "title": "gzip"}
    document = result_maker.result(workloads={"gzip": same}, shape=EIGHT, blocks=12, noise=0.0005)
    found = conclusion.conclude(analysed(document, 0.0025))
    assert (
        "gzip of a fixed stream stays within 0.25 % either way" in found["sentence"]
        and "within 0.25 % count as none" in found["basis"]
    )


def test_few_blocks_are_said_to_be_few():
    document = result_maker.result(blocks=3, noise=0.002, shape=EIGHT, compared=False, reason="x")
    assert said(document)[0]["sentence"].endswith("3 of at least 4 blocks say nothing of sharing a core yet.")


def test_what_was_asked_for_already_is_no_advice():
    arms = {"smt_on": 1.0, "isolated": 1.1, "thp_never": 0.9}
    document = result_maker.result(blocks=8, noise=0.002, shape=EIGHT, arms=arms, names=["all_threads"])
    missing = failing(document, lambda one: one["arm"] == "thp_never")
    assert "(smt_report_compare: all)" in said(missing)[0]["sentence"]
    every = conclusion.conclude(analysed(missing, 0.01, 0.95, "all"))["sentence"]
    assert "which arm is best was not compared." in every, every


def of_cpu_time(share):
    """A job takes more CPU time beside a busy sibling, which is no less work done."""
    beside = ("siblings", "all_threads")
    cpu_time = {"cpu_time": {"unit": "s", "better": "lower", "aggregate": "mean_per_job"}}
    return of(
        "compile",
        cpu_time,
        lambda arm, spot, workers: [
            10.0 / share if spot in beside and len(workers) > 1 and arm != "smt_off" else 10.0 for _worker in workers
        ],
    )


def test_cpu_time_of_a_job_is_that_of_one_worker_and_no_work_that_all_do():
    document = result_maker.result(workloads={"compile": of_cpu_time(2 / 3)}, shape=(1, 1, 2), blocks=8, noise=0.002)
    costs = conclusion.conclude(analysed(document))["costs"]
    assert any("a worker's cpu_time changes by +49.9 %" in one for one in costs), costs
    document = result_maker.result(
        workloads={"gzip": GZIP, "compile": of_cpu_time(2 / 3)},
        shape=EIGHT,
        blocks=8,
        noise=0.002,
        compared=False,
        reason="x",
    )
    sentence = said(document)[0]["sentence"]
    assert "did 1.25 times" in sentence and "took 1.50 times" in sentence, sentence
    assert "the cpu_time of one worker per core (compile)" in sentence, sentence


def test_an_answer_by_cpu_time_says_that_it_is_of_each_worker():
    document = result_maker.result(
        workloads={"compile": of_cpu_time(2 / 3)}, shape=EIGHT, blocks=8, noise=0.002, names=["all_threads"]
    )
    assert any("does not say how much they did together" in one for one in said(document)[0]["cautions"])


REQUESTS = {"unit": "req/s", "better": "higher", "aggregate": "sum"}


def whole_machine(workloads, **options):
    return result_maker.result(
        **{"workloads": workloads, "shape": EIGHT, "blocks": 8, "noise": 0.002, "names": ["all_threads"], **options}
    )


def test_what_further_metrics_do_is_not_that_of_the_first_ones():
    """Three tails that double, and three that halve, were six of which the same holds."""
    workloads = {
        f"w{number}": of(
            f"api {number}",
            {"throughput": REQUESTS, "latency_p99": TIME},
            lambda _arm, _spot, workers: [800.0 / len(workers)] * len(workers),
            lambda arm, _spot, off=20.0 if number < 3 else 5.0: {"latency_p99": 10.0 if arm == "smt_on" else off},
        )
        for number in range(6)
    }
    costs = said(whole_machine(workloads))[0]["costs"]
    assert "3 further metrics: 3 better." in costs and not any("same holds" in one for one in costs)


@pytest.mark.parametrize(("aggregate", "better"), [("mean", "higher"), ("mean", "lower"), ("mean_per_job", "lower")])
def test_what_each_worker_has_does_not_choose_where_other_numbers_of_them_ran(aggregate, better):
    """With SMT off four workers have more each than eight have, and do less together."""
    values = {"higher": (62.5, 100.0), "lower": (1.6, 1.0)}[better]
    own = of(
        "reads",
        {"own": {"unit": "s" if better == "lower" else "req/s", "better": better, "aggregate": aggregate}},
        lambda arm, _spot, workers: [values[arm == "smt_off"]] * len(workers),
    )
    found, recommended = said(whole_machine({"own": own}))
    assert (found["recommendation"], recommended["choice"], recommended["agreed"]) == ("undecided", "undecided", False)
    assert found["sentence"].startswith("Not decided: ") and "better" in found["sentence"]


def test_a_response_time_chooses_and_less_work_beside_it_is_no_agreement():
    api = of(
        "api",
        {"latency_p99": TIME, "throughput": REQUESTS},
        lambda arm, _spot, workers: [10.0 if arm == "smt_on" else 8.0] * len(workers),
        lambda arm, _spot: {"throughput": 1000.0 if arm == "smt_on" else 750.0},
    )
    document = whole_machine({"api": api}, compared=True)
    document["facts"]["vulnerabilities"] = {}
    found, recommended = said(document)
    assert (found["recommendation"], recommended["agreed"]) == ("off", False)


def test_errors_on_one_side_alone_are_said_and_are_no_agreement():
    errors = {"unit": "errors", "better": "lower", "aggregate": "sum"}
    web = of(
        "web",
        {"throughput": REQUESTS, "errors": errors},
        lambda _arm, _spot, workers: [800.0 / len(workers)] * len(workers),
        lambda arm, _spot: {"errors": 0 if arm == "smt_on" else 5},
    )
    found, recommended = said(whole_machine({"web": web}))
    (caution,) = [one for one in found["cautions"] if "errors" in one]
    assert caution == "web: errors was 0 with SMT on and 5 with SMT off, which has no ratio and no verdict."
    assert recommended["choice"] == "off" and not recommended["agreed"]


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        ("sum", "energy of encode is a sum over as many workers as ran"),
        ("undeclared", "it is not declared what energy"),
    ],
)
def test_why_good_numbers_were_not_compared_is_their_own_reason(aggregate, reason):
    energy = {"energy": {"unit": "J", "better": "lower", "aggregate": aggregate}}
    encode = of("encode", energy, lambda _arm, _spot, workers: [100.0] * len(workers))
    sentence = said(whole_machine({"encode": encode}))[0]["sentence"]
    assert reason in sentence and "good samples" not in sentence


def test_joules_of_all_workers_are_no_work():
    energy = {"energy": {"unit": "J", "better": "lower", "aggregate": "sum"}}
    encode = of("encode", energy, lambda _arm, spot, workers: [160.0 if spot == "siblings" else 100.0] * len(workers))
    document = whole_machine({"encode": encode}, names=["siblings", "cores"], compared=False, reason="x")
    assert (
        "two workers on one core took 1.60 times (1.60 to 1.60) the energy of two on two cores"
        in (said(document)[0]["sentence"])
    )


def test_workers_that_were_packed_show_what_sharing_costs():
    names = ["spread_2", "packed_2", "spread_4", "packed_4"]
    document = whole_machine({"gzip": GZIP}, shape=(1, 4, 2), names=names, compared=False, reason="x")
    sentence = said(document)[0]["sentence"]
    assert "2 workers on siblings first did 0.6" in sentence and "the work of 2 workers on separate cores" in sentence
    assert conclusion.NOTHING_OF_SHARING not in sentence


def test_which_arm_cannot_do_the_work_is_said_also_beside_what_was_compared():
    document = failing(
        whole_machine({"gzip": GZIP}, names=["all_threads", "single"]),
        lambda one: (
            (one["placement"], one["arm"]) == ("all_threads", "smt_off")
            or (one["placement"], one["arm"]) == ("one_per_core", "smt_off")
        ),
    )
    sentence = said(document)[0]["sentence"]
    assert "The whole machine was not compared (each sample of gzip of a fixed stream failed with SMT off)" in sentence


def test_both_sides_of_it_depends_are_said_in_few_words():
    workloads = {
        f"w{number}": {"rate": 100.0, "share": 0.65 if number < 2 else 0.4, "unit": "MB/s", "title": f"load {number}"}
        for number in range(4)
    }
    sentence = said(whole_machine(workloads))[0]["sentence"]
    assert "load 0 and load 1 by −23" in sentence and "load 2 and load 3 by +24.9" in sentence
    assert len(sentence.split()) < 40
