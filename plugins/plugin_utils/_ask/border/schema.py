# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What published schemas are put together of, and limits of what hosts, servers and files say.

The limits allow for machines of 8192 CPUs (NR_CPUS with CONFIG_MAXSMP in the kernel's arch/x86/Kconfig).
"""

from __future__ import annotations

import importlib
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import MOMENT as MOMENT_PATTERN

try:
    importlib.import_module("msgspec")
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


def or_null(schema: Schema) -> Schema:
    """Return the same schema with null allowed."""
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def one_of(*values: t.Any) -> Schema:
    """Return the schema of an enumeration."""
    return {"enum": list(values)}


BOOL: Schema = {"type": "boolean"}
# What is shown within a line of others.
ONE_LINE = r"^[^\n]*$"
# Names of runs and trials, which are directories on the controller.
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
DAY: Schema = {"type": "string", "maxLength": 10, "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}
MOMENT: Schema = {"type": "string", "maxLength": 20, "pattern": f"^{MOMENT_PATTERN}$"}
