# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that the controller has the programs that connections to hosts need.

Pure functions: the caller looks up programs.
"""

from __future__ import annotations

import typing as t

# Connection plugins that run ssh; "smart" is an old name.
SSH = ("ssh", "ansible.builtin.ssh", "ansible.legacy.ssh", "smart")
MAX_NAMES = 5


class Connection(t.NamedTuple):
    """The connection to a host.

    Attributes:
        host: its name in the inventory.
        connection: the name of its connection plugin.
        executable: name or path of the ssh program.
    """

    host: str
    connection: str
    executable: str


def unreachable(connections: t.Iterable[Connection], which: t.Callable[[str], str | None]) -> dict[str, str]:
    """Return the hosts that the controller cannot reach for lack of a program.

    Args:
        connections: the connections of all hosts.
        which: finds a program, as ``shutil.which``.

    Returns:
        Host -> the program that is missing.
    """
    missing = {
        name: which(name) is None
        for name in {connection.executable for connection in connections if connection.connection in SSH}
    }
    return {
        connection.host: connection.executable
        for connection in connections
        if connection.connection in SSH and missing[connection.executable]
    }


def sentence(hosts: dict[str, str], total: int) -> str | None:
    """Return one message about all unreachable hosts, or None when there are none.

    Args:
        hosts: from ``unreachable``.
        total: the number of all hosts.
    """
    if not hosts:
        return None
    names = ", ".join(list(hosts)[:MAX_NAMES]) + (
        f" and {len(hosts) - MAX_NAMES} more" if len(hosts) > MAX_NAMES else ""
    )
    return (
        f"this controller has no {' and no '.join(sorted(set(hosts.values())))}, which {len(hosts)} of {total} hosts"
        f" need for their connection ({names}): install it (Debian: package openssh-client), or set"
        " ansible_ssh_executable"
    )
