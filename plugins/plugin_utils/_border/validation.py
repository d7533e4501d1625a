# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON Schema (draft 2020-12) for the schemas of this collection, where the controller lacks the faster jsonschema-rs.

It knows exactly the keywords that these schemas use, and refuses a schema with any other: a limit that is not known is
not checked. It accepts and refuses what jsonschema-rs does; ``tests/unit/_border/test_validation.py`` holds that.
"""

from __future__ import annotations

import json
import re
import typing as t

Schema = t.Mapping[str, t.Any]
# Returns None for a valid value, else the path of the first error, innermost part first, and the reason.
Finding = tuple[list[str], str]
Check = t.Callable[[t.Any], "Finding | None"]

_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int, float),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
_PLAIN = tuple(dict.fromkeys(one for types in _TYPES.values() for one in types))
# The keywords that say something about values of a type; of other types they say nothing.
_KEYWORDS: dict[type, frozenset[str]] = {
    dict: frozenset({"required", "properties", "additionalProperties", "propertyNames", "maxProperties"}),
    float: frozenset({"minimum", "exclusiveMinimum", "maximum"}),
    int: frozenset({"minimum", "exclusiveMinimum", "maximum"}),
    list: frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    str: frozenset({"minLength", "maxLength", "pattern"}),
}
_ANNOTATIONS = frozenset({"$schema", "$id", "title", "description"})
_KNOWN = _ANNOTATIONS.union({"type", "const", "enum"}, *_KEYWORDS.values())
# What means the same in every dialect of regular expressions, once the classes of characters are taken out.
_PORTABLE = re.compile(r"\^(?:\\\.|[^\\.^$])*\$")
_CLASS = re.compile(r"\[(?:[^\]\\]|\\n)*\]")


class SchemaError(ValueError):
    """A schema says what is not known here; the message names it."""


def compiled(schema: Schema) -> Check:
    """Return the check of a schema.

    Raises:
        SchemaError: a keyword, a type, a constant or a regular expression of the schema is not known.
    """
    unknown = sorted(set(schema) - _KNOWN)
    if unknown:
        raise SchemaError(f"the keyword {unknown[0]} is not known")
    names = schema.get("type", list(_TYPES))
    names = [names] if isinstance(names, str) else names
    if not set(names) <= set(_TYPES):
        raise SchemaError(f"a type of {names} is not known")
    allowed = {one for name in names for one in _TYPES[name]}
    of_wrong_type = " or ".join(names)
    tests = {one: _of_type(one, schema, names) if one in allowed else None for one in _PLAIN}

    def check(value: t.Any) -> Finding | None:
        try:
            test = tests[type(value)]
        except KeyError:
            return [], f"{type(value).__name__} is not a type of JSON"
        return ([], f"{_shown(value)} is not of the type {of_wrong_type}") if test is None else test(value)

    return check


def _of_type(of: type, schema: Schema, names: t.Collection[str]) -> Check:
    """Return the check of the values of one Python type."""
    tests: list[Check] = []
    if of is float and "integer" in names and "number" not in names:
        tests.append(lambda value: None if value.is_integer() else ([], f"{_shown(value)} is not of the type integer"))
    constants = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
    if constants is not None:
        tests.append(_enumerated(constants))
    if not _KEYWORDS.get(of, frozenset()).isdisjoint(schema):
        tests.append({dict: _object, list: _array, str: _string, int: _number, float: _number}[of](schema))
    if len(tests) == 1:
        return tests[0]
    return lambda value: next((found for found in (test(value) for test in tests) if found), None)


def _shown(value: t.Any) -> str:
    """Return a value for a message: a list or an object of a host may be of any size."""
    return (
        "an object"
        if isinstance(value, dict)
        else "an array"
        if isinstance(value, list)
        else json.dumps(value, ensure_ascii=False)
    )


def _key(value: t.Any) -> tuple[bool, t.Any]:
    """Return what tells constants apart: in JSON, 1 is 1.0 and not true."""
    return isinstance(value, bool), value


def _enumerated(constants: t.Sequence[t.Any]) -> Check:
    if any(isinstance(one, (dict, list)) for one in constants):
        raise SchemaError("a constant that is an array or an object is not known")
    allowed = {_key(one) for one in constants}
    listed = ", ".join(map(_shown, constants))
    return lambda value: (
        None
        if not isinstance(value, (dict, list)) and _key(value) in allowed
        else ([], f"{_shown(value)} is not one of {listed}")
    )


def _number(schema: Schema) -> Check:
    least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    above = schema.get("exclusiveMinimum")

    def check(value: float) -> Finding | None:
        # Written so that a NaN is refused.
        if not least <= value <= most:
            return [], f"{_shown(value)} is not from {least} to {most}"
        return None if above is None or value > above else ([], f"{_shown(value)} is not above {above}")

    return check


def _string(schema: Schema) -> Check:
    least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
    matches = _pattern(schema["pattern"]) if "pattern" in schema else None

    def check(value: str) -> Finding | None:
        if not least <= len(value) <= most:
            return [], f"a text of {len(value)} characters, not of {least} to {most}"
        return (
            None
            if matches is None or matches(value)
            else ([], f"{_shown(value[:100])} does not match {schema['pattern']}")
        )

    return check


def _pattern(pattern: str) -> t.Callable[[str], t.Any]:
    """Compile a regular expression of JSON Schema, whose ``$`` is the end of the text;
    Python's may also be before a last newline.

    Raises:
        SchemaError: it is not from the beginning to the end of a text, or has a part that means something else in
            Python.
    """
    if not _PORTABLE.fullmatch(_CLASS.sub("x", pattern)) or "(?" in pattern:
        raise SchemaError(f"the regular expression {pattern} is not known to mean the same everywhere")
    return re.compile(rf"{pattern[:-1]}\Z").search


def _array(schema: Schema) -> Check:
    least, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))
    first = [compiled(one) for one in schema.get("prefixItems", ())]
    # Of the items after the first ones.
    item = compiled(schema.get("items", {}))

    def check(value: list[t.Any]) -> Finding | None:
        if not least <= len(value) <= most:
            return [], f"an array of {len(value)} items, not of {least} to {most}"
        for place, one in enumerate(value):
            found = (first[place] if place < len(first) else item)(one)
            if found:
                found[0].append(str(place))
                return found
        return None

    return check


def _object(schema: Schema) -> Check:
    required = schema.get("required", ())
    most = schema.get("maxProperties", float("inf"))
    known = {name: compiled(one) for name, one in schema.get("properties", {}).items()}
    rest = schema.get("additionalProperties", True)
    others = compiled(rest) if isinstance(rest, dict) else None
    names = compiled({"type": "string", **schema["propertyNames"]}) if "propertyNames" in schema else None

    def check(value: dict[str, t.Any]) -> Finding | None:
        if len(value) > most:
            return [], f"an object of {len(value)} fields, more than {most}"
        for name in required:
            if name not in value:
                return [], f"{_shown(name)} is a required field"
        for name, one in value.items():
            wrong = names(name) if names else None
            if wrong:
                return wrong
            test = known.get(name, others)
            found = test(one) if test else None
            if found:
                found[0].append(name)
                return found
            if test is None and rest is False:
                return [], f"the field {_shown(name[:100])} is not known"
        return None

    return check
