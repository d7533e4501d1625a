# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All kinds of guests, by name."""

from __future__ import annotations

from common import LabError
from kinds import arm64, grub, initrd, power, systemd_boot
from kinds.base import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind for module in (grub, systemd_boot, power, arm64, initrd) for kind in module.KINDS
}
DEFAULT = "grub"


def kind_of(name: str) -> Kind:
    """The kind of that name.

    Raises:
        LabError: there is none.
    """
    if name not in KINDS:
        raise LabError(f"there is no kind of guest {name!r}: choose from {', '.join(KINDS)}")
    return KINDS[name]
