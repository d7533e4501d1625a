# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maker of synthetic trees: the files of sysfs and procfs that a machine of a given shape shows."""

import pathlib
from dataclasses import dataclass, field

CPU = "sys/devices/system/cpu/"
NODE = "sys/devices/system/node/"


@dataclass(frozen=True)
class Machine:
    """The shape of a machine."""

    packages: int = 1
    dies: int = 1
    cores: int = 2
    threads: int = 2
    small_cores: int = 0
    numbering: str = "split"
    spacing: int = None
    offline: tuple = ()
    slots: int = 0
    isolated: str = ""
    control: str = None
    model: str = "Synthetic CPU @ 2.00GHz"
    flags: str = "fpu lm ht"
    places: dict = field(init=False)

    def __post_init__(self):
        seats = [
            (thread, package, die, core)
            for package in range(self.packages)
            for die in range(self.dies)
            for core in range(self.cores + self.small_cores)
            for thread in range(self.threads if core < self.cores else 1)
        ]
        if self.numbering == "split":
            seats.sort()
        numbers = range(len(seats))
        if self.spacing is not None:
            in_package = len(seats) // self.packages
            numbers = [number // in_package * self.spacing + number % in_package for number in numbers]
        object.__setattr__(self, "places", {cpu: seat[1:] for cpu, seat in zip(numbers, seats)})

    @property
    def present(self):
        return tuple(sorted(self.places))

    @property
    def online(self):
        return tuple(cpu for cpu in self.present if cpu not in self.offline)

    def groups(self, depth, cpus=None):
        """CPUs grouped by the first `depth` of (package, die, core), as sorted tuples."""
        found = {}
        for cpu in self.present if cpus is None else cpus:
            found.setdefault(self.places[cpu][:depth], []).append(cpu)
        return tuple(sorted(map(tuple, found.values())))

    @property
    def core_groups(self):
        return self.groups(3)


def files(machine):
    """Path (str) -> text of each file a kernel of today shows for the machine."""
    last, online = machine.present[-1], set(machine.online)
    possible = machine.present + tuple(range(last + 1, last + 1 + machine.slots))
    active = max(len(group) for group in machine.groups(3, machine.online)) > 1
    usual = "on" if machine.threads > 1 and machine.cores else "notsupported"
    lists = {"present": machine.present, "possible": possible, "online": machine.online, "offline": machine.offline}
    tree = {CPU + name: cpulist(cpus) for name, cpus in lists.items()}
    tree |= {CPU + "isolated": machine.isolated + "\n", CPU + "kernel_max": "8191\n"}
    tree[CPU + "smt/control"] = (usual if machine.control is None else machine.control) + "\n"
    tree[CPU + "smt/active"] = f"{int(active)}\n"
    siblings = {
        (depth, cpu): group for depth in (1, 2, 3) for group in machine.groups(depth, machine.online) for cpu in group
    }
    for cpu in machine.present:
        tree[f"{CPU}cpu{cpu}/online"] = f"{int(cpu in online)}\n"
        if cpu in online:
            tree.update(_topology_files(machine, cpu, siblings))
    for package, cpus in enumerate(machine.groups(1)):
        there = tuple(cpu for cpu in cpus if cpu in online)
        tree[f"{NODE}node{package}/cpulist"] = cpulist(there)
        tree[f"{NODE}node{package}/cpumap"] = mask(there)
    tree["proc/cpuinfo"] = "".join(_cpuinfo_block(machine, cpu, siblings) for cpu in machine.online)
    return tree


def _topology_files(machine, cpu, siblings):
    folder = f"{CPU}cpu{cpu}/topology/"
    named = zip(("physical_package_id", "die_id", "core_id"), machine.places[cpu])
    tree = {folder + name: f"{number}\n" for name, number in named}
    depths = {"core_cpus": 3, "thread_siblings": 3, "die_cpus": 2, "package_cpus": 1, "core_siblings": 1}
    for name, depth in depths.items():
        tree[folder + name] = mask(siblings[depth, cpu])
        tree[folder + name + "_list"] = cpulist(siblings[depth, cpu])
    return tree


def _cpuinfo_block(machine, cpu, siblings):
    package, _dummy, core = machine.places[cpu]
    cores = len({machine.places[one] for one in siblings[1, cpu]})
    return (
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t:"
        f" {machine.model}\nstepping\t: 7\nmicrocode\t: 0x1\nphysical id\t: {package}\nsiblings\t:"
        f" {len(siblings[1, cpu])}\ncore id\t\t: {core}\ncpu cores\t: {cores}\nflags\t\t: {machine.flags}\n\n"
    )


def cpulist(cpus):
    """As the kernel writes it; on purpose not by the code under test."""
    parts = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in parts) + "\n"


def mask(cpus):
    """As the kernel writes it: words of eight hexadecimal digits, the highest first."""
    digits = f"{sum(1 << cpu for cpu in cpus):x}"
    digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8)) + "\n"


def without(tree, *endings):
    """The tree less the files whose path ends so."""
    return {path: text for path, text in tree.items() if not path.endswith(endings)}


def write(root, tree):
    """Put the files below `root` (a pathlib.Path or str), which is returned as str."""
    for path, text in tree.items():
        full = pathlib.Path(root, path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(root)
