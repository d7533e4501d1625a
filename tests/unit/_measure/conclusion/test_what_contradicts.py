# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a recommendation decides, or is named beside it: on one host, and of a hardware class."""

import datetime

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import hardware_classes
from result_maker import accepted, analysed

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
JOBS = {"jobs": {"unit": "jobs/s", "better": "higher", "aggregate": "sum"}}
ERRORS = {"errors": {"unit": "errors", "better": "lower", "aggregate": "sum"}}
BETTER_OFF = {**result_maker.GZIP, "share": 0.45, "title": "gzip"}


def time(name, unit="ms", aggregate="max"):
    return {name: {"unit": unit, "better": "lower", "aggregate": aggregate}}


TAIL, MEDIAN = time("latency_p99"), time("latency_median")


def each(metrics, on, off, **further):
    """A workload of which each worker prints one value with SMT on, and another with it off."""
    made = {"title": "web", "metrics": metrics, **further}
    return {**made, "model": lambda arm, _spot, placed: [off if arm == "smt_off" else on] * len(placed)}


def jobs(title, of_all, further=None, metrics=None):
    """A workload that does ``of_all(arm, number of workers)`` jobs a second."""
    workload = {"title": title, "metrics": {**JOBS, **(metrics or {})}, **({"further": further} if further else {})}
    return {**workload, "model": lambda arm, _spot, placed: [of_all(arm, len(placed)) / len(placed)] * len(placed)}


def rates(on, off, title="web", further=None, metrics=None):
    return jobs(title, lambda arm, _n: off if arm == "smt_off" else on, further, metrics)


def made(workloads, names=("all_threads",), **options):
    usual = {"shape": (1, 4, 2), "blocks": 8, "noise": 0.002}
    return result_maker.result(workloads=workloads, **{**usual, "names": list(names), **options})


def said(document):
    analysis = analysed(document)
    return conclusion.conclude(analysis), recommendation.recommend(analysis)


def chosen(document):
    """What is recommended, and whether nothing speaks against it; of a host that the kernel calls safe."""
    document["facts"]["vulnerabilities"] = {}
    found, recommended = said(document)
    assert found.recommendation == recommended.choice
    return recommended.choice, recommended.agreed


def failing(document, is_failing):
    for sample in document["samples"]:
        if is_failing(sample):
            sample.update(ok=False, error="segfault", metrics={}, workers=[])
    return document


def of_class(*documents):
    """What is said of the hosts of these results together, on the page and as a decision."""
    rows = [hardware_classes.row(result_maker.summary(one), f"{one['host']}.html") for one in documents]
    (found,) = hardware_classes.by_class(rows, 0.01, 0.95)
    (decided,) = decisions.decisions([decisions.conclude(accepted(one), NOW) for one in documents], NOW).values()
    return found, decided["decision"]


def test_many_hosts_do_not_decide_what_none_of_them_could_measure():
    def host(number):
        document = made({"a": BETTER_OFF, "b": result_maker.GZIP}, host=f"h{number}", seed=number)
        return failing(document, lambda one: (one["workload"], one["arm"]) == ("b", "smt_off"))

    found, decided = of_class(*map(host, range(4)))
    assert (found.recommendation, found.title, decided) == ("undecided", "not decided", None)


def test_hosts_that_streams_decide_differently_disagree():
    def host(name, factor):
        orders = jobs("orders", lambda arm, n: factor if arm == "smt_on" and n > 4 else 1.0)
        return made({"o": orders}, [f"free_{number}" for number in (2, 4, 5, 6, 7, 8)], host=name)

    for factor, choice, decision in ((0.7, "hosts_disagree", None), (1.3, "on", "enabled")):
        found, decided = of_class(host("a", 1.3), host("b", factor))
        assert (found.recommendation, decided) == (choice, decision)


def test_a_workload_that_was_measured_on_a_part_of_the_machine_only_can_contradict_the_others():
    document = made({"a": rates(100, 110), "b": rates(100, 60)}, ["all_threads", "one_per_core", "cores"])
    part = ("b", "all_threads")
    document["samples"] = [one for one in document["samples"] if (one["workload"], one["placement"]) != part]
    assert chosen(document) == ("undecided", False)


def test_what_could_not_be_measured_on_one_side_is_named():
    document = made({"a": BETTER_OFF, "b": {**result_maker.GZIP, "title": "analytics"}})
    document["samples"] = [one for one in document["samples"] if (one["workload"], one["arm"]) != ("b", "smt_on")]
    skipped = {"workload": "b", "placement": "all_threads", "arm": "smt_on", "reason": "too little memory"}
    document["skipped"] = [skipped]
    found, _recommended = said(document)
    assert found.recommendation == "undecided"
    assert "; analytics could not" in found.sentence and "(too little memory)." in found.sentence
    # A host can write what it likes of arms that it does not have: its page is made all the same.
    odd = {**made({"a": BETTER_OFF}, arms={"smt_on": 1.0, "isolated": 1.0}), "skipped": [{**skipped, "arm": "smt_off"}]}
    assert hardware_classes.row(result_maker.summary(odd), "a.html").host == odd["host"]


def loads(value, limit=None):
    """Orders under 2 to 16 clients: ``value(arm, clients)`` gives jobs/s and the 99th percentile in ms."""
    document = made({"o": rates(1.0, 1.0, "orders", metrics=TAIL)})
    clients = (2, 4, 8, 16)
    parameter = {"name": "clients", "unit": "clients", "values": list(clients), "per_worker": False}
    document["plan"]["workloads"][0].update(parameter=parameter, **({"response_limit": limit} if limit else {}))

    def at(one, number):
        values = zip(("jobs", "latency_p99"), value(one["arm"], number), ("jobs/s", "ms"), ("higher", "lower"))
        scatter = 1 + 0.001 * one["block"]
        metrics = {name: {"value": of * scatter, "unit": unit, "better": better} for name, of, unit, better in values}
        return {**one, "parameter": number, "metrics": metrics}

    document["samples"] = [at(one, number) for one in document["samples"] for number in clients]
    return document


def test_a_most_load_is_not_agreed_where_half_of_the_work_is_done_at_each_load():
    each_client = {"smt_on": (100, 14), "smt_off": (50, 8)}
    assert chosen(loads(lambda arm, clients: [clients * of for of in each_client[arm]], limit=0.1)) == ("off", False)
    # So is a response time at a load that both sides serve.
    slow = studies.sap()
    for one in slow["samples"]:
        if one["parameter"] == 550:
            one["metrics"]["latency_mean"]["value"] = 1.9 if one["arm"] == "smt_on" else 0.4
    assert chosen(slow) == ("on", False)


def test_it_depends_on_the_load_where_one_workload_has_several():
    for last, start in ((100, "Turn SMT off"), (80, "It depends on the load: ")):
        off = {2: 100, 4: 120, 8: 110, 16: last}
        found, _made = said(loads(lambda arm, clients, off=off: (100 if arm == "smt_on" else off[clients], 5.0)))
        assert found.sentence.startswith(start)


def test_failures_on_one_side_alone_are_no_agreement():
    document = made({"a": rates(100, 70), "b": {**BETTER_OFF, "share": 0.7}})
    assert chosen(document) == ("on", True)
    failing(document, lambda one: (one["workload"], one["arm"]) == ("b", "smt_on") and one["block"] < 3)
    assert chosen(document) == ("on", False)
    assert said(document)[0].cautions[0].startswith("3 of 32 samples failed, all of gzip with SMT on; ")


def in_each_arm(name, on, off):
    return lambda arm, _spot: {name: on if arm == "smt_on" else off}


@pytest.mark.parametrize(
    ("workload", "choice", "agreed"),
    [
        (rates(100, 100, "web", in_each_arm("latency_p99", 5.0, 7.0), TAIL), "either", False),
        (each({**TAIL, **JOBS}, 10.0, 8.0, further=in_each_arm("jobs", 1000.0, 750.0)), "off", False),
        # With SMT off four workers have more each than eight have, and do less together.
        (each({"own": {**JOBS["jobs"], "aggregate": "mean"}}, 62.5, 100.0), "undecided", False),
        (each(time("own", "s", "mean"), 1.6, 1.0), "undecided", False),
        (each(time("own", "s", "mean_per_job"), 1.6, 1.0), "undecided", False),
        (each(TAIL, 1.8, 1.4), "off", None),
    ],
)
def test_what_each_worker_has_beside_what_all_of_them_do(workload, choice, agreed):
    found = chosen(made({"w": workload}))
    assert found == (choice, found[1] if agreed is None else agreed)


def test_where_a_response_time_becomes_worse_no_other_reason_decides():
    """The kernel's vulnerabilities ask for off: a tail that becomes worse contradicts."""
    others = "other reasons"
    for off, choice, by in ((7.0, "either", None), (2.0, "off", others), (5.0, "off", others)):
        tail = rates(100, 100, "web", in_each_arm("latency_p99", 5.0, off), TAIL)
        _found, recommended = said(made({"a": tail}))
        assert (recommended.choice, recommended.decided_by) == (choice, by)


ONE_BOOT = [(["all_threads"], None), (["cores"], None), (["free_2", "free_4", "free_6", "free_8"], None)]
ONE_BOOT.append((["all_threads"], {"as_found": 1.0, "mitigations_off": 1.1}))


@pytest.mark.parametrize(("names", "arms"), ONE_BOOT)
def test_one_boot_of_each_side_is_said_wherever_its_effect_is(names, arms):
    orders = jobs("orders", lambda arm, n: 110 if arm != "smt_off" and n > 1 else 100)
    document = made({"o": orders}, names, arms=arms)
    document["plan"].update(boots=1, booted=[arm["name"] for arm in document["arms"]], confounded=True)
    for one in document["samples"]:
        one.update(boot=int(one["arm"] == document["arms"][1]["name"]), pair=0)
    found, _recommended = said(document)
    assert "confounded with the reboot between" in found.sentence, found.sentence
    assert found.basis.startswith("8 blocks of one boot on each side, ")


NONE = 0.0


def many(block):
    return 110.0 + block


def open_load(metrics, on, off, asked=None, used=0.4, done=(1000, 1000), **options):
    """A load whose generator gives 1000 jobs a second; further metrics are numbers, or functions of the block."""
    of_arm = {"smt_on": dict(zip(metrics, on)), "smt_off": dict(zip(metrics, off))}
    web = jobs("web", lambda arm, _n: done[arm == "smt_off"], lambda arm, _s: dict.fromkeys(metrics, 1.0), metrics)
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


@pytest.mark.parametrize("given", [{}, {"asked": 1000, "used": 1.0}])
@pytest.mark.parametrize(
    ("metrics", "on", "off", "choice"),
    [
        (TAIL, [9.0], [14.0], "on"),
        (TAIL, [14.0], [9.0], "off"),
        ({**TAIL, **MEDIAN}, [9.0, 5.0], [14.0, 4.0], "on"),  # The tail is what is waited for.
        (ERRORS, [NONE], [many], "on"),
        ({**TAIL, **ERRORS}, [9.0, 5.0], [14.0, 120.0], "on"),
        ({**TAIL, **ERRORS}, [9.0, many], [14.0, NONE], "by_workload"),
        # One error in all is none of the arm.
        ({**TAIL, **ERRORS}, [9.0, lambda block: float(block == 3)], [14.0, NONE], "on"),
    ],
)
def test_what_the_load_generator_gives_decides_nothing(metrics, on, off, choice, given):
    found, recommended = said(open_load(metrics, on, off, **given))
    assert (found.recommendation, recommended.choice) == (choice, choice), found.sentence


@pytest.mark.parametrize(
    ("document", "choice"),
    [
        # Less than was asked for is what the arm can do, also where all CPUs are full; so many arrivals scatter.
        (open_load(TAIL, [14.0], [9.0], asked=1000, done=(1000, 900)), "on"),
        (open_load(TAIL, [14.0], [9.0], used=1.0), "either"),
        (open_load(TAIL, [14.0], [9.0], asked=1000, noise=0.03), "off"),
        # Nothing that may differ is known. Each block has to say it, or nearly each.
        (open_load({}, [], [], asked=1000), "undecided"),
        (open_load(ERRORS, [NONE], [many], blocks=4), "undecided"),
    ],
)
def test_what_else_is_known_of_a_rate_that_is_the_same(document, choice):
    assert said(document)[0].recommendation == choice


# A limit of response times that one arm meets with no load, or not in each block.
ON_ALONE = "ithin 2 s SAP SD serves 650 users with SMT on, and with SMT off none of the loads measured"
SMALLER = "No load of SAP SD that was measured is served within 2 s with SMT off, every online thread busy"


def sap(over=2.5, blocks=6, in_blocks=None, at=("smt_off", 550), **options):
    """SAP's figures, but for the response time of these users with an arm; they fail where it is None."""
    document = {**studies.sap(blocks), **options}
    for sample in document["samples"]:
        if (sample["arm"], sample["parameter"]) == at and sample["block"] < (in_blocks or blocks):
            if over is None:
                sample.update(ok=False, error="no answer", metrics={}, workers=[])
            else:
                sample["metrics"]["latency_mean"]["value"] = over
    return document


def with_gzip(document):
    """The same with gzip beside it, which gains."""
    other = made({"gzip": BETTER_OFF}, blocks=6)
    document["plan"]["workloads"] += other["plan"]["workloads"]
    return {**document, "samples": [*document["samples"], *other["samples"]]}


@pytest.mark.parametrize("over", [2.5, None])
def test_a_limit_that_one_arm_never_meets_is_an_answer(over):
    document = sap(over)
    why = "the response time was not reached)" if over else "no answer; 6 of its samples failed: the "
    found, recommended = said(document)
    assert found.sentence == f"Leave SMT on: w{ON_ALONE}."
    # A load that fails is the result.
    assert cautions.failures(accepted(document)) == []
    assert any(one.startswith(f"{SMALLER} (6 of its samples failed: ") and why in one for one in found.cautions)
    assert (recommended.choice, recommended.decided_by, recommended.standing.best) == ("on", "performance", "smt_on")
    reason = recommended.reasons[0]
    assert (reason.points_to, reason.facts["verdict"], reason.text) == ("on", "loss", f"w{ON_ALONE}")
    assert recommended.standing.outcomes == {("smt_off", "smt_on"): "worse"}


def slow_everywhere():
    document = sap()
    for sample in document["samples"]:
        sample["metrics"].get("latency_mean", {})["value"] = 3.0
    return document


def with_isolated():
    document = studies.sap()
    document["samples"] += [{**one, "arm": "isolated"} for one in sap()["samples"] if one["arm"] == "smt_off"]
    document["arms"].append(result_maker.arm("isolated", "isolated", False))
    document["plan"]["placements"]["isolated"] = document["plan"]["placements"]["smt_off"]
    return document


@pytest.mark.parametrize(
    ("document", "choice", "part", "words"),
    [
        # What gains beside it does not decide alone.
        (with_gzip(sap()), "by_workload", "sentence", f"It depends on the work: w{ON_ALONE}; with every online thread"),
        (sap(blocks=3), "undecided", "sentence", f"Not decided: w{ON_ALONE}, not decided by 3 of at least 4 blocks."),
        (sap(blocks=3), "undecided", "next", "Measure more blocks: there are too few to say how many it would take."),
        (sap(2.5, 5, 2, ("smt_on", 650)), "undecided", "sentence", "with SMT off, +18 % (−1 to +24 %), not decided."),
        (slow_everywhere(), "not_compared", "sentence", "no load that was measured is served within its limit."),
        (sap(blocks=8, in_blocks=3), "on", "sentence", "with SMT off, +18 % in 5 of 8 blocks."),
        (sap(blocks=8, in_blocks=3), "on", "cautions", ", in 3 of 8 blocks, which are left out of its comparisons"),
        (with_isolated(), "on", "sentence", "SMT on, the baseline, is the best of the 3 arms: each other one costs."),
    ],
)
def test_where_it_is_not_met_is_said(document, choice, part, words):
    found, recommended = said(document)
    said_of_it = getattr(found, part)
    assert words in said_of_it or any(words in one for one in said_of_it), said_of_it
    assert recommended.choice == choice
    assert {one.outcome for one in recommended.arms} <= {"worse"}


def test_a_class_decides_with_it():
    both, alone = ([of(sap(host=host)) for host in "ab"] for of in (with_gzip, dict))
    for documents, choice, decided in ((both, "by_workload", None), (alone, "on", "enabled")):
        together, found = of_class(*documents)
        assert (together.recommendation, found) == (choice, decided)
    assert of_class(both[0])[0].recommendation == "undecided"
