# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slices bring: the wall time of compliance in one call and in four slices (examples/runner) beside a ping's.

usage: PYTHONPATH=tests/unit/support python tests/benchmarks/bench_slices.py [HOSTS [SECONDS]]        (default: 200 0)

SECONDS is how long each host keeps the controller waiting at each call. The lesser of two runs counts.
"""

import json
import os
import pathlib
import sys
import tempfile

import yaml
from bench_compliance import BIN, inventory, measure

SLICES, FORKS, ROUNDS = 4, 10, 2
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "runner" / "slices.py"
POLICY = ["-e", "smt_policy=disabled"]


def main(words: list[str]) -> int:
    """Run all in turn and print how long each took; the exit code is 1 when the slices do not have all hosts."""
    count, seconds = int(words[0]) if words else 200, float(words[1]) if words[1:] else 0.0
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        os.chdir(place)
        inventory(place, count)
        if seconds:
            wait(place, seconds)
        times: dict[str, list[float]] = {}
        for _round in range(ROUNDS):
            for name, command in commands(place).items():
                load = os.getloadavg()[0]
                times.setdefault(name, []).append(measure(place, command)[0])
                print(f"{name}: {times[name][-1]:.1f} s (load average before: {load:.1f})", flush=True)
        answers = [json.loads(path.read_text())["hosts"] for path in place.glob("smt_slices/*/smt_compliance.json")]
        hosts = {host["host"] for answer in answers for host in answer}
    least = {name: min(runs) for name, runs in times.items()}
    ping = least["ping"]
    for name, one in least.items():
        print(f"{name}: {one:.1f} s for {count} hosts, {one / ping:.2f} times the ping's")
    print(f"each host waits {seconds} s at each call; {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}")
    return 0 if len(hosts) == count == sum(map(len, answers)) else 1


def commands(place: pathlib.Path) -> dict[str, list[str]]:
    """What is timed, by name."""

    def compliance(forks: int) -> list[str]:
        words = ["-i", "inventory.yml", "-f", str(forks), "threadwise.smt.smt_compliance"]
        return [str(BIN / "ansible-playbook"), *words, *POLICY]

    slices = ["--slices", str(SLICES), "--forks", str(FORKS), "inventory.yml", "--"]
    ping = [str(BIN / "ansible"), "all", "-i", "inventory.yml", "-f", str(FORKS), "-m", "ansible.builtin.ping"]
    calls = {f"one call, {forks} forks": compliance(forks) for forks in (FORKS, SLICES * FORKS)}
    return {"ping": ping, **calls, f"{SLICES} slices": [sys.executable, str(EXAMPLE), *slices, *POLICY]}


def wait(place: pathlib.Path, seconds: float) -> None:
    """Let each host keep the controller waiting before it answers."""
    slow = place / "python"
    slow.write_text(f'#!/bin/sh\nsleep {seconds}\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    path = place / "inventory.yml"
    known = yaml.safe_load(path.read_text())
    known["all"]["vars"]["ansible_python_interpreter"] = str(slow)
    path.write_text(yaml.safe_dump(known))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
