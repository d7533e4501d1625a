# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host keeps of its slot, from before it asks for one until it has given it back.

A slot has no end of its own. Whoever comes after a controller or a host that died reads here what was asked of whom.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import settings

FILE = state_file.StateFile("var/lib/threadwise-smt/reboot-slot.json", "threadwise.smt/reboot-slot")


class SlotRecord(t.NamedTuple):
    """A slot.

    Attributes:
        slot: where it was asked for.
        group: the group for which.
        host: the name by which it is held.
        owner: who asked last; empty for nobody in particular.
        is_held: whether it was granted; otherwise it was asked for, and may have been granted.
        since: when it was granted, or first asked for, UTC.
        at: when it was last asked for, in seconds since 1970.
        boot: the id of the boot in which it was last asked for.
    """

    slot: settings.Slot
    group: str
    host: str
    owner: str
    is_held: bool
    since: str
    at: float
    boot: str

    @property
    def sentence(self) -> str:
        """Say who holds it since when. No command is in it: a controller takes none from a host."""
        verb = "holds a slot" if self.is_held else "has asked for a slot"
        of_group = f" of the group {self.group}" if self.slot.fleetlock else ""
        return f"{self.host} {verb}{of_group} at {self.slot.shown} since {self.since}"

    @property
    def fact(self) -> "dict[str, t.Any]":
        """What a controller gets, which knows by itself who was asked: ``{granted, since}``."""
        return {"granted": self.is_held, "since": self.since}


def load(fs: host_files.HostFs) -> "SlotRecord | None":
    """Return what is kept, None without; raise SlotError where it cannot be used."""
    try:
        return FILE.load(fs, _checked)
    except state_file.StateFileError as error:
        raise settings.SlotError(
            f"{error}. Whether the host holds a slot is not known: remove the file if its server says that it does not"
        ) from None


def save(fs: host_files.HostFs, record: SlotRecord) -> None:
    """Write it; raise SlotError where that fails."""
    try:
        FILE.save(fs, {**record._asdict(), "slot": record.slot.plain})
    except OSError as error:
        raise settings.SlotError(f"{fs.path(FILE.path)} cannot be written: {error.strerror}") from error


def forget(fs: host_files.HostFs) -> None:
    """Remove it; raise SlotError where that fails."""
    try:
        FILE.remove(fs)
    except OSError as error:
        raise settings.SlotError(f"{fs.path(FILE.path)} cannot be removed: {error.strerror}") from error


def pending(fs: host_files.HostFs) -> "dict[str, t.Any] | None":
    """Return what the facts of a host say of its slot; None without."""
    try:
        record = load(fs)
    except settings.SlotError as error:
        fs.note(f"{error}.")
        return None
    return None if record is None else record.fact


def _checked(document: "dict[str, t.Any]") -> SlotRecord:
    record = SlotRecord(**{name: document[name] for name in SlotRecord._fields})
    slot = settings.parse(record.slot)
    texts = (record.group, record.host, record.owner, record.since, record.boot)
    if slot is None or not all(isinstance(value, str) and len(value) <= 300 for value in texts):
        raise ValueError("it is not the record of a slot")
    settings.check(slot, record.group, record.host)
    return record._replace(slot=slot, is_held=record.is_held is True, at=float(record.at))
