# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What many hosts with smt_pull export, as one text."""

import dataclasses
import datetime

import compliance_maker
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import metrics as of_pull
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check

HONOURED = {"honor_labels": True}
HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine with a file of smt_pull."""

    says: str
    at: float
    instance: str = ""
    result: dict | None = dataclasses.field(default_factory=lambda: found("compliant"))

    def text(self):
        """Return the file, as the pull writes it."""
        judged, at = None, datetime.datetime.fromtimestamp(self.at, datetime.UTC)
        if self.result is not None:
            judged = registry.formats()["metrics"].make(Check([(self.says, self.result)], at))
        return of_pull.text(self.says, of_pull.Outcome(self.at, judged is not None, None, None, None, judged))

    def exported(self):
        """Return its series, each with the labels of the target."""
        return with_target(self.text(), self.instance or f"{self.says}:9100")


def found(status, sentence="", **known):
    """Return what a check found of a host."""
    of_all = {"wanted": "disabled", "scope": "runtime", "hardware_class": "x86_64-2s64c128t-split"}
    return compliance_maker.found(status, sentence, **of_all, **known)


def drifted():
    """Return what a check found of a host whose SMT is on."""
    running = {"status": "drifted", "reasons": ["CPUs 4-7 are online"], "blocked_by": None}
    return found("drifted", "running: CPUs 4-7 are online", running=running)


def with_target(text, instance, job="node"):
    """Return the series of a file with the labels of a target."""
    target = f'{{job="{job}",instance="{instance}",'
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    return "".join(line.replace("{", target, 1) for line in lines)


@dataclasses.dataclass(frozen=True)
class Fleet:
    """A fleet with planted machines."""

    earlier: tuple[Machine, ...]  # as they were before they were renamed: a pull writes over the file of the one before
    machines: tuple[Machine, ...]
    expected: dict[str, str]  # host of the inventory -> status
    strangers: list[str]  # the names that the inventory has not

    @property
    def text(self):
        """What they export."""
        return "".join(one.exported() for one in self.machines)

    def scraped_by(self, exporter):
        """Have a server scrape what they exported before, and then what they export."""
        for text in ("".join(one.exported() for one in self.earlier), self.text):
            exporter.text = text
            exporter.wait(2)


def planted(hosts, each, now):
    """Return a fleet of so many hosts, of which so many of each kind drifted, are silent, were renamed in the inventory
    and on the machine or on the machine alone, have two names, share one, or are not known to the server.
    """
    names = [f"h{number:05}" for number in range(hosts)]
    expected, earlier, machines, strangers = dict.fromkeys(names, "compliant"), [], [], []
    kinds = iter(names)

    def some():
        return [next(kinds) for _one in range(each)]

    fresh = now - 0.5 * HOUR
    for name in some():
        machines.append(Machine(name, fresh, result=drifted()))
        expected[name] = "drifted"
    for name in some():
        machines.append(Machine(name, now - 30 * HOUR))
        expected[name] = "silent"
    for name in some():
        # The server has the series of both names, because the target is the same.
        address = f"{name}.example.com:9100"
        earlier.append(Machine(f"old-{name}", now - 1.5 * HOUR, address, drifted()))
        machines.append(Machine(name, fresh, address))
        strangers.append(f"old-{name}")
    for name in some():
        earlier.append(Machine(name, now - 1.5 * HOUR))
        machines.append(Machine(f"new-{name}", fresh, f"{name}:9100"))
        expected[name] = "unknown_to_server"
        strangers.append(f"new-{name}")
    for number, name in enumerate(some()):
        machines += [Machine(name, fresh), Machine(name, fresh, f"10.0.{number // 250}.{number % 250}:9100")]
    for name in some():
        machines += [Machine(name, fresh), Machine(name, now - HOUR, f"clone-of-{name}:9100", drifted())]
        expected[name] = "unknown"
    for name in some():
        expected[name] = "unknown_to_server"
    machines += [Machine(name, fresh) for name in kinds]
    return Fleet(tuple(earlier), tuple(machines), expected, strangers)
