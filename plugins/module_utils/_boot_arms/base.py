# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all arms that take a reboot: what a boot arm has to offer.

A file of this folder defines the arms that set the same boot argument, and lists them in ``ARMS``; the registry finds
them. The host with no argument of this collection is no boot arm of its own: it is the arm ``smt_on`` or ``as_found``.
"""

import re
import typing as t


class Request(t.NamedTuple):
    """What smt_boot_args is asked for; None for an option that is left out.

    Attributes:
        smt: `enabled`, `disabled` or `forced_off`.
        maxcpus: a number in digits.
        mitigations: `auto`, `auto_nosmt` or `off`.
    """

    smt: "str | None" = None
    maxcpus: "str | None" = None
    mitigations: "str | None" = None


class BootArm:
    """One state of a host that takes a reboot.

    Args:
        name: the arm's name, which ``pattern`` matches.

    Attributes:
        pattern: a regular expression of the names of this arm.
        runs_too: whether the host can also be switched to it at run time. It is booted only where no arm asks for a
            boot of its own, or as the baseline.
        allowed_by: the variable of the role smt_eval that has to be true before the host is booted so; empty where none
            has to.
        leaves_open: what it leaves open to attacks, as a part of a sentence; empty where it leaves open no more than a
            boot without arguments.
        name: as above.
    """

    pattern: str
    runs_too: bool = False
    allowed_by: str = ""
    leaves_open: str = ""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def matches(cls, name: str) -> bool:
        """Return whether this is the arm with a name."""
        return re.fullmatch(cls.pattern, name) is not None

    @classmethod
    def shown_pattern(cls) -> str:
        """Return the pattern as people read it."""
        return cls.pattern

    @property
    def argument(self) -> str:
        """The boot argument that it sets; empty where it sets none."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The name for people."""
        return self.argument

    @property
    def request(self) -> Request:
        """What smt_boot_args is asked for."""
        raise NotImplementedError

    @property
    def settings(self) -> "dict[str, t.Any]":
        """What the arm sets, as plain data for the result: name -> text."""
        return {"boot_argument": self.argument, **({"leaves_open": self.leaves_open} if self.leaves_open else {})}
