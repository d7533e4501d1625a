# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the firmware of a machine is set to, as its BMC says: ``ansible_facts['smt_firmware']``. Nothing is written.

Of each system: the attribute that switches SMT, its value now, the one that waits for the next boot, and what they
mean. What one system or one resource does not answer is a sentence in ``problems``, and the others are read.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import (
    agreement,
    attributes,
    client,
    commands,
)

MAX_SYSTEMS = 32
MAX_ATTRIBUTES = 20_000
MAX_VALUES = 100
MAX_LIMITS = 10
# Where values are staged on BMCs that do not say it: most, and AMI's.
_STAGED_AT = ("Settings", "SD")
_VERSION = re.compile(r"[._]v?[0-9].*$")
_COUNTS = {"sockets": "Count", "cores": "CoreCount", "threads": "LogicalProcessorCount"}
MAX_COUNT = 1_000_000

Json = client.Json


class Request(t.NamedTuple):
    """What is asked of a BMC.

    Attributes:
        by_session: whether the user signs in, instead of a password in each request.
        system: id of the only system that counts; None for all.
        kernel: the facts ``smt`` of the host; None where nothing is compared.
    """

    by_session: bool
    system: "str | None"
    kernel: "agreement.Kernel | None"


def gather(bmc: client.Client, request: Request) -> Json:
    """Return the facts of a BMC.

    Raises:
        RedfishError: it cannot be reached, refuses access, or has no such system.
    """
    try:
        # Of all resources this one is for everybody.
        root = bmc.get(client.ROOT)
    except client.RefusedError:
        root = {}
    sessions = client.linked(client.object_of(root, "Links").get("Sessions")) or client.SESSIONS
    with bmc.signed_in(request.by_session, sessions) as problems:
        root = root or bmc.get(client.ROOT)
        systems = _systems(bmc, root, request.system, problems)
    compared = agreement.compare([system.seen for system in systems], request.kernel)
    return {
        "vendor": _text(root.get("Vendor")),
        "redfish_version": _text(root.get("RedfishVersion")),
        "systems": [system.facts for system in systems],
        "agrees": compared.agrees,
        "findings": [finding._asdict() for finding in compared.findings],
        "problems": [host_text.printable(problem, 1000) for problem in problems],
    }


class _System(t.NamedTuple):
    """A system: its facts, and what is compared with the kernel."""

    facts: Json
    seen: agreement.Seen


def _systems(bmc: client.Client, root: Json, wanted: "str | None", problems: "list[str]") -> "list[_System]":
    members = bmc.members(client.linked(root.get("Systems")) or client.ROOT + "Systems")
    ids = [_id(member) for member in members]
    if wanted is not None:
        members = [member for member, name in zip(members, ids) if name == wanted]
    if not members:
        have = f"the BMC has {', '.join(ids[:MAX_SYSTEMS])}" if ids else "the BMC has none"
        raise client.RedfishError(f"there is no system {wanted}: {have}" if wanted else "the BMC has no system")
    if len(members) > MAX_SYSTEMS:
        problems.append(f"of {len(members)} systems the first {MAX_SYSTEMS} were read: name others as resource_id")
        members = members[:MAX_SYSTEMS]
    registries = _Registries(bmc, root)
    return [_system(bmc, member, registries) for member in members]


def _system(bmc: client.Client, link: t.Any, registries: "_Registries") -> _System:
    """Read a system; what of it cannot be read is a problem."""
    name = _id(link)
    problems: list[str] = []
    system: Json = {}
    bios: Json = {}
    try:
        system = bmc.get(link)
        bios = _bios(bmc, system, str(link))
    except client.RefusedError:
        raise
    except client.RedfishError as error:
        problems.append(str(error))
    values = _values(bios)
    entries = registries.entries(bios, problems) if values else {}
    if system and not values:
        problems.append("the BMC shows no BIOS attributes of this system: some do after the host's next start only")
    setting = _Setting(values, entries, problems)
    staged = _staged(bmc, bios, str(link), setting, problems) if setting.name else _Staged(None, None, False)
    maker = _text(system.get("Manufacturer")) or ""
    seen = agreement.Seen(
        system=name,
        attribute=setting.name,
        value=setting.shown,
        state=setting.state,
        staged=setting.meaning(staged.value) if staged.value is not None else None,
        staged_value=None if staged.value is None else _line(attributes.shown(staged.value)),
        is_off=system.get("PowerState") == "Off",
        core_limits=tuple(f"{attribute}={value}" for attribute, value in setting.core_limits),
        counts=_counts(system),
        tasks={state: setting.task(state, maker, name, staged) for state in (attributes.ENABLED, attributes.DISABLED)},
        needs_job=commands.needs_job(maker),
    )
    return _System(_facts(system, seen, setting, maker, problems), seen)


def _facts(system: Json, seen: agreement.Seen, setting: "_Setting", maker: str, problems: "list[str]") -> Json:
    return {
        "id": seen.system,
        "manufacturer": maker or None,
        "model": _text(system.get("Model")),
        "bios_version": _text(system.get("BiosVersion")),
        "power": _text(system.get("PowerState")),
        "attribute": seen.attribute,
        "value": seen.value,
        "state": seen.state,
        "staged_value": seen.staged_value,
        "staged": seen.staged,
        "allowed": setting.allowed,
        "core_limits": [{"attribute": attribute, "value": value} for attribute, value in setting.core_limits],
        "processors": seen.counts,
        "tasks": seen.tasks,
        "problems": [host_text.printable(problem, 1000) for problem in problems],
    }


# ---- the setting -----------------------------------------------------------------------------------------------------


class _Staged(t.NamedTuple):
    """What waits for the next boot.

    Attributes:
        value: of the attribute; None where nothing waits that differs.
        path: where values are staged; None where there is no such resource.
        is_linked: whether the BMC says where that is.
    """

    value: t.Any
    path: "str | None"
    is_linked: bool


class _Setting:
    """The attribute of a BIOS that switches SMT.

    Attributes:
        name: of the attribute; None where there is none, or where several say different things.
        state: what its value means.
    """

    def __init__(self, values: Json, entries: attributes.Entries, problems: "list[str]") -> None:
        self._values, self._entries = values, entries
        names = attributes.candidates(values, entries)
        states = {name: attributes.meaning(name, values[name], entries.get(name)) for name in names}
        self.name: t.Optional[str] = names[0] if names else None
        self.state = states[names[0]] if names else attributes.UNKNOWN
        if len(set(states.values())) > 1:
            all_of_them = ", ".join(f"{name}={attributes.shown(values[name])}" for name in names)
            problems.append(f"several attributes are about SMT, and do not say the same: {_line(all_of_them, 300)}")
            self.name, self.state = None, attributes.UNKNOWN
        elif values and not names:
            problems.append(
                f"none of its {len(values)} BIOS attributes is known to switch SMT: the processor may have none, as"
                " most for Arm, or the firmware does not show the setting"
            )
        elif names and self.state == attributes.UNKNOWN:
            problems.append(f"it is not known what {_line(self.name)}={self.shown} means")

    @property
    def value(self) -> t.Any:
        """The value now, as the firmware has it."""
        return None if self.name is None else self._values[self.name]

    @property
    def shown(self) -> "str | None":
        """The value now, as text."""
        return None if self.name is None else _line(attributes.shown(self.value))

    @property
    def _entry(self) -> "attributes.Entry | None":
        return self._entries.get(self.name or "")

    @property
    def allowed(self) -> "list[str]":
        """The values that it can have."""
        return (
            [_line(allowed) for allowed in attributes.allowed(self.value, self._entry)[:MAX_VALUES]]
            if self.name
            else []
        )

    @property
    def core_limits(self) -> "list[tuple[str, str]]":
        """Attributes that leave a part of the cores off."""
        limits = attributes.core_limits(self._values, self._entries)
        return [(_line(name), _line(value)) for name, value in limits[:MAX_LIMITS]]

    def meaning(self, value: t.Any) -> str:
        """Return what another value of the attribute means."""
        return attributes.meaning(self.name or "", value, self._entry)

    def differs(self, value: t.Any) -> bool:
        """Return whether another value is not the one now."""
        return not attributes.same(self.name or "", self.value, value, self._entry)

    def task(self, state: str, maker: str, system: str, staged: _Staged) -> "str | None":
        """Return the task that sets the attribute so that it means a state; None where the value is not known."""
        if self.name is None:
            return None
        value = attributes.value_for(state, self.name, self.value, self._entry)
        if value is None:
            return None
        typed = value == "true" if isinstance(self.value, bool) else value
        return commands.task(maker, system, self.name, typed, staged.path, staged.is_linked)


def _bios(bmc: client.Client, system: Json, link: str) -> Json:
    """Return the BIOS of a system; empty where it has none.

    An iLO 4 has it in the usual place and names another.
    """
    try:
        return bmc.get(client.linked(system.get("Bios")) or f"{link.rstrip('/')}/Bios")
    except client.NotFoundError:
        if client.linked(system.get("Bios")):
            raise
        return {}


def _values(bios: Json) -> Json:
    """Return the attributes of a BIOS or of its staged settings: an iLO 4 has no object for them."""
    values = bios.get("Attributes")
    if "Attributes" not in bios and "HpBios" in str(bios.get("@odata.type") or bios.get("Type")):
        values = bios
    known = {} if not isinstance(values, dict) else values
    plain = {
        name: value
        for name, value in known.items()
        if isinstance(value, (str, int, float)) and not name.startswith(("@", "#"))
    }
    return plain if len(plain) <= MAX_ATTRIBUTES else {}


def _staged(bmc: client.Client, bios: Json, link: str, setting: _Setting, problems: "list[str]") -> _Staged:
    """Read what waits for the next boot: where the BMC says it is, else where it is on others."""
    named = client.linked(client.object_of(bios, "@Redfish.Settings").get("SettingsObject"))
    base = client.linked(bios) or f"{link.rstrip('/')}/Bios"
    paths = [named] if named else [f"{str(base).rstrip('/')}/{name}" for name in _STAGED_AT]
    for path in paths:
        try:
            settings = bmc.get(path)
        except client.NotFoundError:
            continue
        except client.RefusedError:
            raise
        except client.RedfishError as error:
            problems.append(f"what is staged for the next boot is not known: {error}")
            return _Staged(None, None, bool(named))
        value = _values(settings).get(setting.name or "")
        waits = value is not None and setting.differs(value)
        return _Staged(value if waits else None, str(path), bool(named))
    problems.append("what is staged for the next boot is not known: the BMC does not show it")
    return _Staged(None, None, bool(named))


def _counts(system: Json) -> "dict[str, int | None]":
    """Return the BMC's own inventory, which is as old as the host's last start."""
    summary = client.object_of(system, "ProcessorSummary")
    counts: t.Dict[str, t.Optional[int]] = {}
    for name, field in _COUNTS.items():
        count = summary.get(field)
        is_count = isinstance(count, int) and not isinstance(count, bool) and 0 < count <= MAX_COUNT
        counts[name] = count if is_count else None
    return counts


# ---- the registry ----------------------------------------------------------------------------------------------------


class _Registries:
    """The registries of a BMC, each read once, however many systems have it."""

    def __init__(self, bmc: client.Client, root: Json) -> None:
        self._bmc = bmc
        self._link = client.linked(root.get("Registries")) or client.ROOT + "Registries"
        self._read: dict[str, attributes.Entries] = {}

    def entries(self, bios: Json, problems: "list[str]") -> attributes.Entries:
        """Return the entries of a BIOS's registry by name; empty where it cannot be read, which is no more than a
        problem.
        """
        name = bios.get("AttributeRegistry")
        if not isinstance(name, str) or not name:
            return {}
        if name not in self._read:
            self._read[name] = {}
            try:
                self._read[name] = _entries(self._found(name))
            except client.RefusedError:
                raise
            except client.RedfishError as error:
                problems.append(f"the registry of its attributes cannot be read: {error}")
        return self._read[name]

    def _found(self, name: str) -> Json:
        """Return a registry: by its path, or by the file that the collection has under that name."""
        if name.startswith("/"):
            file = self._bmc.get(name)
        else:
            link = _likest(name, [link for link in self._bmc.members(self._link) if isinstance(link, str)])
            if link is None:
                raise client.NotFoundError(f"the BMC has none of the name {_line(name)}")
            file = self._bmc.get(link)
        if "RegistryEntries" in file:
            return file
        places = client.list_of(file, "Location")
        english = [place for place in places if str(place.get("Language")).lower().startswith("en")]
        return self._bmc.get(next((place.get("Uri") for place in english or places), None))


def _likest(name: str, links: "list[str]") -> "str | None":
    """Return the link of a registry's file: by the same name, or by the same but the version, which BMCs confuse."""
    wanted = name.lower()
    names = {link: link.rstrip("/").rpartition("/")[2].lower() for link in links}
    for test in (
        lambda version: version == wanted,
        lambda version: _VERSION.sub("", version) == _VERSION.sub("", wanted),
    ):
        for link in links:
            if test(names[link]):
                return link
    return None


def _entries(registry: Json) -> "dict[str, attributes.Entry]":
    """Return the entries of a registry; what is not as it should be is left out."""
    entries = client.list_of(client.object_of(registry, "RegistryEntries"), "Attributes")
    known_entries = {}
    for entry in entries[:MAX_ATTRIBUTES]:
        name, title = entry.get("AttributeName"), entry.get("DisplayName")
        if isinstance(name, str):
            values = [
                (str(value["ValueName"]), str(value.get("ValueDisplayName") or value["ValueName"]))
                for value in client.list_of(entry, "Value")[:MAX_VALUES]
                if "ValueName" in value
            ]
            is_hidden = entry.get("Hidden") is True or entry.get("GrayOut") is True
            known_entries[name] = attributes.Entry(
                name, title if isinstance(title, str) else "", tuple(values), is_hidden
            )
    return known_entries


def _id(link: t.Any) -> str:
    return _line(str(link).rstrip("/").rpartition("/")[2])


def _line(text: t.Any, most: int = 100) -> str:
    return host_text.printable(str(text), most)


def _text(value: t.Any) -> "str | None":
    return " ".join(_line(value, 200).split()) if isinstance(value, str) and value.strip() else None
