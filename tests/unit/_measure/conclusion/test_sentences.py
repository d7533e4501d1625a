# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each sentence of a conclusion, once: results of which the numbers are known, and what is said of them."""

import functools
import itertools

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import advice, conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording
from result_maker import GZIP, accepted, analysed

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
    document = result_maker.result(
        workloads={one["title"].split()[0]: one for one in workloads or [GZIP]}, **{**usual, **options}
    )
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
    values = sorted(next(iter(rates.values())))
    parameter = {"name": name, "unit": "of each CPU", "values": values, "per_worker": per_worker}
    document["plan"]["workloads"][0]["parameter"] = parameter
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


def pinned(rates, siblings=True):
    """The rates of each workload by placement."""
    workloads = [
        of(f"w{number}", studies.RATES, lambda _arm, spot, placed, of_spot=of_spot: [of_spot[spot]] * len(placed))
        for number, of_spot in enumerate(rates)
    ]
    return alone(*workloads, shape=(1, 4, 2 if siblings else 1), blocks=6, names=list(rates[0]))


def cpus_0_1(*rates, siblings=True):
    return pinned([{"cpus_0_2": 119.0, "cpus_0_1": rate} for rate in rates], siblings)


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


def promised(document):
    document["observations"] = [
        {"arm": "smt_on", "asked_bytes": 365 * 2**20, "overcommit_test": {"outcome": "oom_killed"}},
        {"arm": "smt_off", "asked_bytes": 365 * 2**20, "overcommit_test": {"outcome": "enomem"}},
        {"arm": "smt_off", "asked_bytes": None, "overcommit_test": None},
        {"arm": "x", "overcommit_test": {"outcome": "?"}},
    ]


def switched(document):
    document["plan"]["switches"] = {"smt_on": {"count": 3, "seconds": 0.412}, "smt_off": {"count": 2, "seconds": 1.5}}


def interrupted(document):
    document.update(outcome="interrupted", message="lost the host.")
    document["environment"]["hypervisor"] = "kvm"
    document["samples"][0]["telemetry"]["steal"] = 0.25


def counted_by_server(document, number=1):
    counts = {"program": "nginx", "unit": "nginx.service", "is_service": True, "counted": 4, "cpus": 2}
    counts.update(has="nginx.service has 4 worker processes for 4 CPUs", remedy="restart it")
    document["facts"]["consumers_after_switch"] = [counts] * number
    document["plan"]["workloads"][0]["server"] = True


def tail(off, arm="smt_off", **options):
    latency = {"latency_p99": TIME}
    orders = constant(
        "orders", {"throughput": RATE, **latency}, 800.0, lambda a, _s: {"latency_p99": off if a == arm else 5.0}
    )
    return made(orders, **options)


def errors(on, off, rate=(800.0, 800.0)):
    metrics = {"throughput": RATE, "errors": {"unit": "errors", "better": "lower", "aggregate": "sum"}}
    web = of("web", metrics, lambda arm, _spot, placed: [rate[arm == "smt_off"] / len(placed)] * len(placed))
    document = whole({**web, "further": lambda _arm, _spot: {"errors": 1.0}})
    for sample in document["samples"]:
        sample["metrics"]["errors"]["value"] = (on if sample["arm"] == "smt_on" else off)(sample["block"])
    return document


def metric(name, unit="J", better="lower", aggregate="sum"):
    return {name: {"unit": unit, "better": better, "aggregate": aggregate}}


CPU_TIME = metric("cpu_time", "s", aggregate="mean_per_job")
WAIT = metric("latency_mean", "ms", aggregate="mean")
JOB = metric("time", "s", aggregate="per_job")
FOUR = [{**GZIP, "share": share, "title": f"w{n} load"} for n, share in enumerate((0.65, 0.65, 0.4, 0.4))]
LARGE = {
    "one_per_core": {0.3: (11900.0, 0.15), 1.0: (37000.0, 0.54)},
    "all_threads": {0.3: (23400.0, 0.3), 1.0: (40700.0, 1.0)},
}
FALLING = {"one_per_core": {0.9: (9.0, 0.45), 1.0: (10.0, 0.5)}, "all_threads": {0.9: (8.0, 0.9), 1.0: (8.0, 1.0)}}
CLIENTS = loads(
    {"all_threads": {value: (10.0 * value, 0.5) for value in (1, 2, 4, 8)}}, compared=True, per_worker=False
)
THREE = {"smt_on": 1.0, "isolated": 1.1, "thp_never": 0.9}
PACKED = ["spread_2", "packed_2", "spread_4", "packed_4"]
ON_OFF = whole(GZIP, EVEN, noise=0.0005)


# Result, what is concluded, and of that which words. ^ is the begin of a sentence, $ its end.
ROWS = [
    (made(), "sentence", "^Leave SMT on: with every online thread busy, turning it off changes gzip of a fixed "),
    (whole({**BETTER_OFF, "share": 0.4}), "sentence", "^Turn SMT off: with every online thread busy, that changes "),
    (whole(EVEN, noise=0.0005), "sentence", "^For performance SMT may be on or off here, and with it on the "),
    (ON_OFF, "sentence", "; sysbench cpu stays within 1 % either way.$"),
    (ON_OFF, "basis", "for the 2 workloads combined"),
    (whole(*FOUR), "sentence", "^It depends on the work: "),
    (whole(*FOUR), "sentence", "w0 load and w1 load by −23"),
    (whole(*FOUR), "sentence", "w2 load and w3 load by +24.9"),
    (whole(EVEN, noise=0.05), "sentence", "^Not decided: with every online thread busy, sysbench cpu may change "),
    (whole(blocks=1), "sentence", "has 1 block and needs at least 4"),
    (whole(blocks=3), "sentence", "has 3 blocks and needs at least 4"),
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
    # What one side cannot do.
    (
        failing(whole(BETTER_OFF, XZ), lambda one: (one["workload"], one["arm"]) == ("xz", "smt_off")),
        "sentence",
        "; each sample of xz failed with SMT off.$",
    ),
    (failing(whole(), lambda one: one["arm"] == "smt_off"), "sentence", "were not compared here: each sample of "),
    (
        failing(
            whole(names=["all_threads", "single"]), lambda one: one["arm"] + one["placement"] == "smt_offall_threads"
        ),
        "sentence",
        "The whole machine was not compared (each sample of gzip of a fixed stream failed with SMT off)",
    ),
    (whole(constant("encode", metric("energy"))), "sentence", "energy of encode is a sum over as many workers as ran"),
    (whole(constant("encode", metric("energy", aggregate="undeclared"))), "sentence", "it is not declared what "),
    # Work and times are said as what they are.
    (alone(GZIP, by_spot("compile", JOB, 16.0)), "sentence", "all threads combined did 1.25 times"),
    (
        alone(GZIP, by_spot("query", WAIT, 13.0), names=["single", "siblings", "cores"]),
        "sentence",
        "the work of two on two cores (gzip of a fixed stream), and took 1.30 times",
    ),
    (
        alone(by_spot("encode", metric("energy"), 160.0, 100.0), names=["siblings", "cores"]),
        "sentence",
        "two workers on one core took 1.60 times (1.60 to 1.60) the energy of two on two cores",
    ),
    (alone(GZIP, by_spot("compile", CPU_TIME, 15.0)), "sentence", "the cpu_time of one worker per core (compile)"),
    (
        alone(by_spot("scoring", metric("score", "points", "higher", "mean"), 6.0), names=["siblings", "cores"]),
        "sentence",
        "two workers on one core had 0.60 times",
    ),
    (whole(by_spot("compile", CPU_TIME, 15.0)), "cautions", "does not say how much they did together"),
    (made(by_spot("compile", CPU_TIME, 15.0), shape=(1, 1, 2)), "costs", "a worker's cpu_time changes by +49.9 %"),
    (alone(names=PACKED), "sentence", "2 workers on siblings first did 0.6"),
    # The other side of it.
    (tail(15.0), "costs", "^The other side of it, orders: with SMT off latency_p99 changes by +"),
    (tail(2.0), "costs", ", better.$"),
    (tail(15.0, "isolated", arms={"smt_on": 1.0, "isolated": 1.0}), "costs", "^The other side of it, orders: with "),
    (made(), "costs", "a worker's work changes by −37"),
    (made(), "costs", "vulnerable to mds;"),
    (made(edit=promised), "costs", "SMT on: it was promised them, and killed"),
    (made(edit=promised), "costs", "SMT off: it was refused at once (ENOMEM)"),
    (made(edit=switched), "costs", "A switch took, in the median, 0.41 s to SMT on (3 times) and 1.5 s to SMT off "),
    # Loads.
    (loads(LARGE, "pieces/s"), "sentence", "^requests, load 0.3 of each CPU, one worker per core: by CPU usage "),
    (loads(LARGE, "pieces/s"), "sentence", "\u202f500 pieces/s more, in truth for 28\u202f800."),
    (loads(FALLING), "sentence", "requests/s more, in truth for none."),
    (CLIENTS, "sentence", "turning it off changes 4 loads by −20"),
    (CLIENTS, "basis", "95 % confidence for the 4 comparisons combined"),
    # What two CPUs share.
    (cpus_0_1(60.0, 78.0), "sentence", "^CPUs 0 and 1 share a core, as the kernel says."),
    (cpus_0_1(60.0), "sentence", "^CPUs 0 and 1, siblings of a core by the kernel, do no more work than one CPU."),
    (cpus_0_1(60.0, siblings=False), "sentence", "^CPUs 0 and 1 are one CPU, and the kernel says otherwise."),
    (cpus_0_1(78.0, 60.0, siblings=False), "sentence", "^CPUs 0 and 1 share a core, and the kernel says otherwise."),
    # Other arms.
    (failing(whole(arms=THREE), lambda one: one["arm"] == "thp_never"), "sentence", "which arm is best was not "),
    # Cautions.
    (errors(lambda _block: 0, lambda _block: 5), "cautions", "^web: errors was 0 with SMT on and 5 with SMT off, "),
    (
        errors(lambda block: 400 if block % 4 else 0, lambda block: 2 if block % 2 else 0, (100.0, 80.0)),
        "cautions",
        "^web: errors was 300 with SMT on and 1 with SMT off, which has no ratio and no verdict.",
    ),
    (whole(constant("own", {"latency_p99": TIME})), "cautions", "own latency_p99 is that of each worker, and with "),
    (made(edit=interrupted), "cautions", "The run was interrupted: lost the host. What"),
    (made(edit=interrupted), "cautions", "up to 25 % of the CPU time"),
    (made(edit=interrupted), "cautions", "guest (kvm)"),
    (whole(edit=counted_by_server), "cautions", "that they had counted"),
    (whole(edit=functools.partial(counted_by_server, number=5)), "cautions", "and 2 more."),
    (guest(agrees_with_kernel=False, pairs=["0-1"]), "cautions", "By measuring, CPUs 0-1 share a core; the kernel "),
    (guest(agrees_with_kernel=None), "cautions", "is not clear"),
    (guest(), "cautions", "was not measured"),
]


def sentences(document, part, *settings, **options):
    found = conclusion.conclude(analysed(document, *settings, **options))[part]
    return [found] if isinstance(found, str) else found


@pytest.mark.parametrize(("document", "part", "words"), ROWS)
def test_what_is_said(document, part, words):
    found = sentences(document, part)
    bare = words.removeprefix("^").removesuffix("$")
    at = [one.find(bare) if words.endswith(bare) else one.rfind(bare) for one in found]
    assert any(
        place >= 0 and (bare == words.removesuffix("$") or place == 0) and (words[-1] != "$" or one.endswith(bare))
        for one, place in zip(found, at)
    ), found


@pytest.mark.parametrize(
    ("document", "part", "words"),
    [
        (whole(blocks=3), "next", "a quieter host"),
        (alone(GZIP, by_spot("compile", JOB, 16.0)), "sentence", "0.80"),
        (alone(names=PACKED), "sentence", conclusion.NOTHING_OF_SHARING),
        (loads(LARGE, "pieces/s"), "sentence", "e+"),
        (whole(constant("encode", metric("energy"))), "sentence", "good samples"),
        (cpus_0_1(119.0), "sentence", "CPUs 0 and 1"),
        (made(), "costs", "meltdown"),
        (CLIENTS, "costs", "1 clients"),
        (guest(agrees_with_kernel=True), "cautions", ""),
        (whole(constant("own", JOB)), "cautions", "of each worker"),
        (made(constant("own", {"latency_p99": TIME}), names=["cores"]), "cautions", "of each worker"),
        # A disk is waited for; two share a CPU.
        (busy(made(), others=0.0), "cautions", "too busy"),
        (busy(made(constant("work", {"throughput": RATE}), names=["same_cpu", "free_8"])), "cautions", "too busy"),
        # A load level below the highest pauses on purpose, and the plan's own co-runners are none of others.
        (busy(loads({"one_per_core": {0.25: (1.0, 0.3), 1.0: (1.0, 1.0)}}), 0.99), "cautions", "too busy"),
        (busy(made(edit=lambda one: one["plan"]["workloads"][0].update(co_runners=6))), "cautions", "too busy"),
        (made(compared=False, edit=counted_by_server), "cautions", "that they had counted"),
    ],
)
def test_what_is_not_said(document, part, words):
    assert not [one for one in sentences(document, part) if words in one]


@pytest.mark.parametrize("others", [0.7, None])
def test_other_work_leaves_a_worker_as_much_of_a_cpu_as_waiting_and_is_busy(others):
    assert any("too busy" in one for one in sentences(busy(made(), others=others), "cautions"))


def test_what_was_asked_for_is_said_and_no_advice():
    margin = conclusion.conclude(analysed(whole({**GZIP, "share": 0.5}, blocks=12, noise=0.0005), 0.0025))
    assert "within 0.25 % either way" in margin["sentence"] and "within 0.25 % count" in margin["basis"]
    missing = failing(whole(arms=THREE), lambda one: one["arm"] == "thp_never")
    assert "smt_report_compare" not in sentences(missing, "sentence", 0.01, 0.95, "all")[0]


def test_each_pair_is_held_against_the_fastest_one_and_not_only_the_first():
    rates = {"cpus_0_1": 78.0, "cpus_2_3": 77.0, "cpus_0_2": 119.0, "cpus_1_3": 118.0}
    (sentence,) = sentences(pinned([rates], siblings=False), "sentence")
    named = {pair for pair in itertools.combinations(range(4), 2) if f"CPUs {pair[0]} and {pair[1]} share" in sentence}
    assert named == {(0, 1), (2, 3)}


def test_further_metrics_are_counted_by_what_they_do():
    names = [f"latency_{name}" for name in ("mean", "p50", "p90", "p99")]
    four = constant("orders", {"throughput": RATE, **dict.fromkeys(names, TIME)}, 800.0)
    four["further"] = lambda arm, _spot: dict.fromkeys(names, 2.0 if arm == "smt_on" else 1.0)
    costs = sentences(whole(four), "costs")
    assert sum(one.startswith("The other side of it") for one in costs) == 4
    assert not any("further metrics" in one for one in costs)
    # Three tails that double, and three that halve, were six of which the same holds; what costs comes first.
    six = [
        constant(
            f"w{number} api",
            {"throughput": RATE, "latency_p99": TIME},
            800.0,
            lambda arm, _spot, off=20.0 if number > 2 else 5.0: {"latency_p99": 10.0 if arm == "smt_on" else off},
        )
        for number in range(6)
    ]
    costs = sentences(whole(*six), "costs")
    assert "worse" in costs[0] and "3 further metrics: 3 better." in costs


def test_what_more_to_measure_grows_with_the_square_of_what_is_missing():
    undecided = {"ci_low": 0.96, "ci_high": 1.04, "ratio": 1.0, "margin": 0.01, "n": 10}
    few = advice.blocks_needed(undecided)
    many = advice.blocks_needed({**undecided, "ci_low": 0.92, "ci_high": 1.087})
    assert 10 * 3.5**2 < few < 10 * 4.5**2 and many == pytest.approx(4 * few, rel=0.1)
    assert advice.blocks_needed({**undecided, "ci_low": None}) is None
    # More blocks are not asked for where they would not help.
    wild = {**undecided, "ci_low": 1e-304, "ci_high": 1e304, "n": 4, "metric": "throughput"}
    wild.update(verdict="inconclusive", confounded=False)
    asked = advice.more_to_measure(accepted(result_maker.result(blocks=1)), [wild])
    assert "measure on a quieter host" in asked["text"]


@pytest.mark.parametrize(
    ("shown", "value", "text"),
    [
        *((wording.amount, *row) for row in ((14.0, "14"), (0.0512, "0.0512"), (67_512.0, "67\u202f500"))),
        *((wording.amount, *row) for row in ((123.4, "123"), (2e12, "2e+12"))),
        *(
            (wording.percent, *row)
            for row in ((0.2, "20 %"), (0.013, "1.3 %"), (0.02, "2 %"), (0, "0 %"), (1.5, "150 %"))
        ),
        *((wording.signed, *row) for row in ((0.8, "−20 %"), (1.013, "+1.3 %"), (1.0001, "±0 %"), (2.5, "+150 %"))),
    ],
)
def test_numbers_have_no_digits_that_say_nothing(shown, value, text):
    assert shown(value) == text
