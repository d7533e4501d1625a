# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of a host's facts, ``smt``, ``smt_memory`` and ``smt_firmware``, and the consistency of their parts."""

from __future__ import annotations

import importlib
import re
import typing as t

from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import source as sibling_source
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError

# As made by the package `_facts` of module_utils.
_CLASS = re.compile(
    r"[a-z0-9_]{1,20}-(?P<sockets>[0-9]{1,5})s(?P<cores>[0-9]{1,5})c(?P<cpus>[0-9]{1,5})t-(?P<numbering>[a-z]{1,10})-[0-9a-f]{8}"
)
# A CPU belongs to one core and one package (the kernel's Documentation/admin-guide/cputopology.rst).
_PARTITIONS = ("sibling_groups", "packages")

_BOOL = schema.or_null(schema.BOOL)
_COUNT = schema.or_null(schema.count(schema.MAX_CPUS))
_SENTENCE = schema.text(4000)
_SENTENCES = schema.items(_SENTENCE, 1000)
_ARGUMENTS = schema.or_null(schema.items(schema.text(4096), 100))
_CPU_LISTS = schema.items(schema.CPU_LIST, schema.MAX_CPUS)
_WORD = schema.text(100, r"^[A-Za-z0-9_.:/ -]*$")

_METHODS = schema.whole(
    chosen=schema.about(schema.or_null(_WORD), "The method that would be taken; null where none is possible."),
    possible=schema.about(schema.items(_WORD, 20), "All methods that are possible here, the best first."),
    impossible=schema.about(schema.mapping(_SENTENCE, 20), "Each method that is not possible here -> the reason."),
)

_MEASURED = schema.whole(
    cpus=schema.about(schema.CPU_LIST, "CPU list of the CPUs that were measured."),
    pairs=schema.about(_CPU_LISTS, "One CPU list for each two CPUs that share a core."),
    singles=schema.about(schema.CPU_LIST, "CPU list of the CPUs that share a core with no other."),
    unclear=schema.about(schema.CPU_LIST, "CPU list of the CPUs for which the measurement did not decide."),
    rounds=schema.about(schema.NUMBER, "Number of rounds."),
    seconds=schema.about(schema.SECONDS, "Duration of the measurement, in seconds."),
    confidence=schema.about(schema.SHARE, "Confidence level of the intervals, 0 to 1."),
    agrees_with_kernel=schema.about(_BOOL, "Whether the kernel reports the same siblings; null where it reports none."),
    measured_at=schema.about(schema.MOMENT, "Time of the measurement, UTC."),
    ratios=schema.about(
        schema.items(
            schema.whole(
                pair=schema.about(schema.CPU_LIST, "CPU list of the two CPUs."),
                result=schema.about(
                    schema.one_of("shares", "apart", None),
                    "Whether the two share a core; null where this is not decided.",
                ),
                ratio=schema.about(
                    schema.or_null(schema.NUMBER),
                    "Speed when both run, as a share of the speed when one runs; null without enough samples.",
                ),
                low=schema.about(schema.or_null(schema.NUMBER), "Lower end of the ratio's confidence interval."),
                high=schema.about(schema.or_null(schema.NUMBER), "Upper end of the ratio's confidence interval."),
            ),
            100_000,
        ),
        "The measured ratio of each two CPUs.",
    ),
)

# What a rollout saved on the host before a change; both are null where the file cannot be used.
_PENDING_ROLLBACK = schema.whole(
    since=schema.about(schema.or_null(schema.text(100)), "When it was saved, UTC."),
    back_to=schema.about(
        schema.or_null(schema.text(2000, schema.ONE_LINE)), "The state that is put back, in a few words."
    ),
)
# A slot for a reboot. Who was asked for it, and how it is released, is what the user wrote, and nothing of a host's.
SLOT = schema.whole(
    granted=schema.about(schema.BOOL, "Whether it was granted; otherwise it was asked for, and may have been."),
    since=schema.about(schema.text(100, schema.ONE_LINE), "When it was granted, or first asked for, UTC."),
)

# Keys are the names of the kernel's files.
VULNERABILITIES = schema.mapping(
    schema.whole(
        status=schema.about(_SENTENCE, "The kernel's own line."),
        smt=schema.about(
            schema.one_of("vulnerable", "mitigated", "disabled", "unknown", None),
            "The part of it that depends on SMT; null without one.",
        ),
    ),
    200,
    r"^[A-Za-z0-9_.-]{1,64}$",
)

# What readers count on: whichever version of the collection read a host's facts, all of these are there.
_ALWAYS = schema.whole(
    supported=_BOOL,
    control=schema.text(100),
    active=_BOOL,
    sockets=_COUNT,
    cores=_COUNT,
    threads_per_core=schema.whole(
        min=schema.about(_COUNT, "Threads of the core that has the least."),
        max=schema.about(_COUNT, "Threads of the core that has the most."),
        online_max=schema.about(_COUNT, "Threads that are online in the core that has the most of them."),
    ),
    cpus=schema.whole(
        present=schema.about(schema.CPU_LIST, "CPU list of the CPUs that are there."),
        possible=schema.about(schema.CPU_LIST, "CPU list of the CPUs that the kernel could have."),
        online=schema.about(schema.CPU_LIST, "CPU list of the CPUs that are online."),
        offline=schema.about(
            schema.CPU_LIST, "CPU list of the CPUs that are present, can be brought online and are not."
        ),
        isolated=schema.about(schema.CPU_LIST, "CPU list of the CPUs that the scheduler leaves alone."),
    ),
    packages=_CPU_LISTS,
    sibling_groups=_CPU_LISTS,
    primaries=schema.CPU_LIST,
    secondaries=schema.CPU_LIST,
    nodes=schema.mapping(schema.CPU_LIST, 4096, r"^[0-9]{1,5}$"),
    numbering=schema.one_of("split", "adjacent", "mixed", "none"),
    source=schema.one_of("sysfs", "saved", "cpuinfo", "unknown", *sibling_source.NOT_THE_KERNELS),
    complete=schema.BOOL,
    measured=schema.or_null(_MEASURED),
    boot=schema.whole(
        running=schema.about(_ARGUMENTS, "SMT-related boot arguments of the running kernel; null when unknown."),
        configured=schema.about(_ARGUMENTS, "SMT-related boot arguments of the next boot; null when unknown."),
        loader=schema.about(_WORD, "The boot loader."),
        reboot_required=schema.about(_BOOL, "Whether the two differ; null when unknown."),
    ),
    vulnerabilities=VULNERABILITIES,
    hypervisor=schema.or_null(schema.text(100)),
    methods=schema.whole(
        runtime=schema.about(_METHODS, "Methods that change SMT now."),
        boot=schema.about(_METHODS, "Methods that change it from the next boot on."),
    ),
    hardware_class=schema.or_null(
        schema.text(100, r"^[a-z0-9_]{1,20}-[0-9]{1,5}s[0-9]{1,5}c[0-9]{1,5}t-[a-z]{1,10}-[0-9a-f]{8}$")
    ),
    pending_rollback=schema.or_null(_PENDING_ROLLBACK),
    problems=_SENTENCES,
)
_CONSUMERS = schema.items(
    schema.whole(
        program=schema.about(_WORD, "Name of the program."),
        unit=schema.about(schema.or_null(schema.text(100)), "Its systemd unit; null outside of any."),
        is_service=schema.about(schema.BOOL, "Whether that is a service of the system."),
        counted=schema.about(schema.count(schema.MAX_CPUS), "The number of CPUs that it believes in."),
        cpus=schema.about(schema.count(schema.MAX_CPUS), "The number of CPUs that it has."),
        has=schema.about(_SENTENCE, "What it has for which number of CPUs."),
        remedy=schema.about(_SENTENCE, "What makes it right."),
    ),
    100,
)
# Other facts may be missing, as every documented fact without a schema of its own may: they came later.
_SMT = schema.strict(
    _ALWAYS["required"],
    **_ALWAYS["properties"],
    online_before=schema.or_null(schema.CPU_LIST),
    pending_change=schema.or_null(
        schema.whole(
            by=schema.about(schema.text(1000), "Who made the change, as part of a sentence."),
            seconds_left=schema.about(
                schema.count(), "In how many seconds it is rolled back without a confirmation, s."
            ),
        )
    ),
    consumers=_CONSUMERS,
    consumers_after_switch=_CONSUMERS,
    reboot_slot=schema.or_null(SLOT),
    ppc64_cpu=schema.or_null(schema.text(4000, r"^SMT[A-Za-z0-9=:,; *-]*$")),
)

# Such as C(text) and V(text).
_MARKUP = re.compile(r"\b[A-Z]\(([^)]*)\)")

# What a documented fact without a schema of its own may be, by its type.
_BY_TYPE = {
    "bool": _BOOL,
    "int": schema.or_null(schema.INTEGER),
    "float": schema.or_null(schema.NUMBER),
    "str": schema.or_null(_SENTENCE),
    "list": schema.or_null(_SENTENCES),
}


def with_documented(known: schema.Schema, documentation: t.Mapping[str, t.Any]) -> schema.Schema:
    """Return a schema of an object with all documented fields and their descriptions.

    A fact needs no schema where its type says enough, and may then be missing: results of earlier versions lack it.

    Args:
        known: the schema, whose fields are kept.
        documentation: name of a field -> its entry in ``RETURN`` of a module.
    """
    more = {
        name: _BY_TYPE[entry["type"]]
        for name, entry in documentation.items()
        if name not in known["properties"] and entry["type"] in _BY_TYPE
    }
    fields: dict[str, schema.Schema] = {**known["properties"], **more}
    described = {name: _plain(entry["description"]) for name, entry in documentation.items() if "description" in entry}
    return schema.strict(
        known["required"],
        **{name: schema.about(part, described[name]) if name in described else part for name, part in fields.items()},
    )


def _plain(description: str | list[str]) -> str:
    """Return a description in ``RETURN``, a text or a list of paragraphs, as one text without Ansible's markup."""
    return _MARKUP.sub(r"\1", description if isinstance(description, str) else " ".join(description))


# The module itself is for hosts, and not typed.
_DOCUMENTATION = importlib.import_module("ansible_collections.threadwise.smt.plugins.modules.smt_facts").RETURN
SMT = with_documented(_SMT, yaml_load(_DOCUMENTATION)["ansible_facts"]["contains"]["smt"]["contains"])
_CHECKER = schema.Checker(SMT)

_BYTES = schema.or_null(schema.INTEGER)
_HEADROOM = schema.whole(bytes=_BYTES, unprivileged_bytes=_BYTES, largest_request_bytes=_BYTES)
_OVERCOMMIT = schema.one_of("heuristic", "always", "strict", None)
_POLICY = {
    "overcommit": _OVERCOMMIT,
    "overcommit_ratio": _BYTES,
    "overcommit_kbytes": _BYTES,
    "on_oom": schema.one_of("kill", "panic", "panic_always", None),
    "panic_reboot_after": _BYTES,
    "nr_hugepages": _BYTES,
    "commit_limit_bytes": _BYTES,
    "headroom": _HEADROOM,
}
MEMORY_POLICY = schema.whole(**_POLICY)
MEMORY_SETTINGS = schema.items(
    schema.whole(name=_WORD, value=_BYTES, at_boot=_BYTES, source=schema.or_null(schema.text(4096)), original=_BYTES),
    50,
)

MEMORY = schema.whole(
    **_POLICY,
    total_bytes=_BYTES,
    swap_bytes=_BYTES,
    hugetlb_bytes=_BYTES,
    committed_bytes=_BYTES,
    oom_kills=_BYTES,
    protected_units=schema.items(
        schema.whole(unit=schema.text(300), oom_score_adj={"type": "integer", "minimum": -1000, "maximum": 1000}),
        20_000,
    ),
    wanted=schema.or_null(
        schema.whole(
            overcommit=_OVERCOMMIT,
            commit_limit_bytes=_BYTES,
            headroom=_HEADROOM,
            refusal=schema.or_null(_SENTENCE),
            sysctls=schema.mapping(schema.INTEGER, 50, r"^[a-z_.]{1,100}$"),
            differences=_SENTENCES,
            boot_differences=_SENTENCES,
            boot_blocked_by=schema.or_null(_SENTENCE),
            overrides=_SENTENCES,
        )
    ),
    protect_differences=schema.or_null(_SENTENCES),
    problems=_SENTENCES,
)

_NAME = schema.or_null(schema.text(200, schema.ONE_LINE))
_VALUE = schema.or_null(schema.text(100, schema.ONE_LINE))
_STATE = schema.one_of("enabled", "disabled", "auto", "unknown")
FIRMWARE = schema.whole(
    vendor=_NAME,
    redfish_version=_NAME,
    systems=schema.items(
        schema.whole(
            id=schema.text(100, schema.ONE_LINE),
            manufacturer=_NAME,
            model=_NAME,
            bios_version=_NAME,
            power=_NAME,
            attribute=_VALUE,
            value=_VALUE,
            state=_STATE,
            staged_value=_VALUE,
            staged=schema.or_null(_STATE),
            allowed=schema.items(schema.text(100, schema.ONE_LINE), 100),
            core_limits=schema.items(
                schema.whole(attribute=schema.text(100, schema.ONE_LINE), value=schema.text(100, schema.ONE_LINE)),
                20,
            ),
            processors=schema.whole(sockets=_BYTES, cores=_BYTES, threads=_BYTES),
            tasks=schema.whole(enabled=schema.or_null(_SENTENCE), disabled=schema.or_null(_SENTENCE)),
            problems=_SENTENCES,
        ),
        100,
    ),
    agrees=_BOOL,
    findings=schema.items(
        schema.whole(
            system=_VALUE,
            about=schema.one_of("staged", "kernel", "cores", "inventory", "power", "system"),
            sentence=_SENTENCE,
        ),
        1000,
    ),
    problems=_SENTENCES,
)


def accept(data: t.Any) -> dict[str, t.Any]:
    """Validate plain data as ``ansible_facts['smt']``.

    Raises:
        BorderError: not valid; the message names the place of the first error.
    """
    _CHECKER.check(data)
    facts: dict[str, t.Any] = data
    check(facts)
    return facts


def check(facts: dict[str, t.Any]) -> None:
    """Check that facts which match :data:`SMT` are consistent.

    The cost is linear in the number of CPUs, whatever the lists contain.

    Raises:
        BorderError: a text is not a CPU list, a CPU is in two cores, packages or nodes, or the hardware class does not
            match the facts.
    """
    for name, cpus in facts["cpus"].items():
        _disjoint([cpus], f"cpus.{name}")
    for name in _PARTITIONS:
        _disjoint(facts[name], name)
    # Some firmware lists a CPU in two nodes.
    left = 4 * schema.MAX_CPUS
    for cpus in facts["nodes"].values():
        left -= len(_cpus(cpus, "nodes", min(left, schema.MAX_CPUS)))
    for name in ("primaries", "secondaries"):
        _disjoint([facts[name]], name)
    _disjoint([facts.get("online_before") or ""], "online_before")
    if facts["measured"]:
        for name in ("cpus", "singles", "unclear"):
            _disjoint([facts["measured"][name]], f"measured.{name}")
        _disjoint(facts["measured"]["pairs"], "measured.pairs")
        for ratio in facts["measured"]["ratios"]:
            _disjoint([ratio["pair"]], "measured.ratios", most=2)
    if facts["hardware_class"] is not None:
        _check_class(facts)


def _disjoint(lists: t.Sequence[str], where: str, most: int = schema.MAX_CPUS) -> None:
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


def _check_class(facts: dict[str, t.Any]) -> None:
    """Check that the readable part of a hardware class matches the facts:
    it selects the hosts that an evaluation applies to.

    The class is of the kernel's cores. Facts with measured or declared siblings show others.
    """
    match = _CLASS.fullmatch(facts["hardware_class"])
    # Of those present some may be none that the host can use.
    cpus = {*cpulist.parse(facts["cpus"]["online"]), *cpulist.parse(facts["cpus"]["offline"])}
    shape = {"sockets": str(len(facts["packages"])), "cpus": str(len(cpus))}
    if facts["source"] not in sibling_source.NOT_THE_KERNELS:
        shape.update(cores=str(len(facts["sibling_groups"])), numbering=facts["numbering"])
    wrong = [name for name, value in shape.items() if match is None or match[name] != value]
    if wrong:
        raise BorderError(
            f"hardware_class: {facts['hardware_class']} is not the class of the machine that these facts show (its"
            f" {', '.join(wrong)})"
        )
