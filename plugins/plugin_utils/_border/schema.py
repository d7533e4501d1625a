# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of which schemas of hosts' answers are made: each has a limit on its length, count or size, and lets nothing unknown through.

Limits lie beyond what a machine of 4096 CPUs reaches, whose kernel knows 8192 (NR_CPUS with CONFIG_MAXSMP in the kernel's arch/x86/Kconfig).
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError, line

try:
    import jsonschema_rs
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

Schema = dict[str, t.Any]

MOST_CPUS = 8192
# Beyond any count or rate a machine reaches, and far enough from the largest double that sums and squares stay finite. Bounds are integers of 64 bits:
# jsonschema-rs holds numbers against any other bound ten times as slowly, and a fleet has millions of them.
MAX_NUMBER = 2**63 - 1
MAX_SECONDS = 1_000_000_000
MAX_TEXT = 20_000
MAX_NAME = 255
# A list of every second of 8192 CPUs has 22,000 characters.
MAX_CPU_LIST = 65_536


def strict(required: t.Sequence[str] = (), /, **properties: Schema) -> Schema:
    """An object with these fields and no other."""
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def whole(**properties: Schema) -> Schema:
    """An object with all of these fields and no other."""
    return strict(tuple(properties), **properties)


def mapping(values: Schema, most: int, names: str = r"^[^\n]{1,255}$") -> Schema:
    """An object whose keys are data.

    Args:
        values: of each value.
        most: keys at most.
        names: regular expression of a key.
    """
    return {"type": "object", "maxProperties": most, "propertyNames": {"pattern": names}, "additionalProperties": values}


def items(schema: Schema, most: int) -> Schema:
    """A list of at most so many items."""
    return {"type": "array", "items": schema, "maxItems": most}


def or_null(schema: Schema) -> Schema:
    """The same, or null."""
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def one_of(*values: t.Any) -> Schema:
    """One of these values."""
    return {"enum": list(values)}


def text(most: int = MAX_TEXT, pattern: str | None = None) -> Schema:
    """A string of at most so many characters."""
    return {"type": "string", "maxLength": most, **({"pattern": pattern} if pattern else {})}


def count(most: int = 1_000_000_000) -> Schema:
    """A whole number from 0 on."""
    return {"type": "integer", "minimum": 0, "maximum": most}


BOOL: Schema = {"type": "boolean"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
TEXT = text()
NUMBER: Schema = {"type": "number", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
INTEGER: Schema = {"type": "integer", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
# Seconds that something can take, and so a bound for times that are shown.
SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": MAX_SECONDS}
# A usage is read from two clocks, so it may be a little above 1.
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 2}
MOMENT = text(20, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
CPU: Schema = {"type": "integer", "minimum": 0, "maximum": 65535}
CPU_LIST = text(MAX_CPU_LIST, r"^[0-9,-]*$")
# As an evaluation names several CPUs: without ranges, so that a text names no more CPUs than it is long.
CPU_NUMBERS = r"^([0-9]{1,5}(,[0-9]{1,5})*)?$"


class Checker:
    """A schema, compiled when it is first used: a controller without the library can still load what names it."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self._compiled: t.Any = None

    def check(self, data: t.Any) -> None:
        """Hold plain JSON data against the schema.

        Raises:
            BorderError: with the place of the first thing that is wrong, and why.
        """
        if self._compiled is None:
            self._compiled = jsonschema_rs.Draft202012Validator(self.schema)
        try:
            self._compiled.validate(data)
        except jsonschema_rs.ValidationError as error:
            place = ".".join(str(part) for part in error.instance_path) or "the document"
            # Ansible prints the causes of a failure, and this one has all of what the host said in it.
            raise BorderError(f"{line(place, 160)}: {line(error.message, 200)}") from None
        except ValueError as error:
            raise BorderError(line(error, 200)) from None
