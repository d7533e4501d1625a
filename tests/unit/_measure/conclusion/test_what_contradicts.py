# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a recommendation decides, or is named beside it: on one host, and of a hardware class."""

import datetime

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import hardware_classes
from result_maker import accepted, analysed

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
JOBS = {"jobs": {"unit": "jobs/s", "better": "higher", "aggregate": "sum"}}
ERRORS = {"errors": {"unit": "errors", "better": "lower", "aggregate": "sum"}}
BETTER_OFF = {**result_maker.GZIP, "share": 0.45, "title": "gzip"}


def time(name, unit="ms", aggregate="max"):
    return {name: {"unit": unit, "better": "lower", "aggregate": aggregate}}


TAIL, MEDIAN, MEAN = time("latency_p99"), time("latency_median"), time("latency_mean")


def each(metrics, on, off, title="web", **further):
    """A workload of which each worker prints one value with SMT on, and another with it off."""
    values = {"smt_off": off}
    made = {"title": title, "metrics": metrics, **further}
    return {**made, "model": lambda arm, _spot, placed: [values.get(arm, on)] * len(placed)}


def jobs(title, of_all, further=None, metrics=None):
    """A workload that does ``of_all(arm, number of workers)`` jobs a second."""
    workload = {
        "title": title,
        "metrics": {**JOBS, **(metrics or {})},
        "model": lambda arm, _spot, placed: [of_all(arm, len(placed)) / len(placed)] * len(placed),
    }
    return {**workload, "further": further} if further else workload


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
    assert found["recommendation"] == recommended["choice"]
    return recommended["choice"], recommended["agreed"]


def failing(document, is_failing, error="segfault"):
    for sample in document["samples"]:
        if is_failing(sample):
            sample.update(ok=False, error=error, metrics={}, workers=[])
    return document


def one_workload_fails(document, arm):
    return failing(document, lambda one: (one["workload"], one["arm"]) == ("b", arm))


def of_class(*documents):
    """What is said of the hosts of these results together, on the page and as a decision."""
    rows = [hardware_classes.row(result_maker.summarised(one), f"{one['host']}.html") for one in documents]
    (found,) = hardware_classes.by_class(rows, 0.01, 0.95)
    (decided,) = decisions.decisions([decisions.conclude(accepted(one), NOW) for one in documents], NOW).values()
    return found, decided["decision"]


def cannot_do_orders(host, seed=1):
    orders = {"a": BETTER_OFF, "b": {**result_maker.GZIP, "title": "orders"}}
    return one_workload_fails(made(orders, host=host, seed=seed), "smt_off")


def waits_of_each(host, seed):
    return made({"w": each(time("wall_time", "s", "mean"), 16.0, 10.0)}, host=host, seed=seed)


@pytest.mark.parametrize("kind", [cannot_do_orders, waits_of_each])
def test_many_hosts_do_not_decide_what_none_of_them_could_measure(kind):
    found, decided = of_class(*(kind(f"h{number}", number) for number in range(4)))
    assert (found["recommendation"], found["title"], decided) == ("undecided", "not decided", None)


@pytest.mark.parametrize("arms", [["as_found", "isolated"], ["as_found", "isolated", "thp_never"]])
def test_an_arm_that_cannot_do_a_workload_is_not_better(arms):
    def host(name):
        workloads = {"a": jobs("web", lambda arm, _n: 110 if arm == "isolated" else 100), "b": rates(100, 100)}
        return one_workload_fails(made(workloads, arms=dict.fromkeys(arms, 1.0), host=name), "isolated")

    _found, recommended = said(host("a"))
    assert recommended["arms"][0]["outcome"] == "undecided" and recommended["best"] is None
    rows = [hardware_classes.row(result_maker.summarised(host(name)), f"{name}.html") for name in "abcd"]
    (together,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert "isolated: not decided" in together["title"] and together["counts"] == {together["title"]: 4}


def test_hosts_that_streams_decide_differently_disagree():
    def host(name, factor):
        orders = jobs("orders", lambda arm, n: factor if arm == "smt_on" and n > 4 else 1.0)
        return made({"o": orders}, [f"free_{number}" for number in (2, 4, 5, 6, 7, 8)], host=name)

    found, decided = of_class(host("a", 1.3), host("b", 0.7))
    assert (found["recommendation"], decided) == ("hosts_disagree", None)
    found, decided = of_class(host("a", 1.3), host("b", 1.3))
    assert (found["recommendation"], decided) == ("on", "enabled")


def test_numbers_of_streams_contradict_the_whole_machine():
    times = dict(zip(("smt_on", "smt_off"), studies.HP["outer"]))
    array = {"o": jobs("array", lambda arm, number: 1000 / times[arm][number - 1])}
    names = [f"free_{number}" for number in (1, 2, 4, 5, 6, 7, 8, 12)]
    for measured in (names, [*names, "all_threads"]):
        found, recommended = said(made(array, measured))
        assert found["recommendation"] == recommended["choice"] == "by_workload"
        assert found["sentence"].startswith("It depends on how much runs at once: ")
        assert "with 4 streams" in found["sentence"]
    sides = {reason["points_to"] for reason in recommended["reasons"] if reason["about"] == "performance"}
    assert sides == {"on", "off"}
    together, decided = of_class(*(made(array, measured, host=host) for host in "ab"))
    assert (together["recommendation"], decided) == ("by_workload", None)


def test_streams_of_one_workload_can_contradict_another_one_with_all_threads():
    names = [f"free_{number}" for number in range(5, 13)]
    array = each(time("wall_time", "s", "mean"), 1.0, 1.3, "array")
    streams, whole = made({"array": array}, names, blocks=6), made({"gzip": BETTER_OFF}, blocks=6)
    whole["samples"] += streams["samples"]
    whole["plan"]["workloads"] += streams["plan"]["workloads"]
    for arm, spots in whole["plan"]["placements"].items():
        spots.update(streams["plan"]["placements"][arm])
    assert chosen(whole) == ("by_workload", False)


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
    assert found["recommendation"] == "undecided"
    assert "; analytics could not" in found["sentence"] and "(too little memory)." in found["sentence"]
    # A host can write what it likes of arms that it does not have: its page is made all the same.
    odd = {**made({"a": BETTER_OFF}, arms={"smt_on": 1.0, "isolated": 1.0}), "skipped": [{**skipped, "arm": "smt_off"}]}
    assert hardware_classes.row(result_maker.summarised(odd), "a.html")["host"] == odd["host"]


def loads(value, limit=None):
    """Orders under 2 to 16 clients: ``value(arm, clients)`` gives jobs/s and the 99th percentile in ms."""
    document = made({"o": rates(1.0, 1.0, "orders", metrics=TAIL)})
    clients = (2, 4, 8, 16)
    parameter = {"name": "clients", "unit": "clients", "values": list(clients), "per_worker": False}
    document["plan"]["workloads"][0].update(parameter=parameter, **({"response_limit": limit} if limit else {}))

    def metrics(one, number):
        values = zip(("jobs", "latency_p99"), value(one["arm"], number), ("jobs/s", "ms"), ("higher", "lower"))
        scatter = 1 + 0.001 * one["block"]
        return {name: {"value": of * scatter, "unit": unit, "better": better} for name, of, unit, better in values}

    document["samples"] = [
        {**one, "parameter": number, "metrics": metrics(one, number)}
        for one in document["samples"]
        for number in clients
    ]
    return document


def test_a_most_load_is_not_agreed_where_half_of_the_work_is_done_at_each_load():
    def value(arm, clients):
        return 100 * clients * (1 if arm == "smt_on" else 0.5), {"smt_on": 14, "smt_off": 8}[arm] * clients

    document = loads(value, limit=0.1)
    assert chosen(document) == ("off", False)
    assert sum("jobs changes by −50.0 %" in cost for cost in said(document)[0]["costs"]) >= 3
    # So is a response time at a load that both sides serve.
    slow = studies.sap()
    for one in slow["samples"]:
        if one["parameter"] == 550:
            one["metrics"]["latency_mean"]["value"] = 1.9 if one["arm"] == "smt_on" else 0.4
    assert chosen(slow) == ("on", False)
    reasons = said(slow)[1]["reasons"]
    assert any(one["points_to"] == "off" and "latency_mean" in one["text"] for one in reasons)


@pytest.mark.parametrize(
    ("off", "start"),
    [
        ({2: 120, 4: 120, 8: 100, 16: 100}, "Turn SMT off"),
        ({2: 100, 4: 120, 8: 110, 16: 80}, "It depends on the load: "),
    ],
)
def test_it_depends_on_the_load_where_one_workload_has_several(off, start):
    found, _made = said(loads(lambda arm, clients: (100 if arm == "smt_on" else off[clients], 5.0)))
    assert found["sentence"].startswith(start)


def test_failures_and_errors_on_one_side_alone_are_no_agreement():
    document = made({"a": rates(100, 70), "b": {**BETTER_OFF, "share": 0.7}})
    assert chosen(document) == ("on", True)
    failing(document, lambda one: (one["workload"], one["arm"]) == ("b", "smt_on") and one["block"] < 3)
    assert chosen(document) == ("on", False)
    assert said(document)[0]["cautions"][0].startswith("3 of 32 samples failed, all of gzip with SMT on; ")
    # Errors that are far apart, although some samples have none.
    document = made({"a": rates(100, 80, "web", lambda *_at: {"errors": 1.0}, ERRORS)})
    for one in document["samples"]:
        few, many = (2 if one["block"] % 2 else 0), (400 if one["block"] % 4 else 0)
        one["metrics"]["errors"]["value"] = many if one["arm"] == "smt_on" else few
    assert chosen(document) == ("on", False)


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
    worse, better = (
        made({"a": rates(100, 100, "web", in_each_arm("latency_p99", 5.0, off), TAIL)}) for off in (7.0, 2.0)
    )
    equal, others = made({"a": rates(100, 100)}), "other reasons"
    for document, choice, by in ((worse, "either", None), (better, "off", others), (equal, "off", others)):
        _found, recommended = said(document)
        assert (recommended["choice"], recommended["decided_by"]) == (choice, by)
    assert of_class(*({**equal, "host": host} for host in "ab"))[0]["recommendation"] == "off"


@pytest.mark.parametrize(
    ("names", "arms"),
    [
        (["all_threads"], None),
        (["cores"], None),
        (["free_2", "free_4", "free_6", "free_8"], None),
        (["all_threads"], {"as_found": 1.0, "mitigations_off": 1.1}),
    ],
)
def test_one_boot_of_each_side_is_said_wherever_its_effect_is(names, arms):
    orders = jobs("orders", lambda arm, n: 110 if arm != "smt_off" and n > 1 else 100)
    document = made({"o": orders}, names, arms=arms)
    document["plan"].update(boots=1, booted=[arm["name"] for arm in document["arms"]], confounded=True)
    for one in document["samples"]:
        one.update(boot=int(one["arm"] == document["arms"][1]["name"]), pair=0)
    found, _recommended = said(document)
    assert "confounded with the reboot between" in found["sentence"], found["sentence"]
    assert (
        found["basis"].startswith("8 blocks of one boot on each side, ") and "interleaved blocks" not in found["basis"]
    )


def open_load(metrics, on, off, asked=None, used=0.4, done=(1000, 1000), **options):
    """A load whose generator gives 1000 jobs a second, with these further metrics in each arm: numbers, or functions of
    the block.
    """
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
        (open_load(TAIL, [14.0], [9.0], asked=1000, done=(1000, 900)), "on"),
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
