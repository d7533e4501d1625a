# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes result documents of hosts that never were, with effects that are known exactly."""

import copy
import datetime
import functools
import json
import math
import pathlib
import random
import tempfile

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist as host_cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import placement
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import order as block_order
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.metrics import AGGREGATES
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import host_result, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import host_analysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison, Side
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary

START = datetime.datetime(2026, 1, 2, 3, 4, 5)
ORDER = ("single", "same_cpu", "siblings", "cores", "one_per_core", "all_threads")
# Arms in which one thread of each core is online.
ONE_THREAD = ("smt_off", "nosmt", "nosmt_force", "mitigations_auto_nosmt")
GZIP = {"rate": 100.0, "share": 0.625, "unit": "MB/s", "title": "gzip of a fixed stream"}
EMPTY = pathlib.Path(__file__).with_name("result.json").read_text(encoding="utf-8")
# Fields that hold no free text: what is wrong in them the border refuses.
_NOT_FREE = """event schema run host started finished collected at outcome workload placement arm name primary metrics
    better aggregate cpus cpu_usage core_usage frequency online same_as placements sibling_groups packages primaries
    secondaries nodes numbering source hardware_class methods loader arms arms_left_out smt"""
NOT_FREE = frozenset(_NOT_FREE.split())
cpulist = host_cpulist.render


def moment(seconds):
    return (START + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def machine(sockets=2, cores=2, threads=2):
    """CPU tuples one a core, and CPU tuples one a package, numbered with siblings side by side."""
    groups = [tuple(range(first, first + threads)) for first in range(0, sockets * cores * threads, threads)]
    each = cores * threads
    return groups, [tuple(range(first, first + each)) for first in range(0, sockets * each, each)]


def arm(name, title, baseline):
    """An arm of a result."""
    return {"name": name, "title": title, "baseline": baseline, "settings": {}}


def title_of(name):
    """The title of an arm."""
    return catalogue.title(name) or name.replace("_", " ")


def spots(groups, packages, usable, names=ORDER):
    """plan.placements[arm] of a result."""
    placements = placement.Placements(groups, packages, usable)
    found = {name: placements.workers(name) for name in names}
    same = placement.same_as_earlier({name: (workers, None) for name, (workers, _reason) in found.items() if workers})
    return {
        name: {"workers": workers and [cpulist(cpus) for cpus in workers], "same_as": same.get(name), "reason": reason}
        for name, (workers, reason) in found.items()
    }


def modelled(groups, workload, _arm, _spot, workers):
    """The rate of each worker by the share of two threads of a core, and of two workers of a CPU."""

    def rate(cpu):
        core = next(group for group in groups if cpu in group)
        busy = {other for worker in workers for other in worker if other in core}
        return workload["rate"] / workers.count([cpu]) * (workload["share"] if len(busy) > 1 else 1.0)

    return [rate(worker[0]) for worker in workers]


def declared(workload):
    """The metrics of a workload, the primary one first."""
    usual = {"unit": workload.get("unit"), "better": "higher", "aggregate": "sum"}
    return copy.deepcopy(workload.get("metrics")) or {"throughput": usual}


def policy_result(name="overcommit_strict", without=(), title="strict overcommit", **options):
    """The same with another arm than those of SMT, and without some placements."""
    document = result(**options)
    names = {"smt_on": "as_found", "smt_off": name}
    document["arms"] = [arm("as_found", "as found", True), arm(name, title, False)]
    document["plan"]["placements"] = {
        names[one]: {spot: about for spot, about in spots.items() if spot not in without}
        for one, spots in document["plan"]["placements"].items()
    }
    kept = [one for one in document["samples"] if one["placement"] not in without]
    return {**document, "samples": [{**one, "arm": names[one["arm"]]} for one in kept]}


def result(
    host="web01", run="20260102T030405Z", workloads=None, shape=(2, 2, 2), blocks=10, noise=0.005, drift=0.0,
    seed=1, compared=True, reason=None, names=ORDER, arms=None, **changes,
):  # fmt: skip
    """A result document, with top-level fields replaced by ``changes``.

    A workload is {rate, share, unit, title}; or, instead of rate and share, it has a ``model`` of each worker's value,
    (arm, placement, workers) -> values, for the first of its ``metrics``, and ``further`` gives the others of a sample,
    (arm, placement) -> {metric: value}. ``shape`` is sockets, cores a socket, threads a core; ``noise`` the standard
    deviation of the log of each rate and ``drift`` its change from the first to the last sample. SMT was not
    ``compared`` for a ``reason``. ``arms`` are others than SMT on and off, the baseline first: name -> what it
    multiplies each worker's value by, a number or one for each workload.
    """
    workloads = {"gzip": GZIP} if workloads is None else workloads
    source = random.Random(seed)
    groups, packages = machine(*shape)
    everything, primaries = [cpu for group in groups for cpu in group], [group[0] for group in groups]
    online = {"smt_on": everything, "smt_off": primaries} if compared else {"as_found": everything}
    if arms:
        online = {name: primaries if name in ONE_THREAD else everything for name in arms}
    plan = {name: spots(groups, packages, usable, names) for name, usable in online.items()}
    order = []
    for block in range(blocks):
        items = [
            (arm_name, name, spot)
            for arm_name in (block_order.of_block(list(online), block) if arms else online)
            for name in workloads
            for spot in names
            if plan[arm_name][spot]["workers"] and not plan[arm_name][spot]["same_as"]
        ]
        order += [(block, *item) for item in (items if arms or block % 2 == 0 else reversed(items))]
    samples = []
    for index, (block, arm_name, name, spot) in enumerate(order):
        workers = [list(host_cpulist.parse(cpus)) for cpus in plan[arm_name][spot]["workers"]]
        level, workload = drift * index / max(1, len(order) - 1), workloads[name]
        factor = (arms or {}).get(arm_name, 1.0)
        factor = factor.get(name, 1.0) if isinstance(factor, dict) else factor
        values = workload.get("model", functools.partial(modelled, groups, workload))(arm_name, spot, workers)
        values = [factor * value * math.exp(level + source.gauss(0, noise)) for value in values]
        metrics = declared(workload)
        metric, primary = next(iter(metrics.items()))
        found = {metric: AGGREGATES[primary["aggregate"]](values)}
        for other, value in workload.get("further", lambda *_given: {})(arm_name, spot).items():
            found[other] = value * math.exp(source.gauss(0, noise))
        busy = {cpu for worker in workers for cpu in worker}
        usage = {str(cpu): 1.0 if cpu in busy else 0.02 for cpu in online[arm_name]}
        times = {"wall_seconds": 0.8, "cpu_seconds": 0.79}
        shown = {
            one: {"value": value, "unit": metrics[one]["unit"], "better": metrics[one]["better"]}
            for one, value in found.items()
        }
        samples.append({
            "workload": name, "placement": spot, "arm": arm_name, "block": block, "index": index,
            "started": moment(index), "ok": True, "error": None, "wall_seconds": 0.8, "metrics": shown,
            "workers": [{"cpus": cpulist(one), "value": value, **times} for one, value in zip(workers, values)],
            "parameter": None, "telemetry": {"cpu_usage": usage, "steal": 0.0},
        })  # fmt: skip
    document, smt = json.loads(EMPTY), shape[2] > 1
    reason = reason or (None if smt else "no core of this host has a second thread by the kernel's topology")
    numbering = "adjacent" if smt else "none"
    state = {"control": "on" if smt else "notsupported", "online": everything}
    facts = document["facts"]
    facts.update(supported=smt, control=state["control"], active=smt, sockets=shape[0], cores=len(groups))
    facts["threads_per_core"] = dict.fromkeys(("min", "max", "online_max"), shape[2])
    facts["cpus"].update(dict.fromkeys(("present", "possible", "online"), cpulist(everything)))
    facts.update(sibling_groups=[cpulist(group) for group in groups], packages=[cpulist(cpus) for cpus in packages])
    facts.update(primaries=cpulist(primaries), secondaries=cpulist(set(everything) - set(primaries)))
    facts.update(nodes={str(one): cpulist(cpus) for one, cpus in enumerate(packages)}, numbering=numbering)
    if not smt:
        facts["vulnerabilities"]["mds"] = {"status": "Mitigation: Clear CPU buffers; SMT disabled", "smt": "disabled"}
    sizes = f"{len(packages)}s{len(groups)}c{len(everything)}t"
    facts["hardware_class"] = f"x86_64-{sizes}-{numbering}-0f3a9c1e"
    document["arms"] = [arm(name, title_of(name), name == next(iter(online))) for name in online]
    if not compared and reason is not None:
        left_out = (("smt_on", "SMT on"), ("smt_off", "SMT off"))
        document["arms_left_out"] = [{"name": name, "title": title, "reason": reason} for name, title in left_out]
    run_with = {"argv": ["gzip", "-6", "-c"], "package": "gzip"}
    planned = [
        {"name": name, "title": one["title"], "primary": next(iter(declared(one))), "metrics": declared(one)}
        | {"parameter": None, **run_with}
        for name, one in workloads.items()
    ]
    document["plan"].update(blocks_done=blocks, workloads=planned, placements=plan)
    document["events"][0]["at"] = moment(-4)
    document["restored"].update(before=state, after=dict(state))
    times = {"started": moment(-5), "finished": moment(len(order) + 5), "collected": moment(len(order) + 9)}
    return {**document, "run": run, "host": host, **times, "samples": samples, **changes}


def accepted(document):
    """A document as the controller has it behind the border."""
    is_accepted = isinstance(document, host_result.HostResult)
    return document if is_accepted else results.accept(copy.deepcopy(document), document["host"])


def analysed(document, *settings, **options):
    """A document with the figures that follow from it."""
    return host_analysis.HostAnalysis(accepted(document), *settings, **options)


def compared(document, *settings, **options):
    """The comparisons that a document allows, as results.json has them."""
    return [one.described() for one in analysed(document, *settings, **options).comparisons]


def of_a_host(judged, values):
    """What was found of two sides, with the value of each, as the comparison of a host's two arms."""
    sides = {name: Side(arm, arm, "all_threads") for name, arm in (("baseline", "smt_on"), ("candidate", "smt_off"))}
    about = {"workload": "work", "title": "work", "metric": "rate", "unit": "1/s", "aggregate": "sum", "primary": True}
    place = {"kind": "arm", "effect": "smt_off", "placement": "all_threads", "basis": "blocks", "confounded": False}
    numbers = dict(zip(("baseline_value", "candidate_value"), values), dropped_blocks=0, mean_change=0.0)
    return Comparison(**vars(judged), **sides, **about, **place, **numbers)


def summary(document, file="web01.json", licence=None, **settings):
    """What a report is made of."""
    return Summary(build.Settings(**settings).analysed(accepted(document)), file, licence)


def summarised(document, *given, **settings):
    """What results.json says of a document."""
    return summary(document, *given, **settings).described()


def spoilt(value, attack):
    """The same with every text that the border leaves free replaced by an attack."""
    if isinstance(value, dict):
        return {key: item if key in NOT_FREE else spoilt(item, attack) for key, item in value.items()}
    if isinstance(value, list):
        return [spoilt(item, attack) for item in value]
    return attack if isinstance(value, str) else value


def hostile(attack, host="evil", **options):
    """A result whose every free text is an attack; options as for :func:`result`."""
    own = {**GZIP, "title": attack, "unit": attack}
    document = spoilt(result(host=f"{host}{attack}", workloads={"own": own}, blocks=5, **options), attack)
    title = attack[:255] or "x"
    document["outcome"] = "failed"
    document["facts"].update(control=attack[:100], hypervisor=attack[:100])
    document["arms_left_out"] = [{"name": "overcommit_strict", "title": title, "reason": attack}]
    for one in document["arms"]:
        one["title"] = title
    document["samples"][0].update(ok=False, metrics={}, error=attack)
    for sample in document["samples"][1:]:
        sample["metrics"]["throughput"]["unit"] = attack
    document["plan"]["workloads"][0]["metrics"]["throughput"]["unit"] = attack
    for sample in document["samples"][1:3]:
        sample["telemetry"]["perf"] = {"reason": attack}
    document["skipped"] = [{"workload": "own", "placement": "same_cpu", "arm": "smt_on", "reason": attack}]
    before = {"control": attack, "online": [0]}
    document["restored"] = {"ok": False, "before": before, "after": None, "differences": [attack]}
    return document


def nothing_known():
    """The facts of a host that tells nothing of its CPUs."""
    with tempfile.TemporaryDirectory() as empty:
        return smt_facts.gather(host_files.HostFs(empty))
