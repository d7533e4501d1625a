# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that other programs read wrong in what tools print, each under its source's name; forms of more tools; and
verdicts from what such tools print of machines whose truth is known. What cannot be known is refused.
"""

from __future__ import annotations

import math
import random

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import custom, metrics
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import (
    UnreadableError,
    WorkloadError,
)
from printed_numbers import YIELDS, concluded


def declared(source, unit="s", better="lower", name="number", **changed):
    """A command of which a user says where its number is; `source` is a pattern or a path."""
    where = {"pattern": source} if isinstance(source, str) else {"json": source}
    metric = {"name": name, "unit": unit, "better": better, **where, **changed}
    (made,) = custom.declarations([{"name": "own", "argv": ["own"], "metric": metric}])
    return made


def read(workload, output, errors=""):
    worker = {
        "cpus": [0],
        "output": output,
        "errors": errors,
        "exit_status": 0,
        "wall_seconds": 1.0,
        "cpu_seconds": 1.0,
    }
    return metrics.read(workload, None, [worker], ["/nowhere"])[1][0]


def refused(workload, output):
    with pytest.raises(UnreadableError):
        read(workload, output)
    return True


def test_bench_sh_2_issue_9_gigabytes_are_not_megabytes():
    rate = declared(r"copied, \S+ s, ([0-9.]+)", "MB/s", "higher")
    line = "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.63 s, {}\n"
    assert [read(rate, line.format(shown)) for shown in ("1.7 GB/s", "976 MB/s", "850 kB/s")] == [1700, 976, 0.85]


def test_pibenchmarks_issue_28_kilobytes_of_hdparm():
    rate = declared(r"= +(?P<value>\S+) (?P<unit>\S+)", "MB/sec", "higher")
    assert read(rate, " Timing O_DIRECT disk reads: 274 MB in  3.01 seconds =  91.01 MB/sec\n") == 91.01
    assert read(rate, " Timing O_DIRECT disk reads:   2 MB in  3.97 seconds = 515.82 kB/sec\n") == pytest.approx(
        0.51582
    )


def test_veracrypt_issue_142_a_column_of_two_units():
    rate = declared(r"AES +\S+ \S+ +(\S+ \S+)", "MB/s", "higher")
    assert [read(rate, f"AES  1.0 GB/s  {shown}\n") for shown in ("4.5 GB/s", "997 MB/s")] == [4500, 997]


def test_google_benchmark_issue_1749_rates_with_a_bare_prefix():
    line = "ReadLevels/7  1299 ns  1301 ns  538976 bytes_per_second=11.5877G/s items_per_second=6.22113G/s\n"
    assert read(declared(r"items_per_second=([0-9.]+)", "items/s", "higher"), line) == pytest.approx(6.22113e9)
    # Of bytes it is a power of 1024 there.
    assert refused(declared(r"bytes_per_second=([0-9.]+)", "B/s", "higher"), line)


def test_benchmarkdotnet_issue_2003_units_by_size_and_a_decimal_comma():
    mean = declared(r"Mean = (\S+)", "ns")
    assert read(mean, "Mean = 1.163 us, StdErr = 0.006 us\n") == pytest.approx(1163)
    assert read(mean, "Mean = 831.283 ns, StdErr = 1.463 ns\n") == pytest.approx(831.283)
    assert refused(mean, "Mean = 1,163 us, StdErr = 0,006 us\n")


@pytest.mark.parametrize("pattern", [r"bench: +([0-9.]+) ns", r"([0-9.]+) ns/iter", r"bench: +(\d+)", r"bench: +(\S+)"])
def test_rust_pull_26068_thousands_of_libtest(pattern):
    line = "test f ... bench: {} ns/iter (+/- 1,052)\n"
    assert read(declared(pattern, "ns/iter"), line.format("     618")) == 618
    # Or the pattern cannot match it.
    with pytest.raises(WorkloadError, match=r"can be read in two ways|printed no number"):
        read(declared(pattern, "ns/iter"), line.format("  59,280"))


def test_swc_pull_795_operations_with_a_comma():
    assert refused(declared(r"([\d.]+) ops/sec", "ops/sec", "higher"), "swc (es3) x 2,199 ops/sec \u00b15.45%\n")


def test_babel_pull_13512_operations_with_an_underscore():
    assert refused(declared(r"(\S+) ops/sec", "ops/sec", "higher"), "current 1 length-1: 1_276_542 ops/sec\n")


def test_mesos_pull_391_a_decimal_comma_of_perf():
    clock = declared(r"^(\S+?)/msec", "msec")
    assert read(clock, "0.31/msec/task-clock/306721\n") == 0.31
    assert refused(clock, "0,31/msec/task-clock/306721\n")


def test_deno_pull_1975_a_part_of_the_rate():
    assert refused(declared(r"Requests/sec:\s+(\d+)", "requests/s", "higher"), "Requests/sec:  96274.62\n")


def test_wrk_issue_77_a_latency_without_its_unit():
    recipe, line = (
        custom.declarations([{"recipe": "wrk", "argv": ["wrk"]}])[0],
        "    Latency   {}    84.20%\n     99%    2.00s\n",
    )
    total = "Requests/sec:    583.25\n"
    worker = {"cpus": [0], "errors": "", "exit_status": 0, "wall_seconds": 1.0, "cpu_seconds": 1.0}
    found = metrics.read(
        recipe, None, [{**worker, "output": line.format("295.63ms  292.60ms   2.41s") + total}], ["/x"]
    )
    assert {name: one["value"] for name, one in found[0].items()} == {
        "throughput": 583.25,
        "latency_mean": 295.63,
        "latency_p99": 2000,
    }
    with pytest.raises(WorkloadError, match="printed no latency_mean"):
        metrics.read(recipe, None, [{**worker, "output": line.format("1531867 122203062 30744573") + total}], ["/x"])


def test_wrk_issue_275_seconds_instead_of_milliseconds():
    latency = declared(r"Latency +([0-9.]+)(?P<unit>\w+)", "ms", aggregate="max")
    shown = ("635.91us", "1.13ms", "1.02s", "1.50m")
    assert [read(latency, f"    Latency   {one}  1s 2s\n") for one in shown] == pytest.approx(
        [0.63591, 1.13, 1020, 90000]
    )


def test_frameworkbenchmarks_issue_925_thousands_by_a_letter():
    rate = declared(r"Req/Sec +([0-9.]+)", "requests/s", "higher")
    assert [read(rate, f"    Req/Sec  {one}   660.12  12.33k\n") for one in ("9.19k", "980.00")] == [9190, 980]


def test_fio_issue_1685_messages_before_the_document():
    iops = declared(["jobs", "*", "read", "iops"], "IOPS", "higher")
    messages = "fio: io_u error on file /dev/sdb: read offset=1, buflen=4096\nfio: pid=5509, func={x}, error=[5]\n"
    assert read(iops, messages + '{\n  "jobs" : [\n    {"read" : {"iops" : 81}}\n  ]\n}\n') == 81


@pytest.mark.parametrize(
    ("pattern", "unit", "better", "output", "number"),
    [
        # iperf3, GNU time, bash, criterion, vegeta, k6, ffmpeg, ioping, pv, autocannon, sockperf, cargo, x265, ab.
        (
            r"([0-9.]+) \wbits/sec +receiver",
            "Mbits/sec",
            "higher",
            "0.00-1.00 sec  1.1 GBytes  9.41 Gbits/sec  receiver",
            9410,
        ),
        (r"(\S+)elapsed", "s", "lower", "1.20user 0.01system 1:02.50elapsed 99%CPU", 62.5),
        (r"real\s+(\S+)", "s", "lower", "\nreal\t1m2.500s\nuser\t0m1.0s\n", 62.5),
        (
            r"time: +\[\S+ \S+ (\S+) (?P<unit>\S+)",
            "ns",
            "lower",
            "x  time:   [1.20 \u00b5s 1.21 \u00b5s 1.22 \u00b5s]",
            1210,
        ),
        (r"Latencies.*\] +\S+, (\S+),", "ms", "lower", "Latencies  [min, mean, 50]  1ms, 912.3\u00b5s, 1ms", 0.9123),
        (r"iteration_duration.*avg=(\S+)", "ms", "lower", "iteration_duration...: avg=1m2.5s min=1s", 62500),
        (r"http_reqs\S*: \d+ +([0-9.]+)", "1/s", "higher", "http_reqs......: 1234   41.13/s", 41.13),
        (r"speed= *([0-9.]+)x", "x", "higher", "frame=1 speed=0.5x\rframe=2 speed= 1.7x\rframe=9 speed=1.25x\n", 1.25),
        (r", ([0-9.]+) k?\s?iops", "iops", "higher", "9 requests completed in 1 s, 15.6 k iops, 61 MiB/s", 15600),
        (r"\[ *(\S+)\]", "MiB/s", "higher", "1.05GiB 0:00:01 [ 998MiB/s]\r2.1GiB 0:00:02 [1.05GiB/s]\n", 1075.2),
        (r"(\S+) requests in", "requests", "higher", "12k requests in 10.02s, 1 MB read", 12000),
        (
            r"avg-latency=([0-9.]+)",
            "usec",
            "lower",
            "Summary: Latency is 6.1 usec\navg-latency=6.104 (std-dev=1.2)",
            6.104,
        ),
        (r"\(([0-9.]+) fps\)", "fps", "higher", "encoded 100 frames in 1.23s (81.30 fps), 1 kb/s", 81.3),
        (r"throughput: (\S+)", "ops/s", "higher", "throughput: 1.25e+06 ops/s", 1.25e6),
    ],
)
def test_forms_of_more_tools(pattern, unit, better, output, number):
    assert read(declared(pattern, unit, better), output) == pytest.approx(number)


def shown_time(seconds, style):
    """A time as tools of a style print it: with the unit that fits its size."""
    if style == "seconds":
        return f"{seconds:.6f} s"
    if style == "composed" and seconds >= 60:
        return f"{int(seconds // 60)}m{seconds % 60:.4f}s"
    if style == "clock":
        return f"{int(seconds // 60)}:{seconds % 60:07.4f}"
    for unit, factor in (("s", 1), ("ms", 1e-3), ("\u00b5s" if style == "micro" else "us", 1e-6), ("ns", 1e-9)):
        if seconds >= factor or unit == "ns":
            return f"{seconds / factor:.4f}{' ' if style == 'apart' else ''}{unit}"
    raise AssertionError(seconds)


def shown_rate(rate, style):
    """A rate as tools of a style print it."""
    if style == "plain":
        return f"{rate:.3f} ops/s"
    if style == "exponent":
        return f"{rate:.6e} ops/s"
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1)):
        if rate >= factor or not letter:
            return f"{rate / factor:.4f} {letter}ops/s" if style == "word" else f"{rate / factor:.4f}{letter}"
    raise AssertionError(rate)


TIMES = ("seconds", "composed", "clock", "micro", "apart", "glued")
RATES = ("plain", "exponent", "word", "letter")
WITH_UNIT = ("seconds", "micro", "apart", "glued", "plain", "word")


def printing(workload, shown, source):
    """What a command is read as that prints these texts, by arm, behind its progress."""

    def printed(arm, _count):
        return read(workload, f"total: {source.random():.3f} so far\rtotal: {shown[arm]}\n", "total: 7 s\n")

    return printed


def test_the_sign_of_two_hundred_and_forty_truths_is_never_wrong():
    """SMT gives so much work; each worker prints its number in a unit that fits, after lines of progress."""
    source, said = random.Random(11), 0
    for case in range(240):
        is_time, gain = case % 2 == 0, math.exp(source.uniform(math.log(0.6), math.log(1.6)))
        style = source.choice(TIMES if is_time else RATES)
        # Around where the unit changes.
        alone = source.choice([60] if style == "clock" else [1e-3, 1, 60] if is_time else [1e3, 1e6, 1e9])
        alone *= math.exp(source.uniform(-0.3, 0.3))
        # Two threads of a core do `gain` of the work of one.
        truth = {"smt_off": alone, "smt_on": alone * 2 / gain if is_time else alone * gain / 2}
        with_unit = case % 3 == 0 and style in WITH_UNIT
        pattern = r"total: (?P<value>[0-9.]+) ?(?P<unit>[A-Za-z\u00b5/]+)" if with_unit else r"total: (\S+)"
        workload = declared(pattern, *(("s", "lower") if is_time else ("ops/s", "higher")))

        shown = {arm: (shown_time if is_time else shown_rate)(value, style) for arm, value in truth.items()}
        found = concluded(workload["metrics"][0], printing(workload, shown, source), seed=case)
        if found["recommendation"] in ("on", "off"):
            said += 1
            assert found["recommendation"] == ("on" if gain > 1 else "off"), (gain, style, truth, found["sentence"])
    assert said > 200


@pytest.mark.parametrize("gain", YIELDS)
def test_what_only_one_arm_prints_with_a_separator_is_refused(gain):
    """The samples that are left would be no fair choice; tests of the plan hold that none of them counts."""
    workload = declared(r"([0-9.,]+) ops/s", "ops/s", "higher")
    for value in (990.0, 990.0 * gain):
        output = f"{value:,.1f} ops/s\n"
        assert refused(workload, output) if "," in output else read(workload, output) < 1000
