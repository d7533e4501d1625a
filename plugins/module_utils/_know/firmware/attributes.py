# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which attribute of a BIOS switches SMT, by the names that vendors gave it, and what its values mean in our words.

An attribute's own name may say the opposite of what its values mean: with ``ProcessorHyperThreadingDisable`` the value
``Enabled`` is Hyper-Threading on. So a name says nothing here but which setting it is.
"""

import re
import typing as t

ENABLED, DISABLED, AUTO, UNKNOWN = "enabled", "disabled", "auto", "unknown"


class Name(t.NamedTuple):
    """A name of the attribute.

    Attributes:
        name: as the vendor writes it; a suffix of four hexadecimal digits may follow, such as ``_F27F``.
        vendors: who uses it.
        seen: public recordings and sources that have it.
    """

    name: str
    vendors: str
    seen: str


NAMES = (
    Name("LogicalProc", "Dell iDRAC", "NVIDIA/libredfish, bmc-toolbox/bmclib, weka/tools"),
    Name("ProcHyperthreading", "HPE iLO, Intel", "spyroot/redfish_ctl, openstack/sushy"),
    Name("ProcSMT", "HPE iLO, AMD", "NVIDIA/libredfish, weka/tools"),
    Name("Processors_HyperThreading", "Lenovo XCC, Intel", "NVIDIA/libredfish, bmc-toolbox/bmclib"),
    Name("Processors_SMTMode", "Lenovo XCC, AMD", "weka/tools"),
    Name(
        "Hyper-Threading[ALL]",
        "Supermicro, Intel; from X13 on `Hyper_Threading_ALL__F27F`",
        "weka/tools, NVIDIA/libredfish",
    ),
    Name("Hyper-Threading", "Supermicro, Intel with one socket", "bmc-toolbox/bmclib"),
    Name("SMTControl", "Supermicro, AMD; also with a suffix, `SMTControl_00CB`", "weka/tools"),
    Name("IntelHyperThread", "Cisco CIMC, Intel", "recordings of UCS C220 M4 and M6"),
    Name("CbsCpuSmtCtrl", "Cisco CIMC, AMD", "a recording of UCS C225 M6"),
    Name("CbsCmnCpuSmtCtrl", "AMD's own name, as in Gigabyte's and Inspur's BIOS", "AMD CBS in public UEFI sources"),
    Name(
        "ProcessorHyperThreadingDisable",
        "Huawei and xFusion iBMC, AMI (NVIDIA DGX), Intel boards",
        "NVIDIA/libredfish, Huawei/Server_Management_Plugin_Ansible",
    ),
    Name("PRSS011", "AMI, names without words", "recordings of ZT servers"),
    Name("HyperThreadingEnabled", "Fujitsu iRMC", "openstack/python-scciclient"),
    Name("HyperThreading", "others", "their attribute registries"),
    Name("SMTMode", "others, AMD", "their attribute registries"),
)

# Settings that leave a part of the cores off: the number of CPUs falls, and SMT is as before. By the form of `_key`.
_CORE_LIMITS = frozenset(
    (
        "proccores",  # Dell
        "procccds",
        "ccdcores",
        "enabledcoresperproc",  # HPE
        "proccoredisable",
        "processorscoresincpupackage",  # Lenovo
        "processorsnumberofenabledcpucorespersocket",
        "numberofcores",  # Supermicro
        "coresenabled",
        "ccdcontrol",
        "corecontrol",
        "coremultiprocessing",  # Cisco
        "cbscpucorectrl",  # AMD
        "cbscpuccdctrlssp",
        "cbscmncpugendowncorectrl",
        "activeprocessorcores",  # AMI, Huawei
        "activecpucores",
    )
)
_ALL_CORES = frozenset(("all", "allcores", "auto", "0", "0x0", "coresperproc0", "disabled", "default"))

# What registries call the setting where the attribute's name has no words.
_TITLE = re.compile(
    r"(intel ?(\(r\)|®)? ?)?(hyper[- ]?threading( tech(nology)?)?|ht technology)( ?\[all\])?( (control|mode|enable))?"
    r"|disable hyper[- ]?threading"
    r"|smt( (control|mode|enable|technology))?"
    r"|simultaneous multi[- ]?threading( ?\(smt\))?( (control|mode|technology))?"
    r"|logical processors?( mode)?",
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"_[0-9A-Fa-f]{4}$")
_MEANINGS = {
    "enabled": ENABLED,
    "enable": ENABLED,
    "on": ENABLED,
    "yes": ENABLED,
    "true": ENABLED,
    "disabled": DISABLED,
    "disable": DISABLED,
    "off": DISABLED,
    "no": DISABLED,
    "false": DISABLED,
    "auto": AUTO,
    "automatic": AUTO,
}
_OPPOSITE = {ENABLED: DISABLED, DISABLED: ENABLED}
# Pairs of words for the two values, for firmware without a registry.
_PAIRS = (("Enabled", "Disabled"), ("Enable", "Disable"), ("On", "Off"), ("Yes", "No"), ("true", "false"))

Values = t.Mapping[str, t.Any]


class Entry(t.NamedTuple):
    """What an attribute registry says of an attribute.

    Attributes:
        name: of the attribute.
        title: its name for people.
        values: what it can be: as it is written, and for people.
        is_hidden: whether the setup does not show it.
    """

    name: str
    title: str
    values: "tuple[tuple[str, str], ...]"
    is_hidden: bool


Entries = t.Mapping[str, Entry]


def _key(name: str) -> str:
    """Return the form in which names of the same setting are equal, whoever writes them."""
    return re.sub(r"[^a-z0-9]", "", _SUFFIX.sub("", name).lower())


_ORDER = {_key(known.name): place for place, known in enumerate(NAMES)}


def shown(value: t.Any) -> str:
    """Return the value of an attribute as text, as JSON has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(name: str, value: t.Any, entry: "Entry | None") -> str:
    """Return a value as people read it: some firmware has numbers, or the attribute's name before the word."""
    text = shown(value)
    for written, title in entry.values if entry else ():
        if written == text:
            text = title
            break
    return text[len(name) :].lstrip("_: ") if text.startswith(name) else text


def meaning(name: str, value: t.Any, entry: "Entry | None") -> str:
    """Return what a value means for SMT: enabled, disabled, auto or unknown.

    A number means nothing without a registry: some firmware has 0 for on.

    Args:
        name: of the attribute.
        value: as the firmware has it.
        entry: of the registry, None where it has none.
    """
    state = _MEANINGS.get(_words(name, value, entry).strip().lower(), UNKNOWN)
    is_opposite = entry is not None and entry.title.lower().startswith("disable")
    return _OPPOSITE.get(state, state) if is_opposite else state


def same(name: str, value: t.Any, other: t.Any, entry: "Entry | None") -> bool:
    """Return whether two values are the same, written one way or the other."""
    return _words(name, value, entry).lower() == _words(name, other, entry).lower()


def candidates(values: Values, entries: Entries) -> "list[str]":
    """Return the names of the attributes that switch SMT, the likeliest first; more than one is rare.

    Args:
        values: the firmware's attributes.
        entries: its registry, which finds an attribute by its title where no name is known.
    """
    known = sorted((name for name in values if _key(name) in _ORDER), key=lambda name: (_ORDER[_key(name)], name))
    if known:
        return known
    titled = [name for name in sorted(values) if name in entries and _TITLE.fullmatch(entries[name].title.strip())]
    return [name for name in titled if not entries[name].is_hidden] or titled


def core_limits(values: Values, entries: Entries) -> "list[tuple[str, str]]":
    """Return the attributes, with their values, that leave a part of the cores off."""
    limits = []
    for name in sorted(values):
        words = _words(name, values[name], entries.get(name))
        if _key(name) in _CORE_LIMITS and _key(words) not in _ALL_CORES:
            limits.append((name, words))
    return limits


def allowed(value: t.Any, entry: "Entry | None") -> "list[str]":
    """Return the values that an attribute can have, in the form of the one that it has."""
    if isinstance(value, bool):
        return ["true", "false"]
    if entry is None:
        return []
    written, titles = [word for word, _title in entry.values], [title for _word, title in entry.values]
    return titles if shown(value) in titles and shown(value) not in written else written


def value_for(state: str, name: str, value: t.Any, entry: "Entry | None") -> "str | None":
    """Return the value that means a state, in the form of the one that the attribute has; None where it is not known.

    Args:
        state: enabled or disabled.
        name: of the attribute.
        value: the one that it has.
        entry: of the registry, None where it has none.
    """
    choices = allowed(value, entry)
    if not choices:
        text = shown(value)
        like = [pair for pair in _PAIRS if text.lower() in (word.lower() for word in pair)]
        choices = [word.lower() if text.islower() else word for pair in like for word in pair]
    return next((choice for choice in choices if meaning(name, choice, entry) == state), None)
