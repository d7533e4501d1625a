# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host keeps of its visit in other boot arguments, from before they are set until it was seen without them."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import (
    request as slot_request,
    settings as slot_settings,
)

UNIT = "threadwise-smt-boot-visit"
PROGRAM = "var/lib/threadwise-smt/boot-visit"
UNDO_NOW = f"systemctl kill --kill-who=main --signal=USR1 {UNIT}.service"
"""The command that makes a host go back at once."""

_FILE = state_file.StateFile(PROGRAM + "/visit.json", "threadwise.smt/boot-visit", mode=0o644)


class Visit(t.NamedTuple):
    """A visit.

    Attributes:
        owner: who asked for it, as part of a sentence: ``the trial NAME``.
        seconds: after so many without a sign of its controller the host goes back.
        arguments: all that it has set, and the kernel did not have before.
        is_ending: whether its arguments are undone: the next boot is to be without them.
        reboots: the ids of the boots in which the host was asked to reboot, to be without the arguments.
        why: why the last attempt to undo them failed; empty where none did.
        slot: whom the host asks before it reboots, as options of smt_slot; None for nobody.
    """

    owner: str
    seconds: int
    arguments: "tuple[str, ...]" = ()
    is_ending: bool = False
    reboots: "tuple[str, ...]" = ()
    why: str = ""
    slot: "dict[str, t.Any] | None" = None


# In the place of a record that cannot be read: the host goes back.
UNKNOWN = Visit("an earlier run", 0)


def load(fs: host_files.HostFs) -> "Visit | None":
    """Return the visit of a host, None where there is none;
    `UNKNOWN` and a note in `fs.problems` where its record cannot be used.
    """
    try:
        return _FILE.load(fs, _checked)
    except state_file.StateFileError as error:
        fs.note(f"What is known of its boot arguments was ignored: {error}.")
        return UNKNOWN


def save(fs: host_files.HostFs, visit: Visit) -> None:
    """Write the record; raise OSError when it cannot be written."""
    _FILE.save(fs, visit._asdict())


def note_problem(fs: host_files.HostFs) -> None:
    """Add to `fs.problems` why boot arguments that are to be undone are not, where an attempt failed."""
    visit = load(fs)
    if visit is not None and visit.why:
        fs.note(f"The boot arguments of {visit.owner} are not undone yet: {visit.why}. {UNIT}.service tries again.")


def _checked(document: "t.Mapping[str, t.Any]") -> Visit:
    # That of an earlier version has no slot.
    visit = Visit(**{name: document[name] for name in Visit._fields if name != "slot"}, slot=document.get("slot"))
    if visit.slot is not None:
        try:
            slot_request.of_options(visit.slot)
        except slot_settings.SlotError as error:
            raise ValueError(str(error)) from None
    texts = (visit.owner, visit.why, *visit.arguments, *visit.reboots)
    if not all(isinstance(value, str) for value in texts) or not isinstance(visit.seconds, int) or visit.seconds < 0:
        raise ValueError("it is not the record of a visit")
    return visit._replace(
        arguments=tuple(visit.arguments), is_ending=bool(visit.is_ending), reboots=tuple(visit.reboots)
    )
