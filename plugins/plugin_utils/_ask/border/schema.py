# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Building blocks for JSON schemas of hosts' answers: each limits length, count or size, and rejects unknown fields.

The limits allow for machines of 8192 CPUs (NR_CPUS with CONFIG_MAXSMP in the kernel's arch/x86/Kconfig).
"""

from __future__ import annotations

import functools
import math
import operator
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import (
    MOMENT as MOMENT_PATTERN,
    BorderError,
    line,
)

try:
    import msgspec
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

Schema = dict[str, t.Any]

MAX_CPUS = 8192
# Above any real count or rate, and small enough that sums and squares stay finite. msgspec has bounds of 64 bits.
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
        **{key: value for key, value in body.items() if key != "description"},
        "required": list(dict.fromkeys([*names, *body["required"]])),
        "properties": {**names, **body["properties"], **names},
    }


def strict(required: t.Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def whole(**properties: Schema) -> Schema:
    """Return the schema of an object with all of these fields and no others."""
    return strict(tuple(properties), **properties)


def with_later(later: t.Mapping[str, Schema], /, **properties: Schema) -> Schema:
    """Return the schema of an object with all of these fields, and fields that files of earlier releases lack."""
    return strict(tuple(properties), **properties, **later)


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
# Names of runs and trials, which are directories on the controller.
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
DAY = text(10, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
MOMENT = text(20, f"^{MOMENT_PATTERN}$")
CPU: Schema = {"type": "integer", "minimum": 0, "maximum": 65535}
CPU_LIST = text(MAX_CPU_LIST, r"^[0-9,-]*$")
# CPU numbers without ranges, so that the length of the text limits their number.
CPU_NUMBERS = r"^([0-9]{1,5}(,[0-9]{1,5})*)?$"


class Checker:
    """A schema, compiled at first use."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self._compiled: t.Any = None

    def prepare(self) -> None:
        """Make what the first check makes, in a process from which many are forked that check."""
        if self._compiled is None and MISSING_LIBRARY is None:
            self._compiled = _type(self.schema)

    def check(self, data: t.Any) -> None:
        """Validate plain JSON data.

        Raises:
            BorderError: not valid; the message names the place of the first error and the reason.
            ImportError: this controller lacks msgspec.
        """
        if MISSING_LIBRARY is not None:
            raise MISSING_LIBRARY
        self.prepare()
        reason = _refusal(data, self._compiled)
        if reason is not None:
            place, reason = _first_error(self.schema, data, reason)
            raise BorderError(f"{line('.'.join(place) or 'the document', 160)}: {line(reason, 200)}")


def _refusal(data: t.Any, kind: t.Any) -> str | None:
    """Return why data are not of a type, or None where they are. No value is copied, however large."""
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        what = str(error).partition(" - at `")[0]
        return what[:1].lower() + what[1:]
    except RecursionError:
        return "nested too deeply"
    return None


def _first_error(schema: Schema, data: t.Any, reason: str) -> tuple[list[str], str]:
    """Return the path and the reason of the first error in data that are not valid: msgspec names no key of a mapping.

    Args:
        schema: what the data are to match.
        data: plain JSON data.
        reason: why they do not.
    """
    place: list[str] = []
    known: dict[int, t.Any] = {}
    while True:
        for name, part, value in _parts(schema, data):
            if id(part) not in known:
                known[id(part)] = _type(part)
            why = _refusal(value, known[id(part)])
            if why is not None:
                place.append(str(name))
                schema, data, reason = part, value, why
                break
        else:
            return place, reason


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


# Keywords of schemas -> the limits of msgspec that mean the same.
_LENGTHS = {"minLength": "min_length", "maxLength": "max_length"}
_COUNTS = {"minItems": "min_length", "maxItems": "max_length"}
_BOUNDS = {"minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le"}


def _type(schema: Schema) -> t.Any:
    """Return the type of data that match a schema."""
    if "const" in schema:
        return t.Literal[schema["const"]]
    if "enum" in schema:
        flags = [bool] if any(isinstance(value, bool) for value in schema["enum"]) else []
        return _either([*flags, *(t.Literal[value] for value in schema["enum"] if not isinstance(value, bool))])
    types = schema["type"]
    return _either([kind for name in ([types] if isinstance(types, str) else types) for kind in _KINDS[name](schema)])


def _either(kinds: t.Iterable[t.Any]) -> t.Any:
    return functools.reduce(operator.or_, kinds)


def _limited(kind: t.Any, schema: Schema, names: t.Mapping[str, str]) -> t.Any:
    limits: dict[str, t.Any] = {names[key]: value for key, value in schema.items() if key in names}
    if kind is str and "pattern" in schema:
        limits["pattern"] = exact(schema["pattern"])
    if kind is int:
        # Bounds of integers have 64 bits.
        limits = {
            name: max(-MAX_NUMBER, min(MAX_NUMBER, math.ceil(value) if name == "ge" else math.floor(value)))
            for name, value in limits.items()
        }
    return t.Annotated[kind, msgspec.Meta(**limits)] if limits else kind


def exact(pattern: str) -> str:
    """Return a regular expression for Python, where a newline may follow what ``$`` matches."""
    return pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern


# Types are made here, which a type checker does not follow.
_LIST: t.Any = list
_TUPLE: t.Any = tuple
_DICT: t.Any = dict


def _array(schema: Schema) -> t.Any:
    if "prefixItems" in schema:
        return _TUPLE[tuple(_type(entry) for entry in schema["prefixItems"])]
    return _limited(_LIST[_type(schema["items"]) if "items" in schema else t.Any], schema, _COUNTS)


def _object(schema: Schema) -> t.Any:
    if "properties" in schema:
        # Any text is the name of a field in JSON.
        names = {f"field_{number}": name for number, name in enumerate(schema["properties"])}
        fields = [
            (field, _type(part), *([] if name in schema["required"] else [msgspec.field(default=None)]))
            for (field, name), part in zip(names.items(), schema["properties"].values())
        ]
        is_closed = "additionalProperties" in schema
        return msgspec.defstruct(
            "Object", fields, rename=names, kw_only=True, gc=False, forbid_unknown_fields=is_closed
        )
    keys = _limited(str, schema.get("propertyNames", {}), _LENGTHS)
    values = _type(schema["additionalProperties"]) if "additionalProperties" in schema else t.Any
    return _limited(_DICT[keys, values], schema, {"maxProperties": "max_length"})


_KINDS: dict[str, t.Callable[[Schema], list[t.Any]]] = {
    "null": lambda _schema: [None],
    "boolean": lambda _schema: [bool],
    "integer": lambda schema: [_limited(int, schema, _BOUNDS)],
    "number": lambda schema: [_limited(kind, schema, _BOUNDS) for kind in (int, float)],
    "string": lambda schema: [_limited(str, schema, _LENGTHS)],
    "array": lambda schema: [_array(schema)],
    "object": lambda schema: [_object(schema)],
}
