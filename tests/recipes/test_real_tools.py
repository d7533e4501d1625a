# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each recipe with its tool, as an evaluation runs it."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import custom, prepared
from prometheus_server import free_port

HERE = sorted(os.sched_getaffinity(0))
GO = """package x
import ("strings"; "testing")
func BenchmarkRepeat(b *testing.B) { for i := 0; i < b.N; i++ { _ = strings.Repeat("ab", 500) } }
"""
JAVA = """package bench;
import org.openjdk.jmh.annotations.Benchmark;
public class Sum { @Benchmark public int sum() { int s = 0; for (int i = 0; i < 999; i++) s += i * i; return s; } }
"""
CPP = """#include <benchmark/benchmark.h>
static void BM_sum(benchmark::State& state) { for (auto _ : state) benchmark::DoNotOptimize(state.iterations()); }
BENCHMARK(BM_sum); BENCHMARK_MAIN();
"""


@contextlib.contextmanager
def served(argv, port, **how):
    """A server that accepts connections until the end of the block."""
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert server.poll() is None, f"{argv[0]} ended"
            time.sleep(0.1)
        yield
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def measured(recipe, argv, tmp_path):
    """The metrics of two workers at once."""
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]} is not installed")
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    (workload,) = custom.declarations([{"recipe": recipe, "argv": argv, "timeout": 300}])
    taken = prepared.PreparedWorkload(workload, files, {}, 1.0, len(HERE)).sample([[HERE[0]], [HERE[-1]]], None)
    first = workload["metrics"][0]
    assert list(taken["metrics"]) == [one["name"] for one in workload["metrics"]]
    assert all(value > 0 for value in taken["values"]) and taken["metrics"][first["name"]]["unit"] == first["unit"]
    return taken


@pytest.mark.parametrize(
    ("recipe", "argv"),
    [
        ("7z", ["7z", "b", "-mmt1", "-md18"]),
        ("hyperfine", ["hyperfine", "-N", "-r", "3", "true"]),
        ("openssl", ["openssl", "speed", "-elapsed", "-seconds", "1", "-bytes", "1024", "-evp", "aes-128-gcm"]),
        ("pyperf", [sys.executable, "-m", "pyperf", "timeit", "-p2", "-w1", "-n2", "-l100", "sum(range(100))"]),
        ("stress_ng", ["stress-ng", "--cpu", "1", "--cpu-method", "int64", "-t", "1"]),
        ("sysbench", ["sysbench", "cpu", "--time=1", "run"]),
        ("sysbench", ["sysbench", "memory", "--time=1", "run"]),
    ],
)
def test_tools_of_one_command(recipe, argv, tmp_path):
    if recipe == "pyperf" and subprocess.run([*argv[:3], "--help"], capture_output=True, check=False).returncode:
        pytest.skip("pyperf is not installed")
    measured(recipe, argv, tmp_path)


def test_fio_adds_up_reads_and_writes_of_all_jobs(tmp_path):
    argv = ["fio", "--name=r", "--size=1m", "--rw=randrw", "--ioengine=psync", "--numjobs=12", "--loops=5"]
    measured("fio", [*argv, f"--directory={tmp_path}"], tmp_path)


@pytest.mark.parametrize(
    ("recipe", "argv"),
    [
        ("ab", ["ab", "-q", "-n", "100", "-c", "2"]),
        ("hey", ["hey", "-n", "100", "-c", "2"]),
        ("wrk", ["wrk", "-t1", "-c2", "-d1"]),
    ],
)
def test_load_generators(recipe, argv, tmp_path):
    port = free_port()
    with served([sys.executable, "-m", "http.server", str(port)], port, cwd=tmp_path):
        measured(recipe, [*argv, f"http://127.0.0.1:{port}/"], tmp_path)


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_redis_benchmark(quiet, tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    port = free_port()
    with served(["redis-server", "--port", str(port), "--save", ""], port, cwd=tmp_path):
        measured("redis_benchmark", ["redis-benchmark", "-p", str(port), "-n", "1000", "-t", "set", *quiet], tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become the user of PostgreSQL")
def test_pgbench(tmp_path):
    programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    # The user of PostgreSQL has no way into the folders of pytest.
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as place:
        shutil.chown(place, "postgres")
        data, port = f"{place}/d", free_port()
        subprocess.run([*as_user, str(programs[-1] / "initdb"), "-A", "trust", "-D", data], cwd="/", check=True)
        server = [*as_user, str(programs[-1] / "postgres"), "-D", data, "-p", str(port), "-k", "", "-F"]
        with served(server, port, cwd="/"):
            reached = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
            subprocess.run([str(programs[-1] / "pgbench"), "-i", "-q", *reached], check=True)
            measured("pgbench", [str(programs[-1] / "pgbench"), "-c2", "-T1", "-P1", *reached], tmp_path)


def test_benchmarks_of_go(tmp_path):
    if not shutil.which("go"):
        pytest.skip("go is not installed")
    (tmp_path / "go.mod").write_text("module x\n")
    (tmp_path / "x_test.go").write_text(GO)
    subprocess.run(["go", "test", "-c", "-o", "x.test"], cwd=tmp_path, check=True)
    argv = [str(tmp_path / "x.test"), "-test.run", "^$", "-test.bench", ".", "-test.benchtime", "50ms"]
    measured("go", argv, tmp_path)


def test_google_benchmark(tmp_path):
    (tmp_path / "x.cc").write_text(CPP)
    command = ["g++", "-O1", "-o", "x", "x.cc", "-lbenchmark", "-lpthread"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("libbenchmark-dev is not installed")
    measured("google_benchmark", [str(tmp_path / "x"), "--benchmark_min_time=0.05"], tmp_path)


def test_jmh(tmp_path):
    """The jars of JMH are those of the folder JMH_JARS, such as `mvn dependency:copy-dependencies` makes one."""
    jars = ":".join(map(str, sorted(pathlib.Path(os.environ.get("JMH_JARS", "none")).glob("*.jar"))))
    if not jars or not shutil.which("javac"):
        pytest.skip("there is no javac, or no folder JMH_JARS")
    (tmp_path / "Sum.java").write_text(JAVA)
    subprocess.run(["javac", "-cp", jars, "-processorpath", jars, "-d", "c", "Sum.java"], cwd=tmp_path, check=True)
    main = ["java", "-cp", f"{tmp_path / 'c'}:{jars}", "org.openjdk.jmh.Main", "-f", "1", "-wi", "1", "-w", "100ms"]
    # Each fork takes a lock of the whole host, which a user of several workers has to allow.
    argv = [*main[:1], "-Djmh.ignoreLock=true", *main[1:], "-i", "2", "-r", "100ms"]
    measured("jmh", argv, tmp_path)
