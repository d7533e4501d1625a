# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's facts as one object: what each part holds, what follows from it, and the consistency of its parts."""

from __future__ import annotations

import functools
import importlib
import re
import typing as t

from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import (
    cache as sibling_cache,
    source as sibling_source,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    UNSET,
    CpuList,
    Number,
    Part,
    Sentence,
    Unset,
    about,
    at_most,
    between,
    entries,
    in_order,
    text_of,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.schema import MAX_CPUS, MAX_NUMBER, ONE_LINE
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError, line

# As made by `_set.facts` of module_utils.
_CLASS = re.compile(
    r"[a-z0-9_]{1,20}-(?P<sockets>[0-9]{1,5})s(?P<cores>[0-9]{1,5})c(?P<cpus>[0-9]{1,5})t-(?P<numbering>[a-z]{1,10})-[0-9a-f]{8}"
)

Integer = t.Annotated[int, between(-MAX_NUMBER, MAX_NUMBER)]
CpuCount = t.Annotated[int, between(0, MAX_CPUS)]
Short = t.Annotated[str, at_most(100)]
Word = t.Annotated[str, text_of(100, r"^[A-Za-z0-9_.:/ -]*$")]
Argument = t.Annotated[str, at_most(4096)]
Line = t.Annotated[str, text_of(100, ONE_LINE)]
Sentences = t.Annotated[tuple[Sentence, ...], at_most(1000)]
Arguments = t.Annotated[tuple[Argument, ...], at_most(100)]
CpuLists = t.Annotated[tuple[CpuList, ...], at_most(MAX_CPUS)]
# The names of the kernel's files.
VulnerabilityName = t.Annotated[str, text_of(None, r"^[A-Za-z0-9_.-]{1,64}$")]
NodeName = t.Annotated[str, text_of(None, r"^[0-9]{1,5}$")]
MethodName = t.Annotated[str, text_of(None, r"^[^\n]{1,255}$")]
HardwareClass = t.Annotated[
    str, text_of(100, r"^[a-z0-9_]{1,20}-[0-9]{1,5}s[0-9]{1,5}c[0-9]{1,5}t-[a-z]{1,10}-[0-9a-f]{8}$")
]
SmtStatus = t.Literal["vulnerable", "mitigated", "disabled", "unknown"]
Paired = t.Literal["shares", "apart"]
Numbering = t.Literal["split", "adjacent", "mixed", "none"]
if t.TYPE_CHECKING:
    Source = str
else:
    Source = t.Literal[("sysfs", "saved", "cpuinfo", "unknown", *sibling_source.NOT_THE_KERNELS)]


class Methods(Part, frozen=True, kw_only=True):
    """The ways to change SMT, now or from the next boot on."""

    chosen: t.Annotated[Word | None, about("The method that would be taken; null where none is possible.")]
    possible: t.Annotated[tuple[Word, ...], at_most(20), about("All methods that are possible here, the best first.")]
    impossible: t.Annotated[
        dict[MethodName, Sentence], entries(20), about("Each method that is not possible here -> the reason.")
    ]

    @property
    def blocked_by(self) -> str | None:
        """Why no method can change SMT, or None where one can."""
        if self.chosen:
            return None
        return next((line(why) or None for why in self.impossible.values()), None) or "no method is known here"


class AllMethods(Part, frozen=True, kw_only=True):
    """The ways to change SMT."""

    runtime: t.Annotated[Methods, about("Methods that change SMT now.")]
    boot: t.Annotated[Methods, about("Methods that change it from the next boot on.")]


class Ratio(Part, frozen=True, kw_only=True):
    """What was measured of two CPUs."""

    pair: t.Annotated[CpuList, about("CPU list of the two CPUs.")]
    result: t.Annotated[
        Paired | None,
        in_order(Paired),
        about("Whether the two share a core; null where this is not decided."),
    ]
    ratio: t.Annotated[
        Number | None,
        about("Speed when both run, as a share of the speed when one runs; null without enough samples."),
    ]
    low: t.Annotated[Number | None, about("Lower end of the ratio's confidence interval.")]
    high: t.Annotated[Number | None, about("Upper end of the ratio's confidence interval.")]


class Measured(Part, frozen=True, kw_only=True):
    """What a measurement of pairs said about siblings."""

    cpus: t.Annotated[CpuList, about("CPU list of the CPUs that were measured.")]
    pairs: t.Annotated[CpuLists, about("One CPU list for each two CPUs that share a core.")]
    singles: t.Annotated[CpuList, about("CPU list of the CPUs that share a core with no other.")]
    unclear: t.Annotated[CpuList, about("CPU list of the CPUs for which the measurement did not decide.")]
    rounds: t.Annotated[Number, about("Number of rounds.")]
    seconds: t.Annotated[parts.Seconds, about("Duration of the measurement, in seconds.")]
    confidence: t.Annotated[parts.Share, about("Confidence level of the intervals, 0 to 1.")]
    agrees_with_kernel: t.Annotated[
        bool | None, about("Whether the kernel reports the same siblings; null where it reports none.")
    ]
    measured_at: t.Annotated[parts.Moment, about("Time of the measurement, UTC.")]
    ratios: t.Annotated[
        tuple[t.Annotated[Ratio, about("")], ...], at_most(100_000), about("The measured ratio of each two CPUs.")
    ]

    @property
    def disagreement(self) -> str | None:
        """What it says against the kernel, as a sentence; None where it does not."""
        return sibling_cache.disagreement(self.agrees_with_kernel, self.pairs)


class PendingRollback(Part, frozen=True, kw_only=True):
    """What a rollout saved on the host before a change; both are null where the file cannot be used."""

    since: t.Annotated[Short | None, about("When it was saved, UTC.")]
    back_to: t.Annotated[
        t.Annotated[str, text_of(2000, ONE_LINE)] | None, about("The state that is put back, in a few words.")
    ]


class PendingChange(Part, frozen=True, kw_only=True):
    """A change that waits for its confirmation."""

    by: t.Annotated[t.Annotated[str, at_most(1000)], about("Who made the change, as part of a sentence.")]
    seconds_left: t.Annotated[parts.Count, about("In how many seconds it is rolled back without a confirmation, s.")]

    @property
    def sentence(self) -> str:
        """What is to be said of it, with the way out."""
        return line(
            f"a change {line(self.by)} waits for its confirmation, and is rolled back in about {self.seconds_left} s"
            " without it: confirm it, or wait for that"
        )


class Slot(Part, frozen=True, kw_only=True):
    """A slot for a reboot. Who was asked for it, and how it is released, is what the user wrote, and nothing of a
    host's.
    """

    granted: t.Annotated[bool, about("Whether it was granted; otherwise it was asked for, and may have been.")]
    since: t.Annotated[Line, about("When it was granted, or first asked for, UTC.")]


class Vulnerability(Part, frozen=True, kw_only=True):
    """A vulnerability as the kernel tells it."""

    status: t.Annotated[Sentence, about("The kernel's own line.")]
    smt: t.Annotated[
        SmtStatus | None,
        in_order(SmtStatus),
        about("The part of it that depends on SMT; null without one."),
    ]


class ThreadsPerCore(Part, frozen=True, kw_only=True):
    """The threads of cores."""

    min: t.Annotated[CpuCount | None, about("Threads of the core that has the least.")]
    max: t.Annotated[CpuCount | None, about("Threads of the core that has the most.")]
    online_max: t.Annotated[CpuCount | None, about("Threads that are online in the core that has the most of them.")]


class Cpus(Part, frozen=True, kw_only=True):
    """The CPUs of a host."""

    present: t.Annotated[CpuList, about("CPU list of the CPUs that are there.")]
    possible: t.Annotated[CpuList, about("CPU list of the CPUs that the kernel could have.")]
    online: t.Annotated[CpuList, about("CPU list of the CPUs that are online.")]
    offline: t.Annotated[CpuList, about("CPU list of the CPUs that are present, can be brought online and are not.")]
    isolated: t.Annotated[CpuList, about("CPU list of the CPUs that the scheduler leaves alone.")]


class Boot(Part, frozen=True, kw_only=True):
    """SMT-related boot arguments."""

    running: t.Annotated[
        Arguments | None, about("SMT-related boot arguments of the running kernel; null when unknown.")
    ]
    configured: t.Annotated[Arguments | None, about("SMT-related boot arguments of the next boot; null when unknown.")]
    loader: t.Annotated[Word, about("The boot loader.")]
    reboot_required: t.Annotated[bool | None, about("Whether the two differ; null when unknown.")]


class Consumer(Part, frozen=True, kw_only=True):
    """A program that counted CPUs."""

    program: t.Annotated[Word, about("Name of the program.")]
    unit: t.Annotated[Short | None, about("Its systemd unit; null outside of any.")]
    is_service: t.Annotated[bool, about("Whether that is a service of the system.")]
    counted: t.Annotated[CpuCount, about("The number of CPUs that it believes in.")]
    cpus: t.Annotated[CpuCount, about("The number of CPUs that it has.")]
    has: t.Annotated[Sentence, about("What it has for which number of CPUs.")]
    remedy: t.Annotated[Sentence, about("What makes it right.")]

    def sentence(self, has: str = "has") -> str:
        """Say what it has.

        Args:
            has: the words before the number of CPUs that it has, or would have.
        """
        return line(f"{self.has}, and {has} {self.cpus}: {self.remedy}")


Consumers = t.Annotated[tuple[t.Annotated[Consumer, about("")], ...], at_most(100)]

# What a documented fact is that no class declares, by its type: where that says enough, it needs no declaration.
BY_TYPE = {"bool": bool, "int": Integer, "float": Number, "str": Sentence, "list": Sentences}
# The module itself is for hosts, and not typed.
_RETURN = importlib.import_module("ansible_collections.threadwise.smt.plugins.modules.smt_facts").RETURN


@functools.partial(
    parts.with_documented,
    documentation=yaml_load(_RETURN)["ansible_facts"]["contains"]["smt"]["contains"],
    by_type=BY_TYPE,
)
class Facts(Part, frozen=True, kw_only=True, dict=True, gc=True):
    """``ansible_facts['smt']`` of a host.

    Whichever version of the collection read them, the facts are there that have no default; the others came later. All
    facts are described, and some of the later ones are named, where smt_facts documents them alone.
    """

    supported: bool | None
    control: Short
    active: bool | None
    sockets: CpuCount | None
    cores: CpuCount | None
    threads_per_core: ThreadsPerCore
    cpus: Cpus
    packages: CpuLists
    sibling_groups: CpuLists
    primaries: CpuList
    secondaries: CpuList
    nodes: t.Annotated[dict[NodeName, CpuList], entries(4096)]
    numbering: t.Annotated[Numbering, in_order(Numbering)]
    source: t.Annotated[Source, in_order(Source)]
    complete: bool
    measured: Measured | None
    boot: Boot
    vulnerabilities: t.Annotated[dict[VulnerabilityName, t.Annotated[Vulnerability, about("")]], entries(200)]
    hypervisor: Short | None
    methods: AllMethods
    hardware_class: HardwareClass | None
    pending_rollback: PendingRollback | None
    problems: Sentences
    online_before: CpuList | Unset | None = UNSET
    pending_change: PendingChange | Unset | None = UNSET
    consumers: Consumers | Unset = UNSET
    consumers_after_switch: Consumers | Unset = UNSET
    reboot_slot: Slot | Unset | None = UNSET
    ppc64_cpu: t.Annotated[str, text_of(4000, r"^SMT[A-Za-z0-9=:,; *-]*$")] | Unset | None = UNSET
    provider: Sentence | Unset | None = UNSET
    kernel: Sentence | Unset | None = UNSET

    @property
    def core_cpus(self) -> list[tuple[int, ...]]:
        """The CPUs of each core that is known."""
        return list(filter(None, self.topology.cores))

    @functools.cached_property
    def topology(self) -> Topology:
        """What is known of the host's cores, packages and nodes."""
        return Topology(
            # Of those present some may be none that the host can use.
            present=cpulist.parse(",".join(filter(None, (self.cpus.online, self.cpus.offline)))),
            online=cpulist.parse(self.cpus.online),
            cores=tuple(map(cpulist.parse, self.sibling_groups)),
            packages=tuple(map(cpulist.parse, self.packages)),
            nodes={int(node): cpulist.parse(cpus) for node, cpus in self.nodes.items()},
        )

    @property
    def disagreement(self) -> str | None:
        """What measuring says against the kernel, as a sentence; None where it does not."""
        return self.measured.disagreement if self.measured else None

    @property
    def without_smt(self) -> bool:
        """Whether no setting of the host would put two threads on a core.

        A guest whose CPUs share cores by measurement, against its kernel, has SMT that it cannot see.
        """
        return self.supported is False and self.active is not True and not self.disagreement

    @property
    def is_guest_without_siblings(self) -> bool:
        """Whether the host is a guest of whose CPUs no two share a core, as far as its kernel knows."""
        return self.hypervisor is not None and self.supported is not True

    def open_by_smt(self, status: SmtStatus = "vulnerable") -> tuple[str, ...]:
        """Return the vulnerabilities whose part that depends on SMT has a status, in order of their names."""
        return tuple(sorted(name for name, entry in self.vulnerabilities.items() if entry.smt == status))


def made(data: t.Any) -> Facts:
    """Make facts of plain data whose texts are safe to display.

    Raises:
        BorderError: not valid; the message names the place of the first error.
    """
    facts = parts.converted(data, Facts)
    check(facts)
    return facts


def of_answer(registered: t.Any) -> Facts | None:
    """Make facts of what Ansible has kept of an answer of smt_facts; None where they are not in it.

    Raises:
        BorderError: as :func:`made`.
    """
    kept = registered.get("ansible_facts") if isinstance(registered, dict) else None
    if not isinstance(kept, dict) or "smt" not in kept:
        return None
    return made(parts.untagged(kept["smt"]))


def check(facts: Facts) -> None:
    """Check what no type says of facts: that they are consistent.

    The cost is linear in the number of CPUs, whatever the lists contain.

    Raises:
        BorderError: a text is not a CPU list, a CPU is in two cores, packages or nodes, or the hardware class does not
            match the facts.
    """
    for name in Cpus.__struct_fields__:
        _disjoint([getattr(facts.cpus, name)], f"cpus.{name}")
    # A CPU belongs to one core and one package (the kernel's Documentation/admin-guide/cputopology.rst).
    for name in ("sibling_groups", "packages"):
        _disjoint(getattr(facts, name), name)
    # Some firmware lists a CPU in two nodes.
    left = 4 * MAX_CPUS
    for cpus in facts.nodes.values():
        left -= len(_cpus(cpus, "nodes", min(left, MAX_CPUS)))
    for name in ("primaries", "secondaries", "online_before"):
        _disjoint([getattr(facts, name) or ""], name)
    if facts.measured:
        for name in ("cpus", "singles", "unclear"):
            _disjoint([getattr(facts.measured, name)], f"measured.{name}")
        _disjoint(facts.measured.pairs, "measured.pairs")
        for ratio in facts.measured.ratios:
            _disjoint([ratio.pair], "measured.ratios", most=2)
    if facts.hardware_class is not None:
        _check_class(facts, facts.hardware_class)


def _disjoint(lists: t.Sequence[str], where: str, most: int = MAX_CPUS) -> None:
    """Check that no CPU is in two of the lists, and that they have at most ``most`` CPUs."""
    seen: set[int] = set()
    for cpus in lists:
        numbers = _cpus(cpus, where, most - len(seen))
        if not seen.isdisjoint(numbers):
            raise BorderError(f"{where}: CPU {min(seen.intersection(numbers))} is named twice")
        seen.update(numbers)


def _cpus(cpus: str, where: str, most: int) -> tuple[int, ...]:
    try:
        return cpulist.parse(cpus, most)
    except cpulist.CpuListError as error:
        raise BorderError(f"{where}: {error}") from error


def _check_class(facts: Facts, name: str) -> None:
    """Check that the readable part of a hardware class matches the facts:
    it selects the hosts that an evaluation applies to.

    The class is of the kernel's cores. Facts with measured or declared siblings show others.
    """
    match = _CLASS.fullmatch(name)
    shape = {"sockets": str(len(facts.packages)), "cpus": str(len(facts.topology.present))}
    if facts.source not in sibling_source.NOT_THE_KERNELS:
        shape.update(cores=str(len(facts.sibling_groups)), numbering=facts.numbering)
    wrong = [name for name, value in shape.items() if match is None or match[name] != value]
    if wrong:
        raise BorderError(
            f"hardware_class: {name} is not the class of the machine that these facts show (its {', '.join(wrong)})"
        )
