# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the steps of testing, shows how each went, and closes with the counts of all.

usage: test.py GROUP|STEP...        (groups: test, what CI runs; scenarios and cores, what takes longer)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from xml.etree import ElementTree

from processes import end_children

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "test"
LAST_LINES = 60
MEMORY, MIN_MEMORY = pathlib.Path("/dev/shm"), 6 * 2**30
LONGEST_REASON = 300


@dataclasses.dataclass(frozen=True)
class Step:
    """A command, and the Debian packages without which it could not run, or would test less."""

    command: tuple[str, ...]
    packages: tuple[str, ...] = ()


# Three at a time on CI's two cores, because some wait; what runs out of work first takes from the others.
PYTEST = ("-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", "--durations", "10")
SHORT_SCENARIOS = ("smt_facts", "smt_eval")
LONG_SCENARIOS = (
    "smt_runtime",
    "smt_runtime_deep",
    "smt_orders",
    "smt_boot_faults",
    "smt_boot",
    "smt_boot_bls",
    "smt_owners",
    "smt_consumers",
    "smt_node",
    "smt_power",
    "smt_arm64",
    "smt_trixie",
    "smt_memory",
    "smt_probe",
    "smt_eval_truth",
    "smt_studies",
    "smt_eval_faults",
    "smt_odd",
    "smt_eval_boots",
    "smt_arms",
    "smt_arms_truth",
    "smt_exposure",
    "smt_usage_hour",
    "smt_usage_truth",
    "smt_proof",
    "smt_decisions",
    "smt_huge_pages",
    "smt_eval_boot_arms",
    "smt_workloads",
    "smt_policy",
    "smt_slot",
    "smt_pull",
    "smt_trial",
    "smt_trial_boots",
    "smt_boot_visits",
    "smt_trial_nginx",
    "smt_hostile_host",
    "smt_two_controllers",
)
PLAYBOOKS = ("--dist", "load", "--maxschedchunk", "1")
# What whole playbooks need beside Ansible.
OF_PLAYBOOKS = ("git", "gzip", "openssh-client", "sysbench")
# Environments with another release of ansible-core than that of `make setup`: the oldest one that is supported comes
# first.
CORES = ("2.16", "2.18", "newest")
STEPS = {
    "unit": Step(
        ("python", *PYTEST, "-m", "not long", "tests/unit"),
        (
            "fio",
            "gcc",
            "gnupg",
            "gzip",
            "libc6-dev",
            "linux-perf",
            "nghttp2-client",
            "nginx",
            "openssh-client",
            "postgresql",
            "procps",
            "stress-ng",
            "sysbench",
            "util-linux",
        ),
    ),
    # Each recipe with its tool.
    "recipes": Step(
        ("python", "-m", "pytest", "-q", "--durations", "10", "tests/recipes"),
        (
            *(
                "apache2-utils",
                "fio",
                "g++",
                "golang-go",
                "hey",
                "hyperfine",
                "libbenchmark-dev",
                "openssl",
                "p7zip-full",
            ),
            *("postgresql", "redis-server", "redis-tools", "stress-ng", "sysbench", "wrk"),
        ),
    ),
    # From an alert to smt_enforce, with all that is between them: examples/eda. Debian's Prometheus and Alertmanager
    # are unpacked and not installed.
    "remediation": Step(("python", "-m", "pytest", "-q", "--durations", "10", "tests/eda"), ("default-jre-headless",)),
    # What people have reported of other tools, each under the name of its source.
    "field": Step(("python", *PYTEST, "tests/field"), ("procps",)),
    # One at a time to each worker: they differ much in what they take.
    "playbooks": Step(("python", *PYTEST, *PLAYBOOKS, "-m", "not kills and not long", "tests/playbooks"), OF_PLAYBOOKS),
    "long": Step(("python", *PYTEST, *PLAYBOOKS, "-m", "long", "tests/playbooks"), OF_PLAYBOOKS),
    # More of what `unit` has: all steps at which a process can be killed, more random machines.
    "unit-long": Step(("python", *PYTEST, *PLAYBOOKS, "-m", "long", "tests/unit"), OF_PLAYBOOKS),
    # Rollouts and evaluations that are ended half way, and what the next call makes of them.
    "kills": Step(("python", *PYTEST, *PLAYBOOKS, "-m", "kills", "tests/playbooks"), OF_PLAYBOOKS),
    # A pull that is ended at any point; `unit` ends it at a few of them.
    "pull-kills": Step(
        ("env", "PULL_KILLS=1000", "python", *PYTEST, *PLAYBOOKS, "-k", "killed_at_any_point", "tests/unit/_pull"),
        OF_PLAYBOOKS,
    ),
    # The same files with the oldest ansible-core as with that of `make setup`.
    "oldest-core": Step((f".cache/core-{CORES[0]}/bin/python", *PYTEST, *PLAYBOOKS, "tests/cores"), ("gzip",)),
    **{
        f"core-{core}": Step(
            (f".cache/core-{core}/bin/python", *PYTEST, *PLAYBOOKS, "tests/cores", "tests/playbooks"), OF_PLAYBOOKS
        )
        for core in CORES
    },
    # A compromised host beside honest ones: attacks on a survey and on compliance, tried together, and some that are
    # made from a seed.
    "hostile": Step(("python", *PYTEST, *PLAYBOOKS, "-k", "survey or compliance", "tests/hostile"), ("gzip",)),
    # The rooms that use the controller's libraries, with the oldest versions of these that requirements.txt names.
    # test_build takes most of the time of these rooms, and other tests in them make whole reports too.
    "lowest": Step(
        (
            ".cache/lowest/bin/python",
            *PYTEST,
            *(f"tests/unit/{room}" for room in ("_border", "_report")),
            "--ignore=tests/unit/_report/test_build.py",
        ),
        ("gzip", "sysbench"),
    ),
    "browser": Step(("python", "-m", "pytest", "-q", "tests/browser"), ("chromium", "chromium-driver")),
    "lint": Step(("tools/lint.sh",)),
    "sanity": Step(("tools/sanity.sh",), ("git", "shellcheck", "util-linux")),
    # The laboratory installs what it needs by itself.
    **{scenario: Step(("molecule", "test", "-s", scenario)) for scenario in SHORT_SCENARIOS + LONG_SCENARIOS},
    "smt_eval_truth": Step(("molecule", "test", "-s", "smt_eval_truth"), ("sysbench",)),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How many of a step's tests passed, failed and were skipped, and which failed, with the reason."""

    counts: dict[str, int]
    failures: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Group:
    """Names of steps in the order in which they begin, and how many of them run side by side."""

    steps: tuple[str, ...]
    side_by_side: int = 1


GROUPS = {
    # CI has two cores, and a guest leaves one of them to another step for most of the time. The one that takes longest
    # begins first.
    "test": Group(
        (
            "smt_eval",
            "unit",
            "playbooks",
            "hostile",
            "sanity",
            "smt_facts",
            "lint",
            "lowest",
            "oldest-core",
            "field",
            "browser",
        ),
        side_by_side=2,
    ),
    "scenarios": Group((*LONG_SCENARIOS, "long", "unit-long", "kills", "pull-kills", "recipes", "remediation")),
    "cores": Group(tuple(f"core-{core}" for core in CORES)),
}


def main(words: list[str]) -> int:
    """Run the named groups and steps; the exit code is 0 when nothing failed."""
    groups = [GROUPS.get(word, Group((word,))) for word in words]
    names = [name for group in groups for name in group.steps]
    unknown = set(names) - set(STEPS)
    if unknown or not names:
        print(
            f"test: {', '.join(sorted(unknown)) or 'nothing'} is no step: choose from {', '.join([*GROUPS, *STEPS])}",
            file=sys.stderr,
        )
        return 2
    # All at once, before anything takes long: apt is asked once, and who is not root learns at the start what is
    # missing.
    packages = sorted({package for name in names for package in STEPS[name].packages})
    if subprocess.run([ROOT / "tools/debian-packages.sh", *packages], check=False).returncode:
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    total = {"passed": 0, "failed": 0, "skipped": 0}
    failures: list[str] = []
    begun = time.monotonic()
    for group in groups:
        for outcome in run(group):
            failures.extend(outcome.failures)
            for kind, number in outcome.counts.items():
                total[kind] += number
    # Once more at the end, where also a log that was cut has it.
    for failure in failures:
        print(f"failed: {failure}")
    print(f"all steps: {time.monotonic() - begun:.0f} s")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped", flush=True)
    return 1 if total["failed"] or not total["passed"] else 0


def run(group: Group) -> Iterator[Outcome]:
    """Run steps and say how each went. Yields the outcome of each, as they end."""
    # Ctrl-C and SIGTERM come here alone, and a step is ended from here with all that it started.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    waiting = list(group.steps)
    # Most of what tests of files wait for is fsync, which costs nothing where files are in memory. A short name: a
    # socket has 107 characters.
    in_memory = tempfile.mkdtemp(prefix="smt-", dir=MEMORY) if has_memory() else None
    if in_memory:
        # As /tmp is: some tests act as other users.
        os.chmod(in_memory, 0o1777)
    # A step has begun before it runs: a signal may come between.
    begun: dict[str, float] = {}
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while running or waiting:
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    yield reported(name, process.returncode, time.monotonic() - begun.pop(name))
            while waiting and len(running) < group.side_by_side:
                name = waiting.pop(0)
                print(f"{name}: {' '.join(STEPS[name].command)}", flush=True)
                begun[name] = time.monotonic()
                running[name] = start(name, in_memory)
            time.sleep(0.2)
    finally:
        end_children()
        if in_memory:
            shutil.rmtree(in_memory, ignore_errors=True)
        for name in begun:
            if (ROOT / "molecule" / name).is_dir():
                subprocess.run(
                    ["molecule", "destroy", "-s", name],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    check=False,
                )


def has_memory() -> bool:
    """Whether tests can have their temporary files, also programs, in memory."""
    try:
        found = os.statvfs(MEMORY)
        known = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return False
    room = [found.f_bavail * found.f_frsize, 1024 * int(known.partition("MemAvailable:")[2].split()[0])]
    # Of a container.
    with contextlib.suppress(OSError, ValueError):
        room.append(int(pathlib.Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return not found.f_flag & os.ST_NOEXEC and min(room) >= MIN_MEMORY


def start(name: str, in_memory: str | None) -> subprocess.Popen[bytes]:
    """Start a step; what it prints goes to its log.

    Args:
        name: of the step.
        in_memory: a directory for temporary files of pytest's tests; None for the system's own. Guests have their disks
            on disks.
    """
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    # Also the pytest that molecule starts for testinfra leaves its counts there.
    environment = dict(os.environ, PYTEST_ADDOPTS=f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={report}")
    if in_memory and "pytest" in STEPS[name].command:
        environment["TMPDIR"] = in_memory
    with (LOGS / f"{name}.log").open("wb") as output:
        return subprocess.Popen(
            STEPS[name].command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def reported(name: str, code: int, seconds: float) -> Outcome:
    """Say how a step went that has ended."""
    log = LOGS / f"{name}.log"
    text = log.read_text(encoding="utf-8", errors="replace")
    report = LOGS / f"{name}.xml"
    suites = list(ElementTree.parse(report).getroot().iter("testsuite")) if report.exists() else []
    counts = count(suites, text, code)
    if code:
        print("\n".join(text.splitlines()[-LAST_LINES:]))
    numbers = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    print(f"{name}: {numbers} in {seconds:.0f} s ({log.relative_to(ROOT)})", flush=True)
    failures = tuple(f"{name}: {failure}" for suite in suites for failure in failed_tests(suite))
    return Outcome(counts, failures or ((f"{name}: exit code {code}",) if code else ()))


def failed_tests(suite: ElementTree.Element) -> Iterator[str]:
    """Name of each test of a suite that failed, and the first line of the reason."""
    for case in suite.iter("testcase"):
        for fault in (*case.findall("failure"), *case.findall("error")):
            reason = (fault.get("message") or "").splitlines() or [""]
            yield f"{case.get('classname')}::{case.get('name')}: {reason[0][:LONGEST_REASON]}"


def count(suites: list[ElementTree.Element], text: str, code: int) -> dict[str, int]:
    """What a step's tests came to: pytest's by its report, ansible-test's by its lines,
    and the step itself as one more.
    """
    counts = {"passed": len(re.findall(r"^Running sanity test ", text, re.MULTILINE)), "failed": 0, "skipped": 0}
    for suite in suites:
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        counts["failed"] += failed
        counts["skipped"] += skipped
        counts["passed"] += int(suite.get("tests", 0)) - failed - skipped
    if code and not counts["failed"]:
        counts["failed"] = 1
    elif not code:
        counts["passed"] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
