# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes result documents of hosts that never were, with effects that are known exactly.

The placements are those of the collection's own placement code; the rates follow a small model: a worker alone does
``rate``, a worker whose core is shared by two does ``share`` of it, one that shares its CPU does half. So the truth is
known: the cost of sharing is ``1 - share``, the yield of SMT ``2 * share``, and switching SMT off changes the whole
machine's rate by ``1 / (2 * share)``.
"""

from __future__ import annotations

import copy
import datetime
import functools
import math
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
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

START = datetime.datetime(2026, 1, 2, 3, 4, 5)
ORDER = ("single", "same_cpu", "siblings", "cores", "one_per_core", "all_threads")
# Arms in which one thread of each core is online.
ONE_THREAD = ("smt_off", "nosmt", "nosmt_force", "mitigations_auto_nosmt")
GZIP = {"rate": 100.0, "share": 0.625, "unit": "MB/s", "title": "gzip of a fixed stream"}


def moment(seconds):
    return (START + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def machine(sockets=2, cores=2, threads=2):
    """CPU tuples one a core, and CPU tuples one a package, numbered with siblings side by side."""
    count = sockets * cores
    groups = [tuple(range(core * threads, (core + 1) * threads)) for core in range(count)]
    packages = [
        tuple(cpu for group in groups[socket * cores : (socket + 1) * cores] for cpu in group)
        for socket in range(sockets)
    ]
    return groups, packages


def arm(name, title, baseline):
    """An arm of a result."""
    return {"name": name, "title": title, "baseline": baseline, "settings": {}}


def title_of(name):
    """The title of an arm."""
    return catalogue.title(name) or name.replace("_", " ")


def cpulist(cpus):
    return host_cpulist.render(cpus)


def spots(groups, packages, usable, names=ORDER):
    """plan.placements[arm] of a result."""
    placements = placement.Placements(groups, packages, usable)
    found = {name: placements.workers(name) for name in names}
    same = placement.same_as_earlier({name: (workers, None) for name, (workers, _reason) in found.items() if workers})
    return {
        name: {"workers": workers and [cpulist(cpus) for cpus in workers], "same_as": same.get(name), "reason": reason}
        for name, (workers, reason) in found.items()
    }


def worker_rate(cpu, workers, groups, workload):
    """The rate of the worker on ``cpu`` by the model above."""
    on_cpu = sum(1 for worker in workers if worker == [cpu])
    core = next(group for group in groups if cpu in group)
    busy = {other for worker in workers for other in worker if other in core}
    return workload["rate"] / on_cpu * (workload["share"] if len(busy) > 1 else 1.0)


def modelled(groups, workload, _arm, _spot, workers):
    """The rate of each worker by the model above."""
    return [worker_rate(worker[0], workers, groups, workload) for worker in workers]


def nothing_further(_arm, _spot):
    """No metric beside the primary one."""
    return {}


def declared(workload):
    """The metrics of a workload, the primary one first."""
    return copy.deepcopy(workload.get("metrics")) or {
        "throughput": {"unit": workload["unit"], "better": "higher", "aggregate": "sum"}
    }


def policy_result(name="overcommit_strict", without=(), title="strict overcommit", **options):
    """The same with another arm than those of SMT.

    Args:
        name: the arm
        title: its title
        without: placements that were not measured
        options: as for :func:`result`
    """
    document = result(**options)
    names = {"smt_on": "as_found", "smt_off": name}
    document["arms"] = [arm("as_found", "as found", True), arm(name, title, False)]
    document["plan"]["placements"] = {
        names[one]: {spot: about for spot, about in spots.items() if spot not in without}
        for one, spots in document["plan"]["placements"].items()
    }
    document["samples"] = [
        {**one, "arm": names[one["arm"]]} for one in document["samples"] if one["placement"] not in without
    ]
    return document


def result(
    host="web01",
    run="20260102T030405Z",
    workloads=None,
    shape=(2, 2, 2),
    blocks=10,
    noise=0.005,
    drift=0.0,
    seed=1,
    compared=True,
    reason=None,
    names=ORDER,
    arms=None,
    **changes,
):
    """A result document.

    Args:
        host: name in the inventory
        run: name of the run
        workloads: name -> {rate, share, unit, title}; or, instead of rate and share, a ``model`` of each worker's value
            (arm, placement, workers) -> values, for the first metric that is declared in ``metrics``; ``further`` gives
            the others of a sample (arm, placement) -> {metric: value}
        shape: sockets, cores a socket, threads a core
        blocks: how many blocks were measured
        noise: standard deviation of the log of each worker's rate
        drift: change of the log of every rate from the first to the last sample
        seed: of the random numbers
        compared: whether SMT was switched
        reason: why SMT was not switched, where it was not although it was asked for; where cores have one thread the
            usual one
        names: of the placements
        arms: other arms than SMT on and off, the baseline first: name -> what it multiplies each worker's value by, a
            number or one for each workload
        changes: top-level fields to replace
    """
    workloads = {"gzip": GZIP} if workloads is None else workloads
    source = random.Random(seed)
    groups, packages = machine(*shape)
    everything = [cpu for group in groups for cpu in group]
    primaries = [group[0] for group in groups]
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
        order += [(block, item) for item in (items if arms or block % 2 == 0 else reversed(items))]
    samples = []
    for index, (block, (arm_name, name, spot)) in enumerate(order):
        workers = [list(host_cpulist.parse(cpus)) for cpus in plan[arm_name][spot]["workers"]]
        level = drift * index / max(1, len(order) - 1)
        workload = workloads[name]
        model = workload.get("model", functools.partial(modelled, groups, workload))
        factor = (arms or {}).get(arm_name, 1.0)
        factor = factor.get(name, 1.0) if isinstance(factor, dict) else factor
        values = [factor * value * math.exp(level + source.gauss(0, noise)) for value in model(arm_name, spot, workers)]
        metric, primary = next(iter(declared(workload).items()))
        busy = {str(cpu) for worker in workers for cpu in worker}
        samples.append(
            {
                "workload": name,
                "placement": spot,
                "arm": arm_name,
                "block": block,
                "index": index,
                "started": moment(index),
                "ok": True,
                "error": None,
                "wall_seconds": 0.8,
                "metrics": {
                    metric: {
                        "value": AGGREGATES[primary["aggregate"]](values),
                        "unit": primary["unit"],
                        "better": primary["better"],
                    },
                    **{
                        other: {
                            "value": value * math.exp(source.gauss(0, noise)),
                            **{key: declared(workload)[other][key] for key in ("unit", "better")},
                        }
                        for other, value in workload.get("further", nothing_further)(arm_name, spot).items()
                    },
                },
                "workers": [
                    {"cpus": cpulist(worker), "value": value, "wall_seconds": 0.8, "cpu_seconds": 0.79}
                    for worker, value in zip(workers, values)
                ],
                "parameter": None,
                "telemetry": {
                    "cpu_usage": {str(cpu): 1.0 if str(cpu) in busy else 0.02 for cpu in online[arm_name]},
                    "steal": 0.0,
                },
            }
        )
    smt = shape[2] > 1
    reason = reason or (None if smt else "no core of this host has a second thread by the kernel's topology")
    numbering = "adjacent" if smt else "none"
    state = {"control": "on" if smt else "notsupported", "online": everything}
    document = {
        "schema": "threadwise.smt/result",
        "schema_version": 2,
        "run": run,
        "host": host,
        "collection_version": "1.0.0",
        "started": moment(-5),
        "finished": moment(len(order) + 5),
        "collected": moment(len(order) + 9),
        "outcome": "completed",
        "message": None,
        "facts": {
            "supported": smt,
            "control": state["control"],
            "active": smt,
            "sockets": shape[0],
            "cores": len(groups),
            "threads_per_core": {"min": shape[2], "max": shape[2], "online_max": shape[2]},
            "cpus": {
                "present": cpulist(everything),
                "possible": cpulist(everything),
                "online": cpulist(everything),
                "offline": "",
                "isolated": "",
            },
            "sibling_groups": [cpulist(group) for group in groups],
            "primaries": cpulist(primaries),
            "secondaries": cpulist(cpu for cpu in everything if cpu not in primaries),
            "nodes": {str(number): cpulist(cpus) for number, cpus in enumerate(packages)},
            "packages": [cpulist(cpus) for cpus in packages],
            "numbering": numbering,
            "source": "sysfs",
            "complete": True,
            "measured": None,
            "boot": {"running": [], "configured": [], "loader": "grub_debian", "reboot_required": False},
            "hypervisor": None,
            "vulnerabilities": {
                "mds": (
                    {"status": "Mitigation: Clear CPU buffers; SMT vulnerable", "smt": "vulnerable"}
                    if smt
                    else {"status": "Mitigation: Clear CPU buffers; SMT disabled", "smt": "disabled"}
                ),
                "meltdown": {"status": "Mitigation: PTI", "smt": None},
            },
            "methods": {
                "runtime": {"chosen": "smt_control", "possible": ["smt_control", "cpu_online"], "impossible": {}},
                "boot": {"chosen": "grub_debian", "possible": ["grub_debian"], "impossible": {}},
            },
            "hardware_class": f"x86_64-{len(packages)}s{len(groups)}c{len(everything)}t-{numbering}-0f3a9c1e",
            "pending_change": None,
            "pending_rollback": None,
            "problems": [],
        },
        "environment": {
            "kernel": "6.1.0-38-cloud-amd64",
            "architecture": "x86_64",
            "python": "3.11.2",
            "cmdline": "root=/dev/vda1 ro",
            "governor": "performance",
            "hypervisor": None,
            "load_average": 0.12,
            "cpu_model": "Example CPU 1234",
            "microcode": "0x1",
            "nominal_mhz": 2500.0,
        },
        "arms": [arm(name, title_of(name), name == next(iter(online))) for name in online],
        "arms_left_out": (
            []
            if compared or reason is None
            else [
                {"name": name, "title": title, "reason": reason}
                for name, title in (("smt_on", "SMT on"), ("smt_off", "SMT off"))
            ]
        ),
        "plan": {
            "seconds_budget": 170,
            "sample_seconds": 0.8,
            "settle_seconds": 1,
            "blocks": None,
            "blocks_done": blocks,
            "workloads": [
                {
                    "name": name,
                    "title": workload["title"],
                    "primary": next(iter(declared(workload))),
                    "metrics": declared(workload),
                    "parameter": None,
                    "argv": ["gzip", "-6", "-c"],
                    "package": "gzip",
                }
                for name, workload in workloads.items()
            ],
            "placements": plan,
        },
        "samples": samples,
        "observations": [],
        "fetched": [],
        "skipped": [],
        "events": [{"at": moment(-4), "event": "calibrated", "detail": "gzip: 40 MB a worker"}],
        "restored": {"ok": True, "before": state, "after": dict(state), "differences": []},
    }
    return {**document, **changes}


# Fields that hold no free text: what is wrong in them the border refuses.
NOT_FREE = frozenset(
    {
        "event",
        "schema",
        "run",
        "host",
        "started",
        "finished",
        "collected",
        "at",
        "outcome",
        "workload",
        "placement",
        "arm",
        "name",
        "primary",
        "metrics",
        "better",
        "aggregate",
        "cpus",
        "cpu_usage",
        "core_usage",
        "frequency",
        "online",
        "same_as",
        "placements",
        "sibling_groups",
        "packages",
        "primaries",
        "secondaries",
        "nodes",
        "numbering",
        "source",
        "hardware_class",
        "methods",
        "loader",
        "arms",
        "arms_left_out",
        "smt",
    }
)


def accepted(document):
    """A document as the controller has it behind the border."""
    if isinstance(document, host_result.HostResult):
        return document
    return results.accept(copy.deepcopy(document), document["host"])


def analysed(document, *settings, **options):
    """A document with the figures that follow from it."""
    return host_analysis.HostAnalysis(accepted(document), *settings, **options)


def compared(document, *settings, **options):
    """The comparisons of a document."""
    return analysed(document, *settings, **options).comparisons


def summarised(document, file="web01.json", licence=None, **settings):
    """What results.json says of a document."""
    return build.summarise(build.Settings(**settings).analysed(accepted(document)), file, licence)


def spoilt(value, attack):
    """The same with every text that the border leaves free replaced by an attack."""
    if isinstance(value, dict):
        return {key: item if key in NOT_FREE else spoilt(item, attack) for key, item in value.items()}
    if isinstance(value, list):
        return [spoilt(item, attack) for item in value]
    return attack if isinstance(value, str) else value


def hostile(attack, host="evil", **options):
    """A result whose every free text is an attack; options as for :func:`result`."""
    document = spoilt(
        result(
            host=f"{host}{attack}", workloads={"own": {**GZIP, "title": attack, "unit": attack}}, blocks=5, **options
        ),
        attack,
    )
    document["outcome"] = "failed"
    document["facts"].update(control=attack[:100], hypervisor=attack[:100])
    document["arms_left_out"] = [{"name": "overcommit_strict", "title": attack[:255] or "x", "reason": attack}]
    for one in document["arms"]:
        one["title"] = attack[:255] or "x"
    document["samples"][0].update(ok=False, metrics={}, error=attack)
    for sample in document["samples"][1:]:
        sample["metrics"]["throughput"]["unit"] = attack
    document["plan"]["workloads"][0]["metrics"]["throughput"]["unit"] = attack
    for sample in document["samples"][1:3]:
        sample["telemetry"]["perf"] = {"reason": attack}
    document["skipped"] = [{"workload": "own", "placement": "same_cpu", "arm": "smt_on", "reason": attack}]
    document["restored"] = {
        "ok": False,
        "before": {"control": attack, "online": [0]},
        "after": None,
        "differences": [attack],
    }
    return document


def nothing_known():
    """The facts of a host that tells nothing of its CPUs."""
    with tempfile.TemporaryDirectory() as empty:
        return smt_facts.gather(host_files.HostFs(empty))
