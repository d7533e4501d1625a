# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``smt_firmware`` of a host."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Integer, Line, Sentences
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import Part, Sentence, at_most, text_of
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.schema import ONE_LINE

Title = t.Annotated[str, text_of(200, ONE_LINE)]
State = t.Literal["enabled", "disabled", "auto", "unknown"]


class CoreLimit(Part, frozen=True):
    """An attribute that limits the number of cores."""

    attribute: Line
    value: Line


class Processors(Part, frozen=True):
    """How many processors a system has."""

    sockets: Integer | None
    cores: Integer | None
    threads: Integer | None


class Tasks(Part, frozen=True):
    """A task that sets each state."""

    enabled: Sentence | None
    disabled: Sentence | None


class System(Part, frozen=True):
    """What a BMC says of a system."""

    id: Line
    manufacturer: Title | None
    model: Title | None
    bios_version: Title | None
    power: Title | None
    attribute: Line | None
    value: Line | None
    state: State
    staged_value: Line | None
    staged: State | None
    allowed: t.Annotated[tuple[Line, ...], at_most(100)]
    core_limits: t.Annotated[tuple[CoreLimit, ...], at_most(20)]
    processors: Processors
    tasks: Tasks
    problems: Sentences


class FirmwareFinding(Part, frozen=True):
    """What is to be said of a system."""

    system: Line | None
    about: t.Literal["staged", "kernel", "cores", "inventory", "power", "system"]
    sentence: Sentence


class Firmware(Part, frozen=True):
    """``ansible_facts['smt_firmware']`` of a host."""

    vendor: Title | None
    redfish_version: Title | None
    systems: t.Annotated[tuple[System, ...], at_most(100)]
    agrees: bool | None
    findings: t.Annotated[tuple[FirmwareFinding, ...], at_most(1000)]
    problems: Sentences
