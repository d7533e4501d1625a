# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of hosts as the published studies would have left them: their raw figures,
in placements that this collection's own code makes.

Sources: docs/measures.md. Each published figure becomes blocks with a small scatter; a figure of each single run stays
as it is.
"""

from __future__ import annotations

import result_maker

# HP World 2004, session 3798: average time of a stream in ms with 1..12 streams on 4 CPUs, (Hyper-Threading on, off).
HP = {
    "none": (
        (4685, 4686, 4685, 4690, 6561, 7862, 8647, 9336, 9801, 10561, 11252, 12186),
        (4684, 4684, 4685, 4709, 5697, 6132, 7397, 9312, 9833, 10716, 11918, 14025),
    ),
    "inner": (
        (9357, 9362, 9358, 9362, 16234, 15093, 16741, 17975, 18689, 19284, 21481, 23383),
        (9363, 9365, 9363, 9398, 11070, 12188, 14568, 18587, 19571, 20968, 23853, 27890),
    ),
    "outer": (
        (17241, 17225, 17243, 24127, 22123, 26422, 28906, 30993, 32239, 35280, 37648, 40542),
        (17169, 17163, 17467, 17303, 20600, 22396, 26626, 34305, 35939, 38625, 44695, 51671),
    ),
    "INNER": (
        (15365, 16386, 16405, 16498, 19370, 19031, 20199, 20389, 22002, 23587, 25051, 26521),
        (15387, 16172, 16179, 16376, 19271, 21293, 25256, 32615, 34129, 36634, 41777, 48869),
    ),
    "OUTER": (
        (25719, 26647, 28268, 28248, 43312, 66050, 97666, 128282, 134646, 133578, 157133, 166529),
        (26922, 27303, 27263, 28386, 32998, 36426, 43635, 56479, 59248, 63651, 72568, 84976),
    ),
}
STREAM_TIME = {"stream_time": {"unit": "ms", "better": "lower", "aggregate": "mean"}}


def hp(numbers=range(1, 13), blocks=6, tests=tuple(HP), **options):
    """HP's five tests with these numbers of streams, on a machine of four cores."""

    def of_test(name):
        times = dict(zip(("smt_on", "smt_off"), HP[name]))
        return {
            "title": f"array, {name}",
            "metrics": STREAM_TIME,
            "model": lambda arm, _spot, placed: [times[arm][len(placed) - 1]] * len(placed),
        }

    # A name in results has no capital letters that tell it from another one in file systems without them.
    workloads = {f"{name.lower()}_write" if name.isupper() else name: of_test(name) for name in tests}
    names = [f"free_{count}" for count in numbers]
    return result_maker.result(workloads=workloads, shape=(1, 4, 2), blocks=blocks, noise=0.002, names=names, **options)


# Pythian 2014, m3.xlarge: MB/s of each of two streams, by the CPUs that they were pinned to, and of one alone.
PYTHIAN = {"single": 119.0, "cpus_0_1": 78.0, "cpus_0_2": 119.0, "same_cpu": 59.5}
# Of 20 runs of two streams on any of four CPUs, the rates of all 40: MB/s -> how often.
PYTHIAN_FREE = {113: 1, 114: 3, 115: 4, 116: 6, 117: 10, 118: 10, 119: 6}
RATES = {"throughput": {"unit": "MB/s", "better": "higher", "aggregate": "sum"}}


def pythian_free():
    """Two streams on any of the four CPUs of a host that shows them as cores."""
    rates = [float(rate) for rate, count in PYTHIAN_FREE.items() for _time in range(count)]
    taken = iter(rates)
    gzip = {
        "title": "gzip of a fixed stream",
        "metrics": RATES,
        "model": lambda _arm, _spot, placed: [next(taken) for _worker in placed],
    }
    return result_maker.result(
        workloads={"gzip": gzip}, shape=(1, 4, 1), blocks=20, noise=0.0, compared=False, names=["free_2"]
    )


def pythian_pinned(shape=(1, 4, 1)):
    """The three pinned runs and one stream alone, six blocks of each."""
    gzip = {
        "title": "gzip of a fixed stream",
        "metrics": RATES,
        "model": lambda _arm, spot, placed: [PYTHIAN[spot]] * len(placed),
    }
    names = ["single", "same_cpu", "cpus_0_2", "cpus_0_1"]
    return result_maker.result(
        workloads={"gzip": gzip}, shape=shape, blocks=6, noise=0.002, compared=False, names=names
    )


# Measuring Intel Hyper-Thread overhead, 2016: four cores do 4 units a second, their eight threads 5, each unit then
# taking 1.6 s instead of 1 s.
UNITS = {
    "throughput": {"unit": "units/s", "better": "higher", "aggregate": "sum"},
    "latency": {"unit": "s", "better": "lower", "aggregate": "max"},
}


def overhead(blocks=6):
    """A machine of four cores, all threads busy with SMT on and off."""
    units = {
        "title": "compute-bound tasks",
        "metrics": UNITS,
        "model": lambda arm, _spot, placed: [(5 if arm == "smt_on" else 4) / len(placed)] * len(placed),
        "further": lambda arm, _spot: {"latency": 1.6 if arm == "smt_on" else 1.0},
    }
    return result_maker.result(
        workloads={"units": units}, shape=(1, 4, 2), blocks=blocks, noise=0.002, names=["all_threads"]
    )


# HP World 2004, SAP SD on a DL560: users -> response time in s, None where it failed.
SAP = {"smt_on": {550: 0.3, 650: 1.99}, "smt_off": {550: 1.99, 650: None}}


def sap(blocks=6):
    """Two numbers of users on all threads, with Hyper-Threading on and off; response times scatter by 0.2 %."""
    metrics = {
        "throughput": {"unit": "users", "better": "higher", "aggregate": "sum"},
        "latency_mean": {"unit": "s", "better": "lower", "aggregate": "max"},
    }
    users = {"title": "SAP SD", "metrics": metrics, "model": lambda _arm, _spot, placed: [1.0] * len(placed)}
    document = result_maker.result(
        workloads={"sap": users}, shape=(1, 4, 2), blocks=blocks, noise=0.002, names=["all_threads"]
    )
    document["plan"]["workloads"][0].update(
        parameter={"name": "users", "unit": "users", "values": [550, 650], "per_worker": False}, response_limit=2.0
    )
    samples = []
    for sample in document["samples"]:
        for number, published in SAP[sample["arm"]].items():
            failed = {"ok": False, "error": "the response time was not reached", "metrics": {}, "workers": []}
            time = published and published * sample["workers"][0]["value"]
            served = {
                "throughput": {"value": number, "unit": "users", "better": "higher"},
                "latency_mean": {"value": time, "unit": "s", "better": "lower"},
            }
            samples.append({**sample, "parameter": number, **(failed if time is None else {"metrics": served})})
    return {**document, "samples": samples}


# Linux: CPU, core, HyperThread, 2014: CPU time of both threads, and average wall time, in ms. Siblings are 0 and 1
# here.
THREADS = {"single": (10697, 10716), "siblings": (32589, 16324), "cores": (21461, 10750), "same_cpu": (21447, 21475)}
TIMES = {
    "wall_time": {"unit": "ms", "better": "lower", "aggregate": "mean"},
    "cpu_time": {"unit": "ms", "better": "lower", "aggregate": "mean_per_job"},
}


def threads_2014(blocks=6):
    """One thread alone, and two on siblings, on two cores and on one CPU, on a machine of two cores."""
    loop = {
        "title": "busy loop",
        "metrics": TIMES,
        "model": lambda _arm, spot, placed: [THREADS[spot][1]] * len(placed),
        "further": lambda _arm, spot: {"cpu_time": THREADS[spot][0] / (1 if spot == "single" else 2)},
    }
    return result_maker.result(
        workloads={"loop": loop}, shape=(1, 2, 2), blocks=blocks, noise=0.002, compared=False, names=list(THREADS)
    )


# The same study, one thread at nice -20 beside busy threads on both siblings, and with the sibling offline: CPU time
# and wall time in ms.
BUSY = {"smt_on": (16700, 16902), "smt_off": (10735, 11122)}


def busy_2014(blocks=6):
    """One worker alone beside busy threads, with its sibling online and offline."""
    loop = {
        "title": "busy loop beside others",
        "metrics": TIMES,
        "model": lambda arm, _spot, placed: [BUSY[arm][1]] * len(placed),
        "further": lambda arm, _spot: {"cpu_time": BUSY[arm][0]},
    }
    return result_maker.result(workloads={"loop": loop}, shape=(1, 2, 2), blocks=blocks, noise=0.002, names=["single"])


def both_2014(blocks=6):
    """Both in one evaluation with SMT on and off: a loop by itself in each placement, and one beside busy threads."""
    beside = busy_2014(blocks)
    loop = {
        "title": "busy loop",
        "metrics": TIMES,
        "model": lambda _arm, spot, placed: [THREADS[spot][1]] * len(placed),
    }
    document = result_maker.result(
        workloads={"itself": loop}, shape=(1, 2, 2), blocks=blocks, noise=0.002, names=list(THREADS)
    )
    document["plan"]["workloads"] += beside["plan"]["workloads"]
    document["samples"] += beside["samples"]
    return document


# Arm's sketch of headroom: 6 requests a second at 30 % usage, and 10 with every thread busy.
ARM = {0.3: (6.0, 0.3), 1.0: (10.0, 1.0)}


def arm(blocks=6):
    """Two loads on all threads of a core with two of them."""
    requests = {"title": "requests", "metrics": RATES, "model": lambda _arm, _spot, placed: [1.0] * len(placed)}
    document = result_maker.result(
        workloads={"requests": requests},
        shape=(1, 1, 2),
        blocks=blocks,
        noise=0.002,
        compared=False,
        names=["all_threads"],
    )
    document["plan"]["workloads"][0].update(
        parameter={"name": "load", "unit": "of each CPU", "values": list(ARM), "per_worker": False}
    )
    samples = []
    for sample in document["samples"]:
        for worker, (load, (rate, usage)) in zip(sample["workers"], ARM.items()):
            value = {"throughput": {"value": rate * worker["value"], "unit": "MB/s", "better": "higher"}}
            telemetry = {**sample["telemetry"], "cpu_usage": {"0": usage, "1": usage}}
            samples.append({**sample, "parameter": load, "metrics": value, "telemetry": telemetry})
    return {**document, "samples": samples}
