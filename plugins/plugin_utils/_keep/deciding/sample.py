# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sample of a fleet: the first hosts of each hardware class share the work of one, and represent the others."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts


class Share(t.NamedTuple):
    """The hosts of one hardware class.

    Attributes:
        hardware_class: its name, None where it is not known.
        measured: the hosts that are measured.
        hosts: all hosts of the class.
    """

    hardware_class: str | None
    measured: tuple[str, ...]
    hosts: tuple[str, ...]

    @property
    def shared_by(self) -> int:
        """How many hosts share the work of one: those of a class whose results are combined."""
        return 1 if self.hardware_class is None else len(self.measured)


def choose(classes: t.Mapping[str, str | None], size: int) -> list[Share]:
    """Choose the first hosts of each class.

    Args:
        classes: the hardware class of each host, in the order of the play; None where it is not known.
        size: how many hosts of each class.

    Returns:
        The classes, in the order of their names; the hosts without a known class last.
    """
    hosts: dict[str | None, list[str]] = {}
    for host, name in classes.items():
        hosts.setdefault(name, []).append(host)
    names = sorted(hosts, key=lambda name: (name is None, name or ""))
    return [Share(name, tuple(hosts[name][:size]), tuple(hosts[name])) for name in names]


def sentence(share: Share, shared: bool) -> str:
    """Say which hosts of a class are measured, for how long, and whom they represent.

    Args:
        share: the hosts of a class.
        shared: whether hosts of one class share the work.
    """
    measured = ", ".join(share.measured)
    if share.hardware_class is None:
        return f"Hardware class not known: {measured} measured, for no other host."
    summary = f"{share.hardware_class}: {measured} measured, for {', '.join(share.hosts)}."
    if not shared or share.shared_by == 1:
        return summary
    return (
        f"{summary} Each measures for 1/{share.shared_by} of smt_eval_budget, and longer only until it has"
        f" {verdicts.MIN_BLOCKS_RANKED} blocks."
    )
