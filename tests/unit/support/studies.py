# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of hosts as the published studies would have left them."""

import result_maker

# HP World 2004, session 3798: average time of a stream in ms with 1..12 streams on 4 CPUs, (Hyper-Threading on, off).
_HP = """
none 4685 4686 4685 4690 6561 7862 8647 9336 9801 10561 11252 12186
none 4684 4684 4685 4709 5697 6132 7397 9312 9833 10716 11918 14025
inner 9357 9362 9358 9362 16234 15093 16741 17975 18689 19284 21481 23383
inner 9363 9365 9363 9398 11070 12188 14568 18587 19571 20968 23853 27890
outer 17241 17225 17243 24127 22123 26422 28906 30993 32239 35280 37648 40542
outer 17169 17163 17467 17303 20600 22396 26626 34305 35939 38625 44695 51671
INNER 15365 16386 16405 16498 19370 19031 20199 20389 22002 23587 25051 26521
INNER 15387 16172 16179 16376 19271 21293 25256 32615 34129 36634 41777 48869
OUTER 25719 26647 28268 28248 43312 66050 97666 128282 134646 133578 157133 166529
OUTER 26922 27303 27263 28386 32998 36426 43635 56479 59248 63651 72568 84976
"""
_ROWS = [line.split() for line in _HP.split("\n")[1:-1]]
_TIMES = [tuple(map(int, times)) for _name, *times in _ROWS]
HP = {name: (on, off) for (name, *_times), on, off in zip(_ROWS[::2], _TIMES[::2], _TIMES[1::2])}
STREAM_TIME = {"stream_time": {"unit": "ms", "better": "lower", "aggregate": "mean"}}


def _result(workload, title, metrics, model, further=None, blocks=6, noise=0.002, **options):
    """A result of one workload of a study; ``model(arm, placement, workers)`` is what each worker has."""
    one = {"title": title, "metrics": metrics, "model": lambda arm, spot, on: [model(arm, spot, len(on))] * len(on)}
    workloads = {workload: {**one, "further": further} if further else one}
    return result_maker.result(workloads=workloads, blocks=blocks, noise=noise, **options)


def _with(document, metrics, parts):
    """The same with each sample in parts: ``parts(sample)`` gives parameter, values, and further fields, of each."""
    samples = []
    for sample in document["samples"]:
        for number, values, more in parts(sample):
            kinds = {name: {"unit": one["unit"], "better": one["better"]} for name, one in metrics.items()}
            found = {name: {"value": value, **kinds[name]} for name, value in values.items()}
            samples.append({**sample, "parameter": number, "metrics": found, **more})
    return {**document, "samples": samples}


def hp(numbers=range(1, 13), blocks=6, tests=tuple(HP), **options):
    """HP's five tests with these numbers of streams, on a machine of four cores."""

    def of_test(name):
        times = dict(zip(("smt_on", "smt_off"), HP[name]))
        streams = {"model": lambda arm, _spot, placed: [times[arm][len(placed) - 1]] * len(placed)}
        return {"title": f"array, {name}", "metrics": STREAM_TIME, **streams}

    # A name in results has no capital letters that tell it from another one in file systems without them.
    workloads = {f"{name.lower()}_write" if name.isupper() else name: of_test(name) for name in tests}
    names = [f"free_{count}" for count in numbers]
    return result_maker.result(workloads=workloads, shape=(1, 4, 2), blocks=blocks, noise=0.002, names=names, **options)


# Pythian 2014, m3.xlarge: MB/s of each of two streams, by the CPUs that they were pinned to, and of one alone.
PYTHIAN = {"single": 119.0, "cpus_0_1": 78.0, "cpus_0_2": 119.0, "same_cpu": 59.5}
# Of 20 runs of two streams on any of four CPUs, the rates of all 40: MB/s -> how often.
PYTHIAN_FREE = {113: 1, 114: 3, 115: 4, 116: 6, 117: 10, 118: 10, 119: 6}
RATES = {"throughput": {"unit": "MB/s", "better": "higher", "aggregate": "sum"}}
STREAM = ("gzip", "gzip of a fixed stream", RATES)


def pythian_free():
    """Two streams on any of the four CPUs of a host that shows them as cores."""
    taken = iter([float(rate) for rate, count in PYTHIAN_FREE.items() for _time in range(count)])
    gzip = {"title": STREAM[1], "metrics": RATES, "model": lambda _arm, _spot, placed: [next(taken) for _one in placed]}
    how = {"shape": (1, 4, 1), "blocks": 20, "noise": 0.0, "compared": False, "names": ["free_2"]}
    return result_maker.result(workloads={"gzip": gzip}, **how)


def pythian_pinned(shape=(1, 4, 1)):
    """The three pinned runs and one stream alone, six blocks of each."""
    names = ["single", "same_cpu", "cpus_0_2", "cpus_0_1"]
    return _result(*STREAM, lambda _arm, spot, _count: PYTHIAN[spot], shape=shape, compared=False, names=names)


# Measuring Intel Hyper-Thread overhead, 2016: four cores do 4 units a second, their eight threads 5, each unit then
# taking 1.6 s instead of 1 s.
UNITS = {
    "throughput": {"unit": "units/s", "better": "higher", "aggregate": "sum"},
    "latency": {"unit": "s", "better": "lower", "aggregate": "max"},
}
ALL = {"shape": (1, 4, 2), "names": ["all_threads"]}


def overhead(blocks=6):
    """A machine of four cores, all threads busy with SMT on and off."""
    done, taken = {"smt_on": 5, "smt_off": 4}, {"smt_on": 1.6, "smt_off": 1.0}
    return _result(
        "units",
        "compute-bound tasks",
        UNITS,
        lambda arm, _spot, count: done[arm] / count,
        lambda arm, _spot: {"latency": taken[arm]},
        blocks,
        **ALL,
    )


# HP World 2004, SAP SD on a DL560: users -> response time in s, None where it failed.
SAP = {"smt_on": {550: 0.3, 650: 1.99}, "smt_off": {550: 1.99, 650: None}}


def sap(blocks=6):
    """Two numbers of users on all threads, with Hyper-Threading on and off; response times scatter by 0.2 %."""
    metrics = {
        "throughput": {"unit": "users", "better": "higher", "aggregate": "sum"},
        "latency_mean": {"unit": "s", "better": "lower", "aggregate": "max"},
    }
    document = _result("sap", "SAP SD", metrics, lambda *_given: 1.0, blocks=blocks, **ALL)
    users = {"name": "users", "unit": "users", "values": [550, 650], "per_worker": False}
    document["plan"]["workloads"][0].update(parameter=users, response_limit=2.0)
    failed = {"ok": False, "error": "the response time was not reached", "workers": []}

    def parts(sample):
        for number, published in SAP[sample["arm"]].items():
            time = published and published * sample["workers"][0]["value"]
            yield number, {"throughput": number, "latency_mean": time} if time else {}, {} if time else failed

    return _with(document, metrics, parts)


# Linux: CPU, core, HyperThread, 2014: CPU time of both threads, and average wall time, in ms. Siblings are 0 and 1
# here.
THREADS = {"single": (10697, 10716), "siblings": (32589, 16324), "cores": (21461, 10750), "same_cpu": (21447, 21475)}
TIMES = {
    "wall_time": {"unit": "ms", "better": "lower", "aggregate": "mean"},
    "cpu_time": {"unit": "ms", "better": "lower", "aggregate": "mean_per_job"},
}
# The same study, one thread at nice -20 beside busy threads on both siblings, and with the sibling offline: CPU time
# and wall time in ms.
BUSY = {"smt_on": (16700, 16902), "smt_off": (10735, 11122)}
LOOP = ("busy loop", TIMES, lambda _arm, spot, _count: THREADS[spot][1])


def threads_2014(blocks=6):
    """One thread alone, and two on siblings, on two cores and on one CPU, on a machine of two cores."""
    times = {spot: {"cpu_time": of_both / (1 if spot == "single" else 2)} for spot, (of_both, _wall) in THREADS.items()}
    how = {"shape": (1, 2, 2), "compared": False, "names": list(THREADS)}
    return _result("loop", *LOOP, lambda _arm, spot: times[spot], blocks, **how)


def busy_2014(blocks=6):
    """One worker alone beside busy threads, with its sibling online and offline."""
    return _result(
        "loop",
        "busy loop beside others",
        TIMES,
        lambda arm, _spot, _count: BUSY[arm][1],
        lambda arm, _spot: {"cpu_time": BUSY[arm][0]},
        blocks,
        shape=(1, 2, 2),
        names=["single"],
    )


def both_2014(blocks=6):
    """Both in one evaluation with SMT on and off: a loop by itself in each placement, and one beside busy threads."""
    beside = busy_2014(blocks)
    document = _result("itself", *LOOP, blocks=blocks, shape=(1, 2, 2), names=list(THREADS))
    document["plan"]["workloads"] += beside["plan"]["workloads"]
    document["samples"] += beside["samples"]
    return document


# Arm's sketch of headroom: 6 requests a second at 30 % usage, and 10 with every thread busy.
ARM = {0.3: (6.0, 0.3), 1.0: (10.0, 1.0)}


def arm(blocks=6):
    """Two loads on all threads of a core with two of them."""
    how = {"blocks": blocks, "shape": (1, 1, 2), "compared": False, "names": ["all_threads"]}
    document = _result("requests", "requests", RATES, lambda *_given: 1.0, **how)
    loads = {"name": "load", "unit": "of each CPU", "values": list(ARM), "per_worker": False}
    document["plan"]["workloads"][0].update(parameter=loads)

    def parts(sample):
        for worker, (load, (rate, usage)) in zip(sample["workers"], ARM.items()):
            telemetry = {**sample["telemetry"], "cpu_usage": {"0": usage, "1": usage}}
            yield load, {"throughput": rate * worker["value"]}, {"telemetry": telemetry}

    return _with(document, RATES, parts)
