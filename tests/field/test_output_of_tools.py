# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that other programs read wrong in what tools print, each under its source's name; forms of more tools; and
verdicts from what such tools print of machines whose truth is known. What cannot be known is refused.
"""

import math
import random

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import custom, metrics
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import WorkloadError
from printed_numbers import YIELDS, concluded

WORKER = {"cpus": [0], "exit_status": 0, "wall_seconds": 1.0, "cpu_seconds": 1.0}


def declared(source, unit="s", better="lower", **changed):
    """A command of which a user says where its number is; `source` is a pattern or a path."""
    where = {"pattern": source} if isinstance(source, str) else {"json": source}
    metric = {"name": "number", "unit": unit, "better": better, **where, **changed}
    (made,) = custom.declarations([{"name": "own", "argv": ["own"], "metric": metric}])
    return made


def read(workload, output, errors=""):
    return metrics.read(workload, None, [{**WORKER, "output": output, "errors": errors}], ["/nowhere"])[1][0]


# Source, unit (+ where higher is better), the place of the number, and what is printed there => the number, or refused.
FORMS = r"""
bench_sh_2_9 | +MB/s | copied, \S+ s, ([0-9.]+) | copied, 0.6 s, 1.7 GB/s => 1700 | copied, 0.6 s, 976 MB/s => 976
bench_sh_2_9 of small ones | +MB/s | copied, \S+ s, ([0-9.]+) | copied, 1 s, 850 kB/s => 0.85
pibenchmarks_28 | +MB/sec | = +(?P<value>\S+) (?P<unit>\S+) | MB =  515.82 kB/sec => 0.51582 | =  91.01 MB/sec => 91.01
veracrypt_142 | +MB/s | AES +\S+ \S+ +(\S+ \S+) | AES  1.0 GB/s  4.5 GB/s => 4500 | AES  1.0 GB/s  997 MB/s => 997
google_benchmark_1749 | +items/s | items_per_second=([0-9.]+) | items_per_second=6.22113G/s => 6.22113e9
google_benchmark_1749 of bytes, by 1024 | +B/s | bytes_per_second=([0-9.]+) | bytes_per_second=11.5877G/s => no
benchmarkdotnet_2003 | ns | Mean = (\S+) | Mean = 1.163 us => 1163 | Mean = 831.2 ns => 831.2 | Mean = 1,163 us => no
rust_26068 | ns/iter | bench: +([0-9.]+) ns | bench:    618 ns/iter (1,0) => 618 | bench:   59,280 ns/iter (1,0) => no
rust_26068 | ns/iter | ([0-9.]+) ns/iter | bench:    618 ns/iter (1,0) => 618 | bench:   59,280 ns/iter (1,0) => no
rust_26068 | ns/iter | bench: +(\d+) | bench:    618 ns/iter (1,0) => 618 | bench:   59,280 ns/iter (1,0) => no
rust_26068 | ns/iter | bench: +(\S+) | bench:    618 ns/iter (1,0) => 618 | bench:   59,280 ns/iter (1,0) => no
swc_795 | +ops/sec | ([\d.]+) ops/sec | swc (es3) x 2,199 ops/sec ±5.45% => no
babel_13512 | +ops/sec | (\S+) ops/sec | current 1 length-1: 1_276_542 ops/sec => no
mesos_391 | msec | ^(\S+?)/msec | 0.31/msec/task-clock/306721 => 0.31 | 0,31/msec/task-clock/3067 => no
deno_1975 | +requests/s | Requests/sec:\s+(\d+) | Requests/sec:  96274.62 => no
wrk_275 | ms | Latency +([0-9.]+)(?P<unit>\w+) | Latency 635.91us 1s => 0.63591 | Latency  1.02s 1s => 1020
wrk_275 of minutes | ms | Latency +([0-9.]+)(?P<unit>\w+) | Latency  1.13ms => 1.13 | Latency 1.50m 1s => 9e4
frameworkbenchmarks_925 | +requests/s | Req/Sec +([0-9.]+) | Req/Sec  9.19k  12.33k => 9190 | Req/Sec  980.00  1k => 980
iperf3 | +Mbits/sec | ([0-9.]+) \wbits/sec +rec | 1.1 GBytes  9.41 Gbits/sec  receiver => 9410
GNU time | s | (\S+)elapsed | 1.20user 0.01system 1:02.50elapsed 99%CPU => 62.5
bash | s | real\s+(\S+) | \nreal\t1m2.500s\nuser\t0m1.0s\n => 62.5
criterion | ns | time: +\[\S+ \S+ (\S+) (?P<unit>\S+) | x  time:   [1.20 µs 1.21 µs 1.22 µs] => 1210
vegeta | ms | Latencies.*\] +\S+, (\S+), | Latencies  [min, mean, 50]  1ms, 912.3µs, 1ms => 0.9123
k6 | ms | iteration_duration.*avg=(\S+) | iteration_duration...: avg=1m2.5s min=1s => 62500
k6 rate | +1/s | http_reqs\S*: \d+ +([0-9.]+) | http_reqs......: 1234   41.13/s => 41.13
ffmpeg | +x | speed= *([0-9.]+)x | speed=0.5x\rframe=2 speed= 1.7x\rframe=9 speed=1.25x\n => 1.25
ioping | +iops | , ([0-9.]+) k?\s?iops | requests completed in 1 s, 15.6 k iops, 61 MiB/s => 15600
pv | +MiB/s | \[ *(\S+)\] | 1.05GiB 0:00:01 [ 998MiB/s]\r2.1GiB 0:00:02 [1.05GiB/s]\n => 1075.2
ab | +ops/s | throughput: (\S+) | throughput: 1.25e+06 ops/s => 1.25e6
"""


@pytest.mark.parametrize("form", FORMS.strip().splitlines())
def test_a_number_is_read_as_its_tool_means_it_or_refused(form):
    _source, unit, pattern, *printed = form.split(" | ")
    workload = declared(pattern, unit.lstrip("+"), "higher" if unit[0] == "+" else "lower")
    for shown, number in (one.split(" => ") for one in printed):
        output = shown.replace(r"\n", "\n").replace(r"\r", "\r").replace(r"\t", "\t")
        if number == "no":
            with pytest.raises(WorkloadError):
                read(workload, f"{output}\n")
        else:
            assert read(workload, f"{output}\n") == pytest.approx(float(number)), output


def test_fio_1685_lines_before_the_document():
    output = 'fio: io_u error on /dev/sdb: read offset=1\nfio: f={x}, [5]\n{"jobs": [{"read": {"iops": 81}}]}\n'
    assert read(declared(["jobs", "*", "read", "iops"], "IOPS", "higher"), output) == 81


def test_wrk_77_a_latency_without_its_unit():
    (recipe,) = custom.declarations([{"recipe": "wrk", "argv": ["wrk"]}])
    lines = "    Latency   {}    84.20%\n     99%    2.00s\nRequests/sec:    583.25\n"
    outputs = [lines.format(shown) for shown in ("295.63ms  292.60ms   2.41s", "1531867 122203062 30744573")]
    workers = [{**WORKER, "errors": "", "output": output} for output in outputs]
    found = {name: one["value"] for name, one in metrics.read(recipe, None, workers[:1], ["/x"])[0].items()}
    assert found == {"throughput": 583.25, "latency_mean": 295.63, "latency_p99": 2000}
    with pytest.raises(WorkloadError, match="latency_mean"):
        metrics.read(recipe, None, workers[1:], ["/x"])


def shown_time(seconds, style):
    """A time as tools of a style print it: with the unit that fits its size."""
    if style == "seconds":
        return f"{seconds:.6f} s"
    if style == "composed" and seconds >= 60:
        return f"{int(seconds // 60)}m{seconds % 60:.4f}s"
    if style == "clock":
        return f"{int(seconds // 60)}:{seconds % 60:07.4f}"
    units = (("s", 1), ("ms", 1e-3), ("\u00b5s" if style == "micro" else "us", 1e-6), ("ns", 1e-9))
    unit, factor = next((one for one in units if seconds >= one[1]), units[-1])
    return f"{seconds / factor:.4f}{' ' if style == 'apart' else ''}{unit}"


def shown_rate(rate, style):
    if style in ("plain", "exponent"):
        return f"{rate:.3f} ops/s" if style == "plain" else f"{rate:.6e} ops/s"
    letter, factor = next((one for one in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if rate >= one[1]), ("", 1))
    return f"{rate / factor:.4f} {letter}ops/s" if style == "word" else f"{rate / factor:.4f}{letter}"


TIMES = ("seconds", "composed", "clock", "micro", "apart", "glued")
RATES = ("plain", "exponent", "word", "letter")


@pytest.mark.parametrize("style", TIMES + RATES)
def test_the_sign_of_a_truth_is_never_wrong(style):
    """SMT gives so much work; each worker prints its number in a unit that fits, after lines of progress."""
    source, said, number = random.Random(style), 0, night.number(6, 24)
    for case in range(number):
        is_time, gain = style in TIMES, math.exp(source.uniform(math.log(0.6), math.log(1.6)))
        # Around where the unit changes.
        alone = source.choice([60] if style == "clock" else [1e-3, 1, 60] if is_time else [1e3, 1e6, 1e9])
        alone *= math.exp(source.uniform(-0.3, 0.3))
        # Two threads of a core do `gain` of the work of one.
        truth = {"smt_off": alone, "smt_on": alone * 2 / gain if is_time else alone * gain / 2}
        with_unit = case % 3 == 0 and style not in ("composed", "clock", "exponent", "letter")
        pattern = r"total: (?P<value>[0-9.]+) ?(?P<unit>[A-Za-z\u00b5/]+)" if with_unit else r"total: (\S+)"
        workload = declared(pattern, *(("s", "lower") if is_time else ("ops/s", "higher")))
        shown = {arm: (shown_time if is_time else shown_rate)(value, style) for arm, value in truth.items()}

        def printed(arm, _count, workload=workload, shown=shown):
            return read(workload, f"total: {source.random():.3f} so far\rtotal: {shown[arm]}\n", "total: 7 s\n")

        found = concluded(workload["metrics"][0], printed, seed=case)
        if found.recommendation in ("on", "off"):
            said += 1
            assert found.recommendation == ("on" if gain > 1 else "off"), (gain, truth, found.sentence)
    assert said > number / 2


OPERATIONS = {"go": "ns/op", "hyperfine_mean": "s", "jmh_avgt": "us/op", "pyperf": "ms", "google_benchmark": "ns"}
OPERATIONS |= {"criterion": "\u00b5s", "perf_bench": "usec/op", "kernel": "cycles/iter", "mean": "s", "avgt": "ms/op"}


def time_of(name, unit, **workload):
    metric = {"name": name, "unit": unit, "better": "lower", "pattern": "([0-9.]+)"}
    (made,) = custom.declarations([{"name": "own", "argv": ["true"], "metric": metric, **workload}])
    return made["metrics"][0]


@pytest.mark.parametrize(("name", "unit"), OPERATIONS.items())
def test_a_time_of_an_operation_has_the_sign_of_the_truth(name, unit):
    source = random.Random(name)
    gains = [math.exp(source.uniform(math.log(0.6), math.log(1.6))) for _case in range(night.number(1, 20))]
    said = []
    for seed, gain in enumerate([*YIELDS, *gains]):
        # Two threads of a core do `gain` of the work of one, so an operation of each takes 2 / gain as long.
        alone = math.exp(source.uniform(-12, 6))
        truth = {"smt_off": alone, "smt_on": alone * 2 / gain}
        found = concluded(time_of(name, unit), lambda arm, _count, of=truth: of[arm], seed=seed).recommendation
        said.append(found in ("on", "off"))
        assert found == ("on" if gain > 1 else "off") or (gain not in YIELDS and not said[-1]), (gain, found)
    assert sum(said) > 0.8 * len(gains)


def slower(arm, _count):
    return 1.6 if arm == "smt_on" else 1.0


@pytest.mark.parametrize(
    ("name", "unit", "workload"),
    [
        *(("latency", "ms", {}), ("p99", "us", {}), ("response_time", "s", {}), ("mean_wait", "ms", {})),
        *(("errors", "1", {}), ("energy", "J", {}), ("misses", "1/s", {}), ("ns_op", "ns/op", {"multithreaded": True})),
    ],
)
def test_what_cannot_be_known_is_not_said(name, unit, workload):
    metric = time_of(name, unit, **workload)
    found = concluded(metric, slower)
    assert found.recommendation == "not_compared" and any("set aggregate" in one for one in found.cautions)
    # Where nothing was to be compared nothing is missed.
    assert not any("set aggregate" in one for one in concluded(metric, slower, compared=False).cautions)


@pytest.mark.parametrize(("aggregate", "choice"), [("max", "off"), ("per_job", "on"), ("per_operation", "on")])
def test_what_is_declared_is_compared(aggregate, choice):
    found = concluded({**time_of("latency", "ms"), "aggregate": aggregate}, slower)
    assert found.recommendation == choice and not any("set aggregate" in one for one in found.cautions)
