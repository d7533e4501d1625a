# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each sentence of a conclusion, once: results of which the numbers are known, and what is said of them."""

import dataclasses
import functools

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import advice, conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording
from result_maker import GZIP, analysed

EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
BETTER_OFF = {"rate": 100.0, "share": 0.45, "unit": "MB/s", "title": "gzip"}
XZ = {**BETTER_OFF, "title": "xz"}
RATE = {"unit": "orders/s", "better": "higher", "aggregate": "sum"}
TIME = {"unit": "ms", "better": "lower", "aggregate": "max"}
NO_SMT = "this host has no SMT to switch (smt/control reads notsupported)"


def of(title, metrics, model, further=None):
    return {"title": title, "metrics": metrics, "model": model, **({"further": further} if further else {})}


def constant(title, metrics, value=1.0, further=None):
    return of(title, metrics, lambda _arm, _spot, placed: [value / len(placed)] * len(placed), further)


def by_spot(title, metric, beside, alone=10.0):
    """Each worker has ``beside`` where it shares its core, and ``alone`` elsewhere."""
    rates = {"siblings": beside, "all_threads": beside}
    return of(title, metric, lambda _arm, spot, placed: [rates.get(spot, alone)] * len(placed))


def made(*workloads, edit=None, **options):
    """A result about these workloads, changed by a function."""
    usual = {"shape": (1, 4, 2), "blocks": 8, "noise": 0.002}
    of_name = {one["title"].split()[0]: one for one in workloads or [GZIP]}
    document = result_maker.result(workloads=of_name, **{**usual, **options})
    if edit:
        edit(document)
    return document


whole = functools.partial(made, names=["all_threads"])
alone = functools.partial(made, compared=False, reason="x")


def failing(document, is_failing):
    """The same result, of which some samples failed."""
    failed = {"ok": False, "error": "exit status 1", "metrics": {}, "workers": []}
    return {**document, "samples": [{**one, **failed} if is_failing(one) else one for one in document["samples"]]}


def loads(rates, unit="requests/s", compared=False, name="load", per_worker=True):
    """A load at several values: rates is placement -> value -> (rate, usage of a CPU); with SMT off a fifth less."""
    one = of("requests", {"throughput": {**RATE, "unit": unit}}, lambda _arm, _spot, workers: [1.0] * len(workers))
    document = made(one, names=list(rates), compared=compared, reason=None if compared else "x")
    parameter = {"name": name, "unit": "of each CPU", "values": sorted(next(iter(rates.values())))}
    document["plan"]["workloads"][0]["parameter"] = {**parameter, "per_worker": per_worker}
    samples = []
    for sample in document["samples"]:
        workers = sample["workers"]
        factor = workers[0]["value"] * (0.8 if sample["arm"] == "smt_off" else 1.0)
        for value, (rate, usage) in rates[sample["placement"]].items():
            share = [{**one, "value": rate * factor / len(workers), "cpu_seconds": 0.8 * usage} for one in workers]
            telemetry = {**sample["telemetry"], "cpu_usage": dict.fromkeys(sample["telemetry"]["cpu_usage"], usage)}
            metrics = {"throughput": {"value": rate * factor, "unit": unit, "better": "higher"}}
            samples.append({**sample, "parameter": value, "metrics": metrics, "workers": share, "telemetry": telemetry})
    return {**document, "samples": samples}


def pinned(*rates, siblings=True):
    """The rates of each workload by placement."""
    workloads = [
        of(f"w{number}", studies.RATES, lambda _arm, spot, placed, of_spot=of_spot: [of_spot[spot]] * len(placed))
        for number, of_spot in enumerate(rates)
    ]
    return alone(*workloads, shape=(1, 4, 2 if siblings else 1), blocks=6, names=list(rates[0]))


def cpus_0_1(*rates, siblings=True):
    return pinned(*({"cpus_0_2": 119.0, "cpus_0_1": rate} for rate in rates), siblings=siblings)


def busy(document, share=0.3, others=None):
    """Each worker gets this share of its CPU's time; others use so much more of it."""
    for sample in document["samples"]:
        for worker in sample["workers"]:
            worker["cpu_seconds"] = share * worker["wall_seconds"]
        used = {worker["cpus"] for worker in sample["workers"]}
        if others is not None:
            usage = {cpu: share + others if cpu in used else 0.0 for cpu in sample["telemetry"]["cpu_usage"]}
            sample["telemetry"]["cpu_usage"] = usage
    return document


def one_core_in_truth(document):
    for sample in document["samples"]:
        if sample["placement"] == "cores":
            sample["metrics"]["throughput"]["value"] *= 78.0 / 119.0


def guest(**measured):
    document = whole()
    about = {"cpus": "0-7", "singles": "", "unclear": "", "rounds": 9, "seconds": 3.0, "confidence": 0.95}
    about.update(measured_at="2026-01-02T03:04:05Z", ratios=[], pairs=[])
    document["facts"]["measured"] = {**about, **measured} if measured else None
    document["environment"]["hypervisor"] = "kvm"
    return document


def looked(stopped):
    document = result_maker.result(blocks=8, noise=0.05, workloads={"even": EVEN})
    looks = [{"blocks": count, "share": count / 28} for count in (4, 5, 6, 8)]
    document["plan"].update(goal="decision", looks=looks, stopped=stopped)
    return document


def everything(document):
    """What is said beside the figures of a run."""
    tests = {"smt_on": "oom_killed", "smt_off": "enomem"}
    document["observations"] = [
        {"arm": arm, "asked_bytes": 365 * 2**20, "overcommit_test": {"outcome": of}} for arm, of in tests.items()
    ]
    document["plan"]["switches"] = {"smt_on": {"count": 3, "seconds": 0.412}, "smt_off": {"count": 2, "seconds": 1.5}}
    document.update(outcome="interrupted", message="lost the host.")
    document["environment"]["hypervisor"] = "kvm"
    document["samples"][0]["telemetry"]["steal"] = 0.25


def counted_by_server(document):
    counts = {"program": "nginx", "unit": "nginx.service", "is_service": True, "counted": 4, "cpus": 2}
    counts.update(has="nginx.service has 4 worker processes for 4 CPUs", remedy="restart it")
    document["facts"]["consumers_after_switch"] = [counts] * 5
    document["plan"]["workloads"][0]["server"] = True


def half_idle(with_smt):
    rates = {("smt_on", "all_threads"): 500.0, ("smt_off", "all_threads"): 400.0, ("smt_on", "cores"): with_smt}
    tasks = of("tasks", studies.RATES, lambda *at: [rates.get(at[:2], 200.0) / len(at[2])] * len(at[2]))
    return made(tasks, names=["cores", "all_threads"])


def tail(off):
    metrics, times = {"throughput": RATE, "latency_p99": TIME}, {"smt_on": 5.0, "smt_off": off}
    return made(constant("orders", metrics, 800.0, lambda arm, _spot: {"latency_p99": times[arm]}))


def few_errors():
    metrics = {"throughput": RATE, **metric("errors", "errors")}
    web = of("web", metrics, lambda arm, _spot, placed: [{"smt_on": 100.0, "smt_off": 80.0}[arm]] * len(placed))
    document = whole({**web, "further": lambda _arm, _spot: {"errors": 1.0}})
    for one in document["samples"]:
        few, many = (2 if one["block"] % 2 else 0), (400 if one["block"] % 4 else 0)
        one["metrics"]["errors"]["value"] = many if one["arm"] == "smt_on" else few
    return document


def metric(name, unit="J", better="lower", aggregate="sum"):
    return {name: {"unit": unit, "better": better, "aggregate": aggregate}}


CPU_TIME = metric("cpu_time", "s", aggregate="mean_per_job")
WAIT = metric("latency_mean", "ms", aggregate="mean")
JOB = metric("time", "s", aggregate="per_job")
SCORE = metric("score", "points", "higher", "mean")
FOUR = [{**GZIP, "share": share, "title": f"w{n} load"} for n, share in enumerate((0.65, 0.65, 0.4, 0.4))]
ONE, ALL = {0.3: (11900.0, 0.15), 1.0: (37000.0, 0.54)}, {0.3: (23400.0, 0.3), 1.0: (40700.0, 1.0)}
LARGE = {"one_per_core": ONE, "all_threads": ALL}
FALLING = {"one_per_core": {0.9: (9.0, 0.45), 1.0: (10.0, 0.5)}, "all_threads": {0.9: (8.0, 0.9), 1.0: (8.0, 1.0)}}
LOADS = {"all_threads": {value: (10.0 * value, 0.5) for value in (1, 2, 4, 8)}}
CLIENTS = loads(LOADS, compared=True, per_worker=False)
PAIRS = {"cpus_0_1": 78.0, "cpus_2_3": 77.0, "cpus_0_2": 119.0, "cpus_1_3": 118.0}
PACKED = ["spread_2", "packed_2", "spread_4", "packed_4"]
ON_OFF = whole(GZIP, EVEN, noise=0.0005)
NO_XZ_OFF = failing(whole(BETTER_OFF, XZ), lambda one: (one["workload"], one["arm"]) == ("xz", "smt_off"))
NO_OFF = failing(whole(), lambda one: one["arm"] == "smt_off")
QUERY = alone(GZIP, by_spot("query", WAIT, 13.0), names=["single", "siblings", "cores"])
ENERGY = alone(by_spot("encode", metric("energy"), 160.0, 100.0), names=["siblings", "cores"])


# Result, what is concluded, and of that which words: ^ begins a sentence, $ ends one, and ! is not said.
ROWS = [
    (made(), "sentence", "^Leave SMT on: with every online thread busy, turning it off changes gzip of a fixed "),
    (whole({**BETTER_OFF, "share": 0.4}), "sentence", "^Turn SMT off: with every online thread busy, that changes "),
    (whole(EVEN, noise=0.0005), "sentence", "^For performance SMT may be on or off here, and with it on the "),
    (ON_OFF, "sentence", "; sysbench cpu stays within 1 % either way.$"),
    (ON_OFF, "basis", "for the 2 workloads combined"),
    (whole(*FOUR), "sentence", "^It depends on the work: "),
    (whole(*FOUR), "sentence", "w2 load and w3 load by +24.9"),
    (whole(EVEN, noise=0.05), "sentence", "^Not decided: with every online thread busy, sysbench cpu may change "),
    (whole(blocks=1), "sentence", "has 1 block and needs at least 4"),
    (whole(EVEN, noise=0.05), "next", "^To decide, measure about "),
    (whole(EVEN, noise=0.05), "next", "at the 2 s a block took here"),
    (whole(blocks=3, noise=0.2, shape=(1, 2, 2)), "next", "a quieter host needs fewer.$"),
    (looked("futile"), "basis", "The plan looked at its samples 4 times; intervals and verdicts hold over all "),
    (looked("futile"), "next", "^The plan stopped early: the rest of its budget would hardly have decided this. "),
    (looked("size"), "next", "^The result had its maximum size before this was decided: measure fewer workloads"),
    # Without a comparison.
    (made(compared=False, reason="switching was not asked for"), "sentence", "^As it is now, all threads combined "),
    (made(compared=False, reason=NO_SMT, shape=(1, 2, 1)), "sentence", "so they do not share a core."),
    (alone(shape=(1, 2, 1), edit=one_core_in_truth), "sentence", "as if they shared a core, although the topology "),
    (alone(shape=(1, 1, 1)), "sentence", "SMT on and off were not compared here: x."),
    (alone(samples=[]), "sentence", "Nothing could be measured here about sharing a core.$"),
    (alone(blocks=3), "sentence", "3 of at least 4 blocks say nothing of sharing a core yet.$"),
    (made(samples=[]), "sentence", "no block has good samples with every online thread busy on both sides"),
    (busy(alone(shape=(1, 2, 1))), "sentence", "tells nothing of sharing a core"),
    (busy(alone(shape=(1, 2, 1))), "cautions", "too busy with other work to be measured well (load average before "),
    (NO_XZ_OFF, "sentence", "; each sample of xz failed with SMT off.$"),
    (NO_OFF, "sentence", "were not compared here: each sample of "),
    (whole(constant("encode", metric("energy"))), "sentence", "energy of encode is a sum over as many workers as ran"),
    (whole(constant("encode", metric("energy", aggregate="undeclared"))), "sentence", "it is not declared what "),
    # Work and times are said as what they are.
    (alone(GZIP, by_spot("compile", JOB, 16.0)), "sentence", "all threads combined did 1.25 times"),
    (QUERY, "sentence", "the work of two on two cores (gzip of a fixed stream), and took 1.30 times"),
    (ENERGY, "sentence", "two workers on one core took 1.60 times (1.60 to 1.60) the energy of two on two cores"),
    (alone(GZIP, by_spot("compile", CPU_TIME, 15.0)), "sentence", "the cpu_time of one worker per core (compile)"),
    (alone(by_spot("scoring", SCORE, 6.0), names=["siblings", "cores"]), "sentence", "one core had 0.60 times"),
    (whole(by_spot("compile", CPU_TIME, 15.0)), "cautions", "does not say how much they did together"),
    (made(by_spot("compile", CPU_TIME, 15.0), shape=(1, 1, 2)), "costs", "a worker's cpu_time changes by +49.9 %"),
    (alone(names=PACKED), "sentence", "2 workers on siblings first did 0.6"),
    (tail(15.0), "costs", "^The other side of it, orders: with SMT off latency_p99 changes by +"),
    (tail(2.0), "costs", ", better.$"),
    (made(), "costs", "a worker's work changes by −37"),
    (made(), "costs", "vulnerable to mds;"),
    (made(edit=everything), "costs", "SMT on: it was promised them, and killed"),
    (made(edit=everything), "costs", "SMT off: it was refused at once (ENOMEM)"),
    (made(edit=everything), "costs", "A switch took, in the median, 0.41 s to SMT on (3 times) and 1.5 s to SMT off "),
    (loads(LARGE, "pieces/s"), "sentence", "^requests, load 0.3 of each CPU, one worker per core: by CPU usage "),
    (loads(LARGE, "pieces/s"), "sentence", "\u202f500 pieces/s more, in truth for 28\u202f800."),
    (loads(FALLING), "sentence", "requests/s more, in truth for none."),
    (CLIENTS, "sentence", "turning it off changes 4 loads by −20"),
    (CLIENTS, "basis", "95 % confidence for the 4 comparisons combined"),
    (cpus_0_1(60.0, 78.0), "sentence", "^CPUs 0 and 1 share a core, as the kernel says."),
    (cpus_0_1(60.0), "sentence", "^CPUs 0 and 1, siblings of a core by the kernel, do no more work than one CPU."),
    (cpus_0_1(60.0, siblings=False), "sentence", "^CPUs 0 and 1 are one CPU, and the kernel says otherwise."),
    # Each pair is held against the fastest one, and not only the first.
    (pinned(PAIRS, siblings=False), "sentence", "CPUs 2 and 3 share"),
    (pinned(PAIRS, siblings=False), "sentence", "!CPUs 1 and 3 share"),
    (few_errors(), "cautions", "^web: errors was 300 with SMT on and 1 with SMT off, which has no ratio and no "),
    (whole(constant("own", {"latency_p99": TIME})), "cautions", "own latency_p99 is that of each worker, and with "),
    (made(edit=everything), "cautions", "The run was interrupted: lost the host. What"),
    (made(edit=everything), "cautions", "up to 25 % of the CPU time"),
    (made(edit=everything), "cautions", "guest (kvm)"),
    (whole(edit=counted_by_server), "cautions", "that they had counted"),
    (whole(edit=counted_by_server), "cautions", "and 2 more."),
    (guest(agrees_with_kernel=False, pairs=["0-1"]), "cautions", "By measuring, CPUs 0-1 share a core; the kernel "),
    (guest(agrees_with_kernel=None), "cautions", "is not clear"),
    (guest(), "cautions", "was not measured"),
    # As published, and not although less of it was compared.
    (studies.threads_2014(), "sentence", "took 1.52 times (1.52 to 1.52) as long as two on"),
    (studies.threads_2014(), "costs", "a worker's wall_time changes by +52.1 %"),
    (studies.busy_2014(), "sentence", "busy loop beside others wall_time by −34.2 % (−34.3 to −34.1 %), better."),
    (studies.busy_2014(), "costs", "!busy loop"),
    # What SMT off does to a half idle machine, where it is the opposite.
    (half_idle(150.0), "costs", "^With two workers on two cores turning SMT off changes tasks by +33."),
    (half_idle(250.0), "costs", "!With two workers on two cores"),
    (whole(blocks=3), "next", "!a quieter host"),
    (alone(GZIP, by_spot("compile", JOB, 16.0)), "sentence", "!0.80"),
    (alone(names=PACKED), "sentence", f"!{conclusion.NOTHING_OF_SHARING}"),
    (whole(constant("encode", metric("energy"))), "sentence", "!good samples"),
    (cpus_0_1(119.0), "sentence", "!CPUs 0 and 1"),
    (made(), "costs", "!meltdown"),
    (guest(agrees_with_kernel=True), "cautions", "!"),
    (whole(constant("own", JOB)), "cautions", "!of each worker"),
    (made(compared=False, edit=counted_by_server), "cautions", "!that they had counted"),
    # A disk is waited for; two share a CPU.
    (busy(made(), others=0.0), "cautions", "!too busy"),
    (busy(made(constant("work", {"throughput": RATE}), names=["same_cpu", "free_8"])), "cautions", "!too busy"),
    # A load level below the highest pauses on purpose, and the plan's own co-runners are none of others.
    (busy(loads({"one_per_core": {0.25: (1.0, 0.3), 1.0: (1.0, 1.0)}}), 0.99), "cautions", "!too busy"),
    (busy(made(edit=lambda one: one["plan"]["workloads"][0].update(co_runners=6))), "cautions", "!too busy"),
]


def sentences(document, part, *settings, **options):
    found = getattr(conclusion.conclude(analysed(document, *settings, **options)), part)
    return [found] if isinstance(found, str) else found


@pytest.mark.parametrize(("document", "part", "words"), ROWS)
def test_what_is_said(document, part, words):
    found = sentences(document, part)
    bare = words.strip("^$!")
    tested = str.startswith if words[0] == "^" else str.endswith if words[-1] == "$" else str.__contains__
    assert any(tested(one, bare) for one in found) is (words[0] != "!"), found


def test_what_was_asked_for_is_said_and_no_advice():
    margin = conclusion.conclude(analysed(whole({**GZIP, "share": 0.5}, blocks=12, noise=0.0005), 0.0025))
    assert "within 0.25 % either way" in margin.sentence and "within 0.25 % count" in margin.basis


def test_further_metrics_are_counted_by_what_they_do():
    def latency(number, off):
        metrics = {"throughput": RATE, "latency_p99": TIME}
        further = {"smt_on": 10.0, "smt_off": off}
        return constant(f"w{number} api", metrics, 800.0, lambda arm, _spot: {"latency_p99": further[arm]})

    # Three tails that double, and three that halve, were six of which the same holds; what costs comes first.
    costs = sentences(whole(*(latency(number, 20.0 if number > 2 else 5.0) for number in range(6))), "costs")
    assert "worse" in costs[0] and "3 further metrics: 3 better." in costs


def test_what_more_to_measure_grows_with_the_square_of_what_is_missing():
    undecided = dataclasses.replace(
        analysed(whole(GZIP)).comparisons[0], ci_low=0.96, ci_high=1.04, ratio=1.0, margin=0.01, n=10
    )
    few = advice.blocks_needed(undecided)
    many = advice.blocks_needed(dataclasses.replace(undecided, ci_low=0.92, ci_high=1.087))
    assert 10 * 3.5**2 < few < 10 * 4.5**2 and many == pytest.approx(4 * few, rel=0.1)
    assert advice.blocks_needed(dataclasses.replace(undecided, ci_low=None)) is None


def test_numbers_have_no_digits_that_say_nothing():
    for shown, texts in (
        (wording.amount, {14.0: "14", 0.0512: "0.0512", 67_512.0: "67\u202f500", 123.4: "123", 2e12: "2e+12"}),
        (wording.percent, {0.2: "20 %", 0.013: "1.3 %", 0.02: "2 %", 0: "0 %", 1.5: "150 %"}),
        (wording.signed, {0.8: "−20 %", 1.013: "+1.3 %", 1.0001: "±0 %", 2.5: "+150 %"}),
    ):
        assert {value: shown(value) for value in texts} == texts
