# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this controller has the program by which it would reach its hosts. Pure rules; what is installed is asked by the caller."""

from __future__ import annotations

import typing as t

# What runs the program ssh; "smart" is the name of old inventories for it.
SSH = ("ssh", "ansible.builtin.ssh", "ansible.legacy.ssh", "smart")
MOST_NAMES = 5


class Way(t.NamedTuple):
    """How a host is reached.

    Attributes:
        host: its name in the inventory.
        connection: the name of its connection plugin.
        executable: the program that ssh is here, a name or a path.
    """

    host: str
    connection: str
    executable: str


def unreachable(ways: t.Iterable[Way], which: t.Callable[[str], str | None]) -> dict[str, str]:
    """The hosts that cannot be reached from here, whatever their own state.

    Args:
        ways: of all hosts.
        which: finds a program, as ``shutil.which`` does.

    Returns:
        Host -> the program that is missing.
    """
    missing = {name: which(name) is None for name in {way.executable for way in ways if way.connection in SSH}}
    return {way.host: way.executable for way in ways if way.connection in SSH and missing[way.executable]}


def sentence(hosts: dict[str, str], of: int) -> str | None:
    """What is to be told of all of them at once.

    Args:
        hosts: what ``unreachable`` gave.
        of: how many hosts there are in all.
    """
    if not hosts:
        return None
    names = ", ".join(list(hosts)[:MOST_NAMES]) + (f" and {len(hosts) - MOST_NAMES} more" if len(hosts) > MOST_NAMES else "")
    return (
        f"this controller has no {' and no '.join(sorted(set(hosts.values())))}, by which {len(hosts)} of {of} hosts would be reached ({names}): "
        "install it (Debian's package openssh-client), or name yours by ansible_ssh_executable"
    )
