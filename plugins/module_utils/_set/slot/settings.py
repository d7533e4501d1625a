# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a host asks for a reboot: what `smt_slot` and the group say, checked. Pure rules."""

import json
import re
import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

DEFAULT_GROUP = "default"
MAX_ADDRESS = 253
# Zincati, docs/development/fleetlock/protocol.md: the group of a client; its id is any text that is not empty.
GROUP = re.compile(r"[a-zA-Z0-9.-]{1,253}")
_WORD = re.compile(r"[!-~]{1,253}")
_SENTINEL = re.compile(r"(/var)?/run(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
# What needs no quotes as the value of an option of a module on a command line.
_PLAIN = re.compile(r"[A-Za-z0-9._:/@~-]+")
_KINDS = "fleetlock with the address of a server, acquire and release with a list of words each, or kured with a path"


class SlotError(HostError):
    """A slot cannot be asked for, or given back; the message says of whom and why."""


class Slot(t.NamedTuple):
    """Where a slot is asked for: one of a server, of a pair of commands, or of kured.

    Attributes:
        fleetlock: the address of a server of FleetLock; empty where there is none.
        acquire: the command that asks for a slot; its exit status 0 grants it.
        release: the command that gives it back.
        kured: the file that tells kured to reboot the node.
    """

    fleetlock: str = ""
    acquire: "tuple[str, ...]" = ()
    release: "tuple[str, ...]" = ()
    kured: str = ""

    @property
    def shown(self) -> str:
        """Who is asked, for a sentence."""
        return self.fleetlock or self.kured or self.acquire[0]

    @property
    def plain(self) -> "dict[str, t.Any]":
        """What `parse` makes this from."""
        return {
            name: value if isinstance(value, str) else list(value) for name, value in self._asdict().items() if value
        }


def parse(given: t.Any) -> "Slot | None":
    """Return what `smt_slot` says, None where it is empty.

    Raises:
        SlotError: it is no slot.
    """
    if not given:
        return None
    if not isinstance(given, dict) or sorted(given) not in (["fleetlock"], ["acquire", "release"], ["kured"]):
        raise SlotError(f"it must be a mapping of {_KINDS}")
    if "fleetlock" in given:
        return Slot(fleetlock=address("fleetlock", given["fleetlock"]))
    if "kured" in given:
        path = given["kured"]
        if not isinstance(path, str) or not _SENTINEL.fullmatch(path):
            raise SlotError(
                "kured must be the path of its sentinel below /run or /var/run, such as /var/run/reboot-required: a"
                " file that a boot does not remove would have it reboot again and again"
            )
        return Slot(kured=path)
    words = {name: given[name] for name in ("acquire", "release")}
    for name, value in words.items():
        if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value) or not value[0]:
            raise SlotError(f"{name} must be a list of texts, the command and its arguments: it is run without a shell")
    return Slot(acquire=tuple(words["acquire"]), release=tuple(words["release"]))


def check(slot: Slot, group: str, host: str) -> None:
    """See that a server can be asked for a host of a group; raise SlotError."""
    if not slot.fleetlock:
        return
    if not GROUP.fullmatch(group):
        raise SlotError(
            f"smt_policy_group is {json.dumps(group)[:100]}, and FleetLock takes letters, digits, dots and hyphens:"
            " choose such a group"
        )
    if not _WORD.fullmatch(host):
        raise SlotError(
            f"the host's name {json.dumps(host)[:100]} has other characters than visible ones of ASCII: its slot could"
            " not be released by it"
        )


def release_command(slot: Slot, group: str, host: str) -> str:
    """Return the command, for a shell, by which somebody releases the slot of a host that cannot do it itself."""
    if not slot.fleetlock:
        return " ".join(map(shlex.quote, slot.release))
    # Without double quotes where it needs none: where Ansible shows an error as JSON they have backslashes before them,
    # and the command could not be copied from there.
    if all(map(_PLAIN.fullmatch, (slot.fleetlock, group, host))):
        given = f"state=released slot=fleetlock={slot.fleetlock} group={group} host={host}"
    else:
        given = json.dumps({"state": "released", "slot": slot.plain, "group": group, "host": host})
    return f"ansible localhost -m threadwise.smt.smt_slot -a {shlex.quote(given)}"


def address(name: str, url: t.Any) -> str:
    """Return the address of a server without a slash at its end.

    Args:
        name: of the option, for a message.
        url: what the user gave.

    Raises:
        SlotError: it is no address, or has more in it.
    """
    parts = host_text.address(url)
    if "@" in parts.netloc or "?" in str(url) or "#" in str(url):
        raise SlotError(f"{name} has more in it than an address: leave out a user, a password, ? and #")
    if parts.scheme not in ("http", "https") or len(url) > MAX_ADDRESS:
        raise SlotError(f"{name} is no address such as https://{name}.example.com")
    return str(url).rstrip("/")
