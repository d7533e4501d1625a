# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of checks of compliance, as far as others read them: slices of a job, other controllers and hosts that pull
wrote them, and whoever could write where they are.
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import histories

# Lists within a host or a decision, far beyond any that is written.
MAX_ITEMS = 1000

_Line = t.Annotated[str, parts.text_of(500, schema.ONE_LINE)]
_Lines = t.Annotated[tuple[_Line, ...], parts.at_most(MAX_ITEMS)]
_Day = t.Annotated[str, parts.text_of(10, schema.DAY["pattern"])]


class _Excerpt(parts.Part, frozen=True, forbid_unknown_fields=False):
    """A part of a file of which other parts are not read: later releases add fields."""


class Aspect(_Excerpt, frozen=True):
    """An aspect of a host."""

    status: t.Literal["compliant", "drifted", "unknown"]
    reasons: _Lines


class Waiver(_Excerpt, frozen=True):
    """What somebody allowed a host."""

    until: _Day
    state: t.Literal["valid", "ending", "expired"]
    days_left: t.Annotated[int, parts.between(-schema.MAX_SECONDS, schema.MAX_SECONDS)]
    reason: _Line
    owner: _Line


class CheckedHost(_Excerpt, frozen=True, kw_only=True):
    """A host of a check."""

    host: histories.HostLine
    status: histories.Status
    sentence: parts.Text
    wanted: _Line | None
    scope: t.Literal["runtime", "boot", "both"] | None
    hardware_class: _Line | None
    decided_by: parts.Text | None
    reboot_pending: bool | None
    stale: t.Annotated[tuple[parts.Text, ...], parts.at_most(MAX_ITEMS)] | None
    waiver: Waiver | None
    pending_rollback: bool
    running: Aspect | None
    configured: Aspect | None
    memory: Aspect | None
    memory_configured: Aspect | None
    services: t.Annotated[tuple[parts.Text, ...], parts.at_most(MAX_ITEMS)] = ()
    checked: parts.Moment | None = None


class RestsOn(_Excerpt, frozen=True):
    """What the evaluations rest on that decided."""

    kernels: _Lines
    microcode: _Lines
    mitigations: t.Annotated[tuple[_Lines, ...], parts.at_most(MAX_ITEMS)]
    collection_versions: _Lines
    governors: _Lines
    boost: t.Annotated[tuple[bool, ...], parts.at_most(MAX_ITEMS)]
    first_day: _Day | None
    last_day: _Day | None


class Recheck(_Excerpt, frozen=True):
    """A re-check of a host."""

    host: _Line
    run: _Line
    day: _Day | None
    age_days: parts.Count | None
    kernel: _Line | None
    mitigations: _Lines | None
    state: t.Literal["holds", "changed", "not decided", "not compared"]


class Decision(_Excerpt, frozen=True):
    """The decision of evaluations for a hardware class."""

    hardware_class: _Line
    rests_on: RestsOn
    rechecks: t.Annotated[tuple[Recheck, ...], parts.at_most(MAX_ITEMS)]


class Check(_Excerpt, frozen=True):
    """A file of a check.

    Attributes:
        at: UTC.
        error: why it checked no host; None where it did.
        hosts: None where it checked none.
        decisions: to which hosts are held.
    """

    schema: t.Literal["threadwise.smt/compliance"]
    schema_version: t.Literal[2, 3]
    at: parts.Moment
    error: parts.Text | None
    hosts: t.Annotated[tuple[CheckedHost, ...], parts.at_most(histories.MAX_HOSTS)] | None
    decisions: t.Annotated[tuple[Decision, ...], parts.at_most(MAX_ITEMS)] = ()
