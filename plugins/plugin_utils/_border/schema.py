# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Building blocks for JSON schemas of hosts' answers: each limits length, count or size, and rejects unknown fields.

The limits allow for machines of 8192 CPUs (NR_CPUS with CONFIG_MAXSMP in the kernel's arch/x86/Kconfig).
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

MAX_CPUS = 8192
# Above any real count or rate, and small enough that sums and squares stay finite. Bounds are 64-bit integers:
# jsonschema-rs checks other bounds ten times as slowly, and a fleet has millions of numbers.
MAX_NUMBER = 2**63 - 1
MAX_SECONDS = 1_000_000_000
MAX_TEXT = 20_000
MAX_NAME = 255
# A list of every second of 8192 CPUs has 22,000 characters.
MAX_CPU_LIST = 65_536


def about(part: Schema, description: str) -> Schema:
    """Return the same schema with a description for readers of the published schema; it has the unit of a number."""
    return {**part, "description": description}


def published(name: str, version: int, title: str, description: str, body: Schema) -> Schema:
    """Return the schema of a file as it is published in docs/.

    Args:
        name: the field ``schema`` of the file, such as ``threadwise.smt/result``.
        version: its field ``schema_version``.
        title: what the file is.
        description: where the file is, and what is not said by its fields.
        body: the schema of an object; these two fields come first in it.
    """
    names = {
        "schema": about({"const": name}, "Name of this kind of file."),
        "schema_version": about(
            {"const": version}, "Version of this kind of file; docs/files.md says what changes it."
        ),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:threadwise-smt:schema:{name.rpartition('/')[2]}/{version}",
        "title": title,
        "description": description,
        **body,
        "required": [*names, *body["required"]],
        "properties": {**names, **body["properties"]},
    }


def strict(required: t.Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def whole(**properties: Schema) -> Schema:
    """Return the schema of an object with all of these fields and no others."""
    return strict(tuple(properties), **properties)


def mapping(values: Schema, most: int, names: str = r"^[^\n]{1,255}$") -> Schema:
    """Return the schema of an object whose keys are data.

    Args:
        values: the schema of each value.
        most: the largest number of keys.
        names: regular expression of a key.
    """
    return {
        "type": "object",
        "maxProperties": most,
        "propertyNames": {"pattern": names},
        "additionalProperties": values,
    }


def items(schema: Schema, most: int) -> Schema:
    """Return the schema of a list of at most ``most`` items."""
    return {"type": "array", "items": schema, "maxItems": most}


def or_null(schema: Schema) -> Schema:
    """Return the same schema with null allowed."""
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def one_of(*values: t.Any) -> Schema:
    """Return the schema of an enumeration."""
    return {"enum": list(values)}


def text(most: int = MAX_TEXT, pattern: str | None = None) -> Schema:
    """Return the schema of a string of at most ``most`` characters."""
    return {"type": "string", "maxLength": most, **({"pattern": pattern} if pattern else {})}


def count(most: int = 1_000_000_000) -> Schema:
    """Return the schema of an integer from 0 to ``most``."""
    return {"type": "integer", "minimum": 0, "maximum": most}


BOOL: Schema = {"type": "boolean"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
TEXT = text()
# What is shown within a line of others.
ONE_LINE = r"^[^\n]*$"
NUMBER: Schema = {"type": "number", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
INTEGER: Schema = {"type": "integer", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
# A duration.
SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": MAX_SECONDS}
# CPU usage comes from two clocks, so it can be slightly above 1.
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 2}
MOMENT = text(20, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
CPU: Schema = {"type": "integer", "minimum": 0, "maximum": 65535}
CPU_LIST = text(MAX_CPU_LIST, r"^[0-9,-]*$")
# CPU numbers without ranges, so that the length of the text limits their number.
CPU_NUMBERS = r"^([0-9]{1,5}(,[0-9]{1,5})*)?$"


class Checker:
    """A schema, compiled at first use."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self._compiled: jsonschema_rs.Draft202012Validator | None = None

    def check(self, data: t.Any) -> None:
        """Validate plain JSON data.

        Raises:
            BorderError: not valid; the message names the place of the first error and the reason.
            ImportError: this controller lacks jsonschema-rs.
        """
        if MISSING_LIBRARY is not None:
            raise MISSING_LIBRARY
        if self._compiled is None:
            self._compiled = _compiled(self.schema)
        try:
            if self._compiled.is_valid(data):
                return
            place, reason = _first_error(self.schema, data)
        except ValueError as error:
            place, reason = [], str(error)
        raise BorderError(f"{line('.'.join(place) or 'the document', 160)}: {_shortened(reason)}")


def _compiled(schema: Schema, mask: str | None = None) -> jsonschema_rs.Draft202012Validator:
    """Compile a schema whose patterns take linear time: others are an error.

    Args:
        schema: the schema.
        mask: what stands for a value in messages, which else have the value itself.
    """
    return jsonschema_rs.Draft202012Validator(schema, pattern_options=jsonschema_rs.RegexOptions(), mask=mask)


def _first_error(schema: Schema, data: t.Any) -> tuple[list[str], str]:
    """Return the path and the reason of the first error in data that are not valid.

    The library would copy the wrong value twice: 25 MiB from a host take 2.5 GB then.
    """
    place: list[str] = []
    known: dict[int, jsonschema_rs.Draft202012Validator] = {}
    while True:
        for name, part, value in _parts(schema, data):
            if id(part) not in known:
                known[id(part)] = _compiled(part)
            if not known[id(part)].is_valid(value):
                place.append(str(name))
                schema, data = part, value
                break
        else:
            return place, _own_error(schema, data)


def _parts(schema: Schema, data: t.Any) -> t.Iterator[tuple[str | int, Schema, t.Any]]:
    """Yield the name or number of each value in an object or a list, its schema, and the value."""
    if isinstance(data, dict):
        named, rest = schema.get("properties", {}), schema.get("additionalProperties")
    elif isinstance(data, list):
        named, rest = dict(enumerate(schema.get("prefixItems", ()))), schema.get("items")
    else:
        return
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        part = named.get(name, rest)
        if isinstance(part, dict):
            yield name, part, value


def _own_error(schema: Schema, data: t.Any) -> str:
    """Return what is wrong with a value in which each part is right; the parts are left out."""
    alone = {key: value for key, value in schema.items() if key not in ("items", "prefixItems")}
    mask = None
    if isinstance(data, dict):
        alone["properties"] = {name: {} for name in schema.get("properties", ())}
        if isinstance(alone.get("additionalProperties"), dict):
            del alone["additionalProperties"]
        data, mask = dict.fromkeys(data), "an object"
    elif isinstance(data, list):
        data, mask = [None] * len(data), "an array"
    try:
        _compiled(alone, mask).validate(data)
    except jsonschema_rs.ValidationError as error:
        return error.message
    return "it does not match its schema"


def _shortened(message: str) -> str:
    """Return a message of the library as one line of about 200 characters. It begins with the wrong value,
    which may be of any size, and ends with what is wrong with it.
    """
    if len(message) <= 200:
        return line(message)
    # The second call cuts nothing off the end: an escape has at most ten characters.
    return f"{line(message[:80], 80)} ... {line(message[-110:], 1200)[-110:]}"
