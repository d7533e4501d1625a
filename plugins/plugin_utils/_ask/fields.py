# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of a host's facts, which may have any type; why a task failed; the table of many hosts on a terminal."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

# ``ansible_facts['smt']`` of a host, as its answer has it, or a part of it.
Facts = t.Mapping[str, t.Any]
MAX_WIDTH = 48
MAX_NAME = 200
MAX_SENTENCE = 500
# With these words Ansible introduces an error from ansible-core 2.19 on.
_INTRODUCTION = re.compile("^((Task|Action) failed: )+")


def mapping(facts: Facts, name: str) -> dict[str, t.Any]:
    """Return a field that is a mapping; an empty one for any other value."""
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def smt_facts(registered: t.Any) -> dict[str, t.Any]:
    """Return the facts that a host answered to smt_facts with, from what that task registered;
    an empty mapping where it did not.
    """
    return mapping(mapping(registered if isinstance(registered, dict) else {}, "ansible_facts"), "smt")


def open_by_smt(facts: Facts, status: str = "vulnerable") -> tuple[str, ...]:
    """Return the vulnerabilities whose part that depends on SMT has a status, in order of their names."""
    statuses = mapping(facts, "vulnerabilities")
    return tuple(
        sorted(line(name, MAX_NAME) or "?" for name in statuses if mapping(statuses, name).get("smt") == status)
    )


def items(facts: Facts, name: str) -> list[t.Any]:
    """Return a field that is a list; an empty one for any other value."""
    value = facts.get(name)
    return value if isinstance(value, list) else []


def if_text(value: t.Any) -> str | None:
    """Return a text unchanged, and None for any other value."""
    return value if isinstance(value, str) else None


def why(registered: t.Mapping[str, object]) -> t.Any:
    """Return what a task that failed says, in the words that all releases of Ansible use; None if it says nothing."""
    message = registered.get("msg") or None
    return _INTRODUCTION.sub("", message) if isinstance(message, str) else message


def line(value: t.Any, most: int) -> str | None:
    """Return a text as one line of at most ``most`` printable characters,
    or None for a value that is not a text or empty.
    """
    return text.line(value, most) or None if isinstance(value, str) else None


def consumer(program: Facts, has: str) -> str:
    """Return what a program has that counted CPUs, as a sentence.

    Args:
        program: an item of ``consumers``.
        has: the words before the number of CPUs that it has, or would have.
    """
    return line(f"{program.get('has')}, and {has} {program.get('cpus')}: {program.get('remedy')}", MAX_SENTENCE) or "?"


def table(columns: tuple[str, ...], rows: t.Iterable[tuple[str, ...]], last: str) -> list[str]:
    """Format rows as lines of a table for a terminal.

    Args:
        columns: headings; only the last column may be wider than ``MAX_WIDTH``.
        rows: a text for each column, from anybody.
        last: line below the table.
    """
    cells = [columns, *(tuple(map(host_text.visible, row)) for row in rows)]
    widths = [min(MAX_WIDTH, max(len(row[column]) for row in cells)) for column in range(len(columns) - 1)]
    lines = [
        "  ".join([cell[:width].ljust(width) for cell, width in zip(row, widths)] + [row[-1]]).rstrip() for row in cells
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:], "", last]
