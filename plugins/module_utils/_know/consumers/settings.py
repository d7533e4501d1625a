# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which consumers follow a change of CPUs, as a user chose and as records keep it."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import find

NONE = "none"


class ConsumerError(HostError):
    """A consumer cannot follow, or did not; the text names its service, what was done and the way out."""


class Custom(t.NamedTuple):
    """A consumer that a user declares.

    Attributes:
        unit: the name of its service, with ``*`` and ``?``.
        number: the command that prints how many CPUs it believes in.
        remedy: the command that makes it right.
    """

    unit: str
    number: "tuple[str, ...]"
    remedy: "tuple[str, ...]"


class Settings(t.NamedTuple):
    """Which consumers follow.

    Attributes:
        actions: by kind, what systemctl does to its services, or `NONE`: they are left alone, and not named.
        custom: those that a user declares.
    """

    actions: "t.Mapping[str, str]"
    custom: "tuple[Custom, ...]" = ()

    def over(self, earlier: "Settings") -> "Settings":
        """Return these, and what earlier ones say of others."""
        return Settings(
            {**earlier.actions, **self.actions},
            (*self.custom, *(entry for entry in earlier.custom if entry not in self.custom)),
        )

    def document(self) -> "dict[str, t.Any]":
        """Return this as plain data."""
        return {"actions": dict(self.actions), "custom": [entry._asdict() for entry in self.custom]}


NOTHING = Settings({})


def parse(document: "t.Mapping[str, t.Any]") -> Settings:
    """Return settings from plain data.

    Raises:
        ConsumerError: they are not valid.
    """
    return Settings(
        actions(document["actions"]),
        tuple(Custom(entry["unit"], tuple(entry["number"]), tuple(entry["remedy"])) for entry in document["custom"]),
    )


def actions(given: "t.Mapping[str, t.Any]") -> "dict[str, str]":
    """Return what is done to services, by kind.

    Raises:
        ConsumerError: there is no such kind, or it does not take that.
    """
    for name, action in given.items():
        kind = find.KINDS.get(name)
        if kind is None:
            raise ConsumerError(f"consumers names {name!r:.80}: the kinds are {', '.join(find.KINDS)}")
        if action not in (*kind.actions, NONE):
            raise ConsumerError(
                f"consumers has {action!r:.80} for {name}: it takes {' or '.join((*kind.actions, NONE))}. To make it"
                f" right, {kind.remedy}"
            )
    return dict(given)
