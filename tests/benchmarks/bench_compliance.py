# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What compliance costs: time and memory of the controller beside `ansible -m ping` on the same simulated hosts."""

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
    """Run both and print what they cost; the exit code is 1 when compliance takes more than is allowed."""
    count = int(words[0]) if words else 200
    few = max(1, count // 10)
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        os.chdir(place)
        inventory(place, count)
        where = ["-i", "inventory.yml", "-f", str(FORKS)]
        compliance = ["threadwise.smt.smt_compliance", "-e", "smt_policy=disabled"]
        ask, play = str(BIN / "ansible"), str(BIN / "ansible-playbook")
        commands = {
            "ping": [ask, "all", *where, "-m", "ansible.builtin.ping"],
            "compliance": [play, *where, *compliance],
        }
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
        for dummy in range(ROUNDS):
            for name, command in commands.items():
                found[name].append(measure(place, command))
        judged = len(json.loads((place / "smt_compliance.json").read_text())["hosts"])
        limit = ("--limit", f"all[0:{few - 1}]")
        least = {name: measure(place, [*command, *limit])[1] for name, command in commands.items()}
    if judged != count:
        print(f"only {judged} of {count} hosts were judged", file=sys.stderr)
        return 2
    times = {name: min(seconds for seconds, dummy in runs) for name, runs in found.items()}
    most = {name: max(kilobytes for dummy, kilobytes in runs) for name, runs in found.items()}
    for name, seconds in times.items():
        each = seconds / count
        print(f"{name}: {seconds:.1f} s for {count} hosts, {1000 * each:.0f} ms a host, at most", end=" ")
        print(f"{most[name] / MIB:.0f} MiB in one process; {PROJECTED} hosts: {PROJECTED * each / 60:.0f} minutes")
    ratio, load = times["compliance"] / times["ping"], os.getloadavg()[0]
    print(f"compliance takes {ratio:.2f} times the ping's time (load average {load:.1f}, {os.cpu_count()} CPUs)")
    added = {name: (most[name] - least[name]) / (count - few) for name in commands}
    print(
        f"a host adds to {', '.join(f'{name} {one:.1f} KiB' for name, one in added.items())} ({few} to {count} hosts)"
    )
    return 1 if ratio > MAX_TIMES or added["compliance"] - added["ping"] > MAX_KIB else 0


def inventory(place: pathlib.Path, count: int) -> None:
    """Hosts that take turns in the trees of the machines."""
    trees = [sysfs_tree.write(place / name, sysfs_tree.files(machine)) for name, machine in MACHINES.items()]
    hosts = {f"h{number:05}": {"smt_facts_sysroot": str(trees[number % len(trees)])} for number in range(count)}
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (place / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": common}}))


def measure(place: pathlib.Path, command: list[str]) -> tuple[float, int]:
    """Run a command. Returns its seconds and the most memory of one of its processes in KiB."""
    with (place / "log").open("w") as log:
        outputs = [(os.POSIX_SPAWN_DUP2, log.fileno(), number) for number in (1, 2)]
        begun = time.monotonic()
        process = os.posix_spawn(command[0], command, os.environ, file_actions=outputs)
        _dummy, _dummy_status, usage = os.wait4(process, 0)
    return time.monotonic() - begun, usage.ru_maxrss


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
