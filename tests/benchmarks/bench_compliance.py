# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What compliance costs: time and memory of the controller beside `ansible -m ping` on the same simulated hosts.

usage: PYTHONPATH=tests/unit python tests/benchmarks/bench_compliance.py [HOSTS]        (default: 200)

The hosts are local connections with recorded trees of four hardware classes, forks 10. Each of the two is run twice, in
turn; the lesser time counts. What a host adds to the controller's memory is the difference to a tenth of the hosts;
what it returns is what it adds beyond the ping.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import time

import sysfs_tree
import yaml
from sysfs_tree import Machine

BIN = pathlib.Path(sys.executable).parent
FORKS = 10
ROUNDS = 2
PROJECTED = 10_000
MAX_TIMES, MAX_KIB = 2, 20
MIB = 1024

LARGE = Machine(packages=2, cores=32)
MACHINES = {
    "small": Machine(),
    "large": LARGE,
    "off": dataclasses.replace(LARGE, offline=tuple(range(64, 128)), control="off"),
    "without": Machine(cores=8, threads=1),
}


def main(words: list[str]) -> int:
    """Run both and print what they cost; the exit code is 1 when compliance takes more than twice the ping's time,
    or 20 KiB a host beyond it.
    """
    count = int(words[0]) if words else 200
    few = max(1, count // 10)
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        os.chdir(place)
        inventory(place, count)
        where = ["-i", "inventory.yml", "-f", str(FORKS)]
        compliance = ["threadwise.smt.smt_compliance", "-e", "smt_policy=disabled"]
        commands = {
            "ping": [str(BIN / "ansible"), "all", *where, "-m", "ansible.builtin.ping"],
            "compliance": [str(BIN / "ansible-playbook"), *where, *compliance],
        }
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
        for dummy in range(ROUNDS):
            for name, command in commands.items():
                found[name].append(measure(place, command))
        judged = len(json.loads((place / "smt_compliance.json").read_text())["hosts"])
        least = {
            name: measure(place, [*command, "--limit", f"all[0:{few - 1}]"])[1] for name, command in commands.items()
        }
    if judged != count:
        print(f"only {judged} of {count} hosts were judged", file=sys.stderr)
        return 2
    times = {name: min(seconds for seconds, dummy in runs) for name, runs in found.items()}
    for name, seconds in times.items():
        memory = max(kilobytes for dummy, kilobytes in found[name]) / MIB
        each = seconds / count
        print(
            f"{name}: {seconds:.1f} s for {count} hosts, {1000 * each:.0f} ms a host, at most {memory:.0f} MiB in one"
            f" process; {PROJECTED} hosts would take {PROJECTED * each / 60:.0f} minutes"
        )
    ratio = times["compliance"] / times["ping"]
    print(
        f"compliance takes {ratio:.2f} times the ping's time (load average {os.getloadavg()[0]:.1f}, {os.cpu_count()}"
        " CPUs)"
    )
    added = {
        name: (max(kilobytes for dummy, kilobytes in runs) - least[name]) / (count - few)
        for name, runs in found.items()
    }
    print(
        f"a host adds {added['compliance']:.1f} KiB to compliance and {added['ping']:.1f} KiB to ping ({count} hosts"
        f" against {few})"
    )
    return 1 if ratio > MAX_TIMES or added["compliance"] - added["ping"] > MAX_KIB else 0


def inventory(place: pathlib.Path, count: int) -> None:
    """Hosts that take turns in the trees of the machines."""
    trees = [sysfs_tree.write(place / name, sysfs_tree.files(machine)) for name, machine in MACHINES.items()]
    hosts = {f"h{number:05}": {"smt_facts_sysroot": str(trees[number % len(trees)])} for number in range(count)}
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (place / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": common}}))


def measure(place: pathlib.Path, command: list[str]) -> tuple[float, int]:
    """Run a command.

    Returns its wall seconds, and the most memory one of its processes had (KiB), forks not added up.
    """
    with (place / "log").open("w") as log:
        begun = time.monotonic()
        process = os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, log.fileno(), 1), (os.POSIX_SPAWN_DUP2, log.fileno(), 2)],
        )
        _dummy, _dummy_status, usage = os.wait4(process, 0)
    return time.monotonic() - begun, usage.ru_maxrss


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
