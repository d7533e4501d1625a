# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all arms: what an arm has to offer.

An arm is one of the states of a host that an evaluation or a trial compares. A file of this folder defines the arms
that switch the same thing at run time, one of ``booted`` those that set the same boot argument. Each lists them in
``ARMS``; the registries find them, and everybody else asks the catalogue.
"""

import fnmatch
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, processes
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state


class ArmError(Exception):
    """The host cannot be switched to an arm; the text gives the reason."""


# Settings of a host by name, for people.
Values = t.Mapping[str, t.Union[str, int, None]]


class ArmHost(t.NamedTuple):
    """The host and the settings of the evaluation, as an arm needs them.

    Attributes:
        facts: ``ansible_facts['smt']``.
        topology: the host's topology.
        origin: the state of SMT before anything was switched; a sibling that is offline in it although SMT is in use
            stays offline.
        selected_conflicts: whose affinity conflicts prevent a comparison, as in ``affinity.selected``; empty for
            nobody's.
        overcommit_ratio: percent of RAM, or None for the host's own.
        files: the host's files.
        run: runs a command without a shell; returns its exit status, output and error output.
    """

    facts: "t.Mapping[str, t.Any]"
    topology: Topology
    origin: smt_state.State
    selected_conflicts: "t.Sequence[str]" = ()
    overcommit_ratio: "int | None" = None
    files: KernelFiles = KernelFiles("/")
    run: "t.Callable[[list[str]], tuple[int, str, str]]" = processes.run


# What an arm does to siblings: offline on all cores or on some, online but idle for the measured work, online, or what
# its number of CPUs leaves of them.
OFFLINE, PARTLY, IDLE, ONLINE, BY_CPUS = "offline", "partly", "idle", "online", "by_cpus"
# Files that a message names.
_MAX_NAMED = 5
_IN_FORCE = re.compile(r"\[([^\[\]\s]+)\]")
_CPUS = "sys/devices/system/cpu/"
_OF_CPU = re.compile(_CPUS + r"cpu([0-9]+)/")


class Boot(t.NamedTuple):
    """How a host is booted into an arm; without options it is not.

    Attributes:
        argument: the boot argument; empty for none of this collection.
        smt: the option of smt_boot_args: `enabled`, `disabled` or `forced_off`; None where it is left out.
        maxcpus: the same: a number in digits.
        mitigations: the same: `auto`, `auto_nosmt` or `off`.
    """

    argument: str = ""
    smt: "str | None" = None
    maxcpus: "str | None" = None
    mitigations: "str | None" = None

    @property
    def options(self) -> "dict[str, str]":
        """The options of smt_boot_args."""
        return {name: value for name, value in self._asdict().items() if name != "argument" and value is not None}


class Arm:
    """What is known of an arm by its name alone.

    Args:
        name: the arm's name, which ``pattern`` matches.

    Attributes:
        pattern: a regular expression of the names of this arm.
        written: the names of this arm as the documentation has them, where the pattern is not the only name.
        summary: what the arm is, and how it is switched, for the table in the documentation.
        needs: what a host needs for it, for that table.
        key, parts: of an arm of a part of the host, the key of the mapping that users may write, and the kinds of
            parts: ``{smt_off_on: {node: 0}}``.
        takes_reboot: whether a host can only be booted into it.
        boot: how a host is booted into it. One that does not take a reboot is booted only where no other arm asks for
            a boot of its own, or as the baseline.
        siblings: what it does to siblings, as above; None where it leaves them as they were found.
        leaves_open: what it leaves open to attacks, as a part of a sentence; empty where it leaves open no more than a
            boot without arguments.
        allowed_by: the variable of the role smt_eval that has to be true before a host is in it; empty where none has
            to.
        trial: the options of smt_state by which a trial holds a live host in it, under a rollback timer; None where
            smt_state cannot. Those that take a reboot are asked for by ``boot``.
        name: as above.
        title: the name for people.
        settings: what the arm sets, as plain data for the result: name -> number or text.
    """

    pattern: str = ""
    written: "tuple[str, ...]" = ()
    summary: str = ""
    needs: str = ""
    key: str = ""
    parts: "tuple[str, ...]" = ()
    takes_reboot: bool = False
    boot: Boot = Boot()
    siblings: t.Optional[str] = None
    leaves_open: str = ""
    allowed_by: str = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: dict[str, t.Any] = {}

    @classmethod
    def matches(cls, name: str) -> bool:
        """Return whether this is the arm with a name."""
        return re.fullmatch(cls.pattern, name) is not None

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name.replace("_", " ")

    @property
    def trial(self) -> "dict[str, t.Any] | None":
        """The options of smt_state, as above."""
        return None


class BootedArm(Arm):
    """An arm that takes a reboot; ``boot`` is its own."""

    takes_reboot = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.settings = {"boot_argument": self.boot.argument}
        if self.leaves_open:
            self.settings["leaves_open"] = self.leaves_open

    @property
    def title(self) -> str:
        """The boot argument."""
        return self.boot.argument


class RuntimeArm(Arm):
    """An arm that is switched at run time; this base class leaves the host as it was found.

    ``examine`` has to be called before any other method.

    Attributes:
        lever: what the arm switches. Of arms with the same lever each replaces the other; the lever of the previous arm
            is restored first where it is another one. Empty for an arm that switches nothing. Where several things of a
            kind can be switched, such as units, an arm adds ``:`` and which one.
        switches_cpus: whether CPUs go online or offline.
        is_of_each_cpu: whether the lever is a value of each CPU: one that comes online has the value from when it went
            offline, so it is set after CPUs are switched.
        takes_of: what the arm takes from, or limits, that arms with other levers do, too; empty for nothing.
        more_work: the amount of work in a sample, in that of other arms.
        host: the host.
        reason: why the host cannot be switched to this arm, or None.
        is_as_found: whether the host is in this arm already, so that there is nothing to compare it with where the host
            as found is an arm, too.
    """

    lever: str = ""
    switches_cpus: bool = False
    is_of_each_cpu: bool = False
    takes_of: str = ""
    more_work: float = 1.0
    host: ArmHost

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reason: t.Optional[str] = None
        self.is_as_found = False

    @property
    def made_of(self) -> "tuple[RuntimeArm, ...]":
        """The arms that are switched for this one, each with a lever of its own: itself, or both of a combined one."""
        return (self,)

    @property
    def levers(self) -> "set[str]":
        """What is switched."""
        return {part.lever for part in self.made_of if part.lever}

    def examine(self, host: ArmHost) -> None:
        """Look at the host: why it cannot have this arm, and what would be set."""
        self.host = host

    def online(self) -> "set[int]":
        """Return the CPUs that are online in this arm, as far as the topology is known."""
        return set(self.host.origin["online"])

    def for_workers(self, usable: "set[int]") -> "set[int]":
        """Return which CPUs the plan's workers may use in this arm.

        Args:
            usable: the CPUs that are online in this arm and that the plan may use at all.
        """
        return usable

    def announcement(self) -> "list[str]":
        """Describe what the arm switches, in sentences for a person; the first follows the arm's title and a colon."""
        return ["nothing is switched."]

    def conflicts(self) -> "list[str]":
        """Describe the affinity conflicts of the arm, in sentences for a person."""
        return []

    def restoration(self) -> "str | None":
        """Name what is restored afterwards, as a part of a sentence, or None for an arm that switches nothing."""
        return None

    def prepare(self) -> bool:
        """Do what the lever needs before the first block.

        Returns:
            True when the topology has to be read again afterwards.

        Raises:
            ArmError: The host cannot be prepared.
        """
        return False

    def switch(self) -> None:
        """Switch the host to this arm, from a host as it was found or from an arm with the same lever.

        Raises:
            ArmError: The host cannot be switched.
        """

    def prove(self) -> None:
        """Read the host and see that it is in this arm, after a switch and again after the samples.

        Raises:
            ArmError: The host is not in this arm, or its state cannot be read.
        """

    def observe(self) -> "dict[str, t.Any] | None":
        """Return what is recorded once in this arm besides its samples (plain data), or None."""
        return None

    def save(self) -> "dict[str, t.Any]":
        """Return the present state of what the lever changes: plain data from which another process can restore it."""
        return {}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore what the lever changed. Another object, in another process, may have switched it.

        Args:
            saved: by lever what ``save`` of the lever's first arm returned, and as ``cpu`` the state of the CPUs.

        Returns:
            What could not be restored, one sentence each.
        """
        return []

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return what of the lever shows whether it is restored, as it was saved and as it is now.

        What differs between the two is a difference.

        Args:
            files: the host's files.
            saved: as ``save`` returned it.
        """
        return {}, {}


class ValueArm(RuntimeArm):
    """A value of a file of the kernel, or of one file for each CPU: read, written, proved, and restored as it was.

    The value is the last part of the arm's name. A file that lists its choices has the value in brackets:
    ``always [madvise] never``.

    Only what exists counts, and of the files of CPUs only those of CPUs that are online. The kernel removes the files
    of a CPU that is offline, or refuses to read them (EBUSY of cpufreq). Other arms of the same evaluation take
    siblings offline: a value that is missing then is not one that somebody has changed, so that ``states`` and
    ``prove`` have to ignore it. Which CPUs are online is proved for each arm, besides.

    What is switched, the ``lever``, is the path: arms of one path replace each other.

    Attributes:
        path: the file below the root, with ``*`` in a part of it for several files, such as ``cpu*``.
        setting: what the value is of, for people.
        choices: a file in the same directory with the values that the kernel accepts; empty where there is none.
        remark: what a switch leaves as it is, as a part of a sentence; empty for nothing.
        refused: why the kernel may not take a value that it did not refuse, as a part of a sentence.
        value: the arm's value, a number where it is one.
    """

    path: str = ""
    setting: str = ""
    choices: str = ""
    remark: str = ""
    refused: str = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.lever = cls.path
        cls.is_of_each_cpu = "/cpu*/" in cls.path

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.value = _plain(name.rpartition("_")[2])
        self.settings = {self._key(): self.value}

    def examine(self, host: ArmHost) -> None:
        """Look at the files that exist."""
        super().examine(host)
        present = self._present()
        self._found = _in_words(present)
        self.is_as_found = set(present.values()) == {self.value}
        if not present:
            self.reason = f"this kernel has no {self.setting} (no /{self.path})"
            return
        for path in present:
            known = self._choices(path)
            if known and self.value not in known:
                self.reason = f"/{path} does not take {self.value}: the kernel has {', '.join(map(str, known))}"

    def _choices(self, path: str) -> "list[str | int]":
        """Return the values that the kernel accepts; none where it does not list them."""
        if self.choices:
            path = f"{path.rpartition('/')[0]}/{self.choices}"
        text = self.host.files.read(path) or ""
        return [_plain(word.strip("[]")) for word in text.split()] if self.choices or _IN_FORCE.search(text) else []

    @classmethod
    def _key(cls) -> str:
        """Return the name of the setting in results: of a sysctl its own, otherwise the path."""
        begin = "proc/sys/"
        return cls.path[len(begin) :].replace("/", ".") if cls.path.startswith(begin) else cls.path.replace("*", "N")

    @property
    def title(self) -> str:
        """The setting and its value."""
        return f"{self.setting}: {self.value}"

    def announcement(self) -> "list[str]":
        """Describe the switch."""
        if self.is_as_found:
            return [f"/{self.path} is {self.value}, as it is now."]
        remark = self.remark and f"; {self.remark}"
        return [f"/{self.path} is switched from {self._found} to {self.value}{remark}."]

    def restoration(self) -> "str | None":
        """Name the setting."""
        return f"{self.setting} ({self._found})"

    def _present(self) -> "dict[str, str | int]":
        return values_of(self.host.files, paths_of(self.host.files, self.path))

    def switch(self) -> None:
        """Write the value; where the kernel does not take it, what was there before is written again."""
        before = self._present()
        left = self._write(dict.fromkeys(before, self.value))
        if left:
            raise ArmError("; ".join(left + self._write(before)))

    def _write(self, values: "t.Mapping[str, str | int]") -> "list[str]":
        """Write the values of files that read another one, as far as they are there; return what the kernel did not
        take, one sentence each.
        """
        left = []
        for path, present in values_of(self.host.files, values).items():
            value = values[path]
            if present == value:
                continue
            try:
                self.host.files.write(path, str(value))
            except OSError as error:
                left.append(f"/{path}: the kernel does not accept {value}: {error.strerror}")
                continue
            now = values_of(self.host.files, [path]).get(path)
            if now != value:
                why = self.refused and f": {self.refused}"
                left.append(f"/{path} reads {now} after {value} was written to it{why}")
        return left if len(left) <= _MAX_NAMED else [*left[:_MAX_NAMED], f"and {len(left) - _MAX_NAMED} more files"]

    def prove(self) -> None:
        """Read the value."""
        present = self._present()
        if set(present.values()) != {self.value}:
            raise ArmError(f"/{self.path} reads {_in_words(present)}, not {self.value}")

    def save(self) -> "dict[str, t.Any]":
        """Return the present values, by file."""
        return self._present()

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Write the saved values."""
        return self._write(saved[self.lever])

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return the values, as they were saved and as they are; without CPUs that are offline."""
        paths = _reachable(files, saved)
        now = values_of(files, paths)
        was = {path: saved[path] for path in paths}
        return {cls._key(): _in_words(was)}, {cls._key(): _in_words({path: now.get(path) for path in paths})}


def _plain(text: str) -> "str | int":
    return int(text) if text.isdigit() else text


def paths_of(files: KernelFiles, pattern: str) -> "list[str]":
    """Return the paths that a pattern may stand for, without those of CPUs that are offline."""
    paths = [""]
    for part in pattern.split("/"):
        paths = [
            f"{folder}/{name}".lstrip("/")
            for folder in paths
            for name in (fnmatch.filter(files.names(folder), part) if "*" in part else [part])
        ]
    return _reachable(files, paths)


def _reachable(files: KernelFiles, paths: "t.Iterable[str]") -> "list[str]":
    """Return paths without those of CPUs that are offline."""
    online = cpulist.parse_or_empty(files.read(_CPUS + "online"))
    cpus = {path: _OF_CPU.match(path) for path in paths}
    return [path for path, cpu in cpus.items() if cpu is None or int(cpu.group(1)) in online]


def values_of(files: KernelFiles, paths: "t.Iterable[str]") -> "dict[str, str | int]":
    """Return what files read, by path, as far as they can be read."""
    values: dict[str, t.Union[str, int]] = {}
    for path in _reachable(files, paths):
        text = files.read(path)
        if text is not None:
            chosen = _IN_FORCE.search(text)
            values[path] = _plain(chosen.group(1) if chosen else text)
    return values


def _in_words(values: "t.Mapping[str, str | int | None]") -> "str | int | None":
    """Return the value that all files have, or which have which: ``powersave (CPUs 0-2), performance (CPUs 3)``."""
    by_value: dict[t.Union[str, int, None], list[str]] = {}
    for path, value in values.items():
        by_value.setdefault(value, []).append(path)
    if len(by_value) <= 1:
        return next(iter(by_value), None)
    cpus = {path: _OF_CPU.match(path) for path in values}
    return ", ".join(
        f"{value} (CPUs {cpulist.render([int(cpu.group(1)) for cpu in map(cpus.get, paths) if cpu])})"
        if all(map(cpus.get, paths))
        else f"{value} ({', '.join(paths)})"
        for value, paths in by_value.items()
    )
