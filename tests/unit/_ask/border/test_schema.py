# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schemas of the border: each says only what is checked, means the same to every validator,
and refuses what does not match it with the place and the reason, at little cost.
"""

from __future__ import annotations

import copy
import gc
import importlib
import json
import pathlib
import random
import re

import jsonschema_rs
import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins import plugin_utils
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results, schema, text
from hypothesis import given, settings, strategies as st

# What is known to be checked; a slip in a keyword would be a limit that nothing checks.
KEYWORDS = {
    *("$schema", "$id", "title", "description", "type", "const", "enum"),
    *("required", "properties", "additionalProperties", "propertyNames", "maxProperties"),
    *("items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern"),
    *("minimum", "exclusiveMinimum", "maximum", "anyOf"),
}
TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
# What means the same in every dialect of regular expressions, once the classes of characters are taken out.
PORTABLE = re.compile(r"\^(?:\\\.|[^\\.^$])*\$")
CLASS = re.compile(r"\[(?:[^\]\\]|\\n)*\]")


def schemas():
    """All schemas by which something is checked, also those that only a function has."""
    (root,) = plugin_utils.__path__
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        importlib.import_module(".".join([plugin_utils.__name__, *path.relative_to(root).with_suffix("").parts]))
    return [results.SCHEMA, *(one.schema for one in gc.get_objects() if isinstance(one, schema.Checker))]


def parts_of(one):
    """A schema and all schemas within it."""
    inner = [*one.get("properties", {}).values(), *one.get("prefixItems", ())]
    inner += one.get("anyOf", [])
    inner += [one[key] for key in ("items", "additionalProperties", "propertyNames") if isinstance(one.get(key), dict)]
    return [one, *(part for each in inner for part in parts_of(each))]


PARTS = [part for one in schemas() for part in parts_of(one)]
PATTERNS = sorted({part["pattern"] for part in PARTS if "pattern" in part})


def test_every_schema_says_only_what_is_checked():
    assert {"resultType", "counted_from", "units", "ansible_facts"} <= {
        name for part in PARTS for name in part.get("properties", {})
    }
    for part in PARTS:
        types = part.get("type", [])
        assert set(part) <= KEYWORDS, part
        assert set([types] if isinstance(types, str) else types) <= TYPES, part
        assert not any(isinstance(one, (dict, list)) for one in part.get("enum", ())), part


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_the_same_everywhere(pattern):
    assert PORTABLE.fullmatch(CLASS.sub("x", pattern)) and "(?" not in pattern
    # The end of a text is \Z in Python, where $ may also be before a last newline.
    python = re.compile(rf"{pattern[:-1]}\Z")
    check = schema.Checker({"type": "string", "pattern": pattern}).check

    @settings(max_examples=night.number(6, 25), deadline=None, database=None, derandomize=True)
    @given(st.from_regex(python) | st.from_regex(pattern) | st.text(max_size=6))
    def compare(value):
        # Half a pair is refused before anything else is asked.
        value = value.encode("utf-8", "replace").decode()
        assert accepts(check, value) == bool(python.search(value)), value

    compare()


def accepts(check, value):
    try:
        check(value)
    except text.BorderError:
        return False
    return True


OBJECT = schema.strict(("a",), a=schema.or_null(schema.count(5)), b=schema.text(3, r"^[a-z]*$"))


@pytest.mark.parametrize(
    ("one", "value", "said"),
    [
        (OBJECT, [], "the document: expected `object`, got `array`"),
        (OBJECT, {"b": ""}, "the document: object missing required field `a`"),
        (OBJECT, {"a": 1, "more": 2}, "the document: object contains unknown field `more`"),
        (OBJECT, {"a": -1}, "a: expected `int` >= 0"),
        (OBJECT, {"a": 10**99}, "a: expected `int` <= 5"),
        (OBJECT, {"a": True}, "a: expected `int | null`, got `bool`"),
        (OBJECT, {"a": 1.5}, "a: expected `int | null`, got `float`"),
        (OBJECT, {"a": {"b": [7]}}, "a: expected `int | null`, got `object`"),
        (OBJECT, {"a": 1, "b": "xxxx"}, "b: expected `str` of length <= 3"),
        (OBJECT, {"a": 1, "b": "x\n"}, r"b: expected `str` matching regex '^[a-z]*\\Z'"),
        (schema.one_of("x", None), 1, "the document: expected `str | null`, got `int`"),
        (schema.one_of("x", None), "y", "the document: invalid enum value 'y'"),
        (schema.mapping(OBJECT, 2), {"k": {"a": 1}, "l": {"a": "1"}}, "l.a: expected `int | null`, got `str`"),
        (schema.mapping(OBJECT, 1), {"k": {"a": 1}, "l": {"a": 1}}, "the document: expected `object` of length <= 1"),
        (
            schema.mapping(OBJECT, 1, "^[a-z]$"),
            {"K": {"a": 1}},
            r"the document: expected `str` matching regex '^[a-z]\\Z'",
        ),
        (schema.items(schema.BOOL, 2), [True, False, True], "the document: expected `array` of length <= 2"),
        (schema.items(schema.BOOL, 2), [True, 0], "1: expected `bool`, got `int`"),
        ({**schema.items(schema.BOOL, 2), "minItems": 1}, [], "the document: expected `array` of length >= 1"),
        ({"type": "array", "prefixItems": [schema.BOOL, schema.TEXT]}, [True, 1], "1: expected `str`, got `int`"),
        ({"type": "array", "prefixItems": [schema.BOOL]}, [], "the document: expected `array` of length 1, got 0"),
        ({"type": "number", "exclusiveMinimum": 0}, 0.0, "the document: expected `float` > 0.0"),
        ({"const": "x"}, "y", "the document: invalid enum value 'y'"),
    ],
)
def test_what_is_refused_is_said_with_its_place_and_the_reason(one, value, said):
    with pytest.raises(text.BorderError) as caught:
        schema.Checker(one).check(value)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("one", "value"),
    [
        (OBJECT, {"a": 5, "b": "xxx"}),
        (schema.text(2), "😀😀"),
        (schema.one_of(True, False, 1, 0), True),
        (schema.one_of(True, False, 1, 0), 1),
        (schema.NUMBER, -(2.0**62)),
    ],
)
def test_what_is_at_a_limit_passes(one, value):
    schema.Checker(one).check(value)


@pytest.mark.parametrize(
    ("one", "value", "reason"),
    [
        (schema.text(300), "x" * 9000, "`str` of length <= 300"),
        (schema.mapping(schema.BOOL, 5), {"x" * 9000: True}, "matching regex"),
        (schema.mapping(schema.BOOL, 5), {"\u202e\x1b" * 9000: True}, "matching regex"),
        (schema.BOOL, "\x9b\u202e" * 9000, "expected `bool`"),
        (schema.one_of("a"), "\x9b\u202e" * 9000, "invalid enum value"),
        (OBJECT, {"a": 1, "\x9b\u202e" * 9000: 1}, "object contains unknown field"),
    ],
)
def test_a_long_value_hides_no_reason_and_is_shown_escaped(one, value, reason):
    with pytest.raises(text.BorderError) as caught:
        schema.Checker(one).check(value)
    said = str(caught.value)
    assert reason in said and said.isprintable() and len(said) < 250


def replaced(data, at, value):
    if not at:
        return value
    data = copy.deepcopy(data)
    inner = data
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return data


def places(data, at=()):
    """The paths of all values."""
    known = [at]
    for key, one in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        known += places(one, (*at, key))
    return known


def test_the_place_is_the_one_that_another_library_names():
    """The place is looked for step by step, and jsonschema-rs, asked for the whole document, says the same."""
    whole = json.loads(json.dumps(result_maker.result(blocks=1, shape=(1, 2, 2))))
    check, library = schema.Checker(results.SCHEMA).check, jsonschema_rs.Draft202012Validator(results.SCHEMA)
    check(whole)
    source, refused = random.Random(17), 0
    for at in source.choices(places(whole), k=night.number(25, 100)):
        wrong = replaced(whole, at, source.choice([None, True, -1, 10**90, "", "a\n", [], {}, [None], {"": 0}]))
        errors = {".".join(map(str, one.instance_path)) or "the document" for one in library.iter_errors(wrong)}
        if errors:
            refused += 1
            with pytest.raises(text.BorderError) as caught:
                check(wrong)
            # Of a wrong key with a wrong value the library names the object.
            place = str(caught.value).partition(": ")[0]
            assert place in errors or place.rpartition(".")[0] in errors
        else:
            check(wrong)
    assert 5 < refused < 100


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), b"x", {1: 2}])
def test_what_is_not_json_is_refused(value):
    limits = {"type": ["number", "string", "array", "object", "null"], "minimum": 0, "maximum": 5, "maxLength": 9}
    with pytest.raises(text.BorderError):
        schema.Checker({**schema.mapping(schema.TEXT, 5), **limits}).check(value)


def test_what_is_nested_deeply_is_refused_where_it_begins():
    deep = []
    for _level in range(50_000):
        deep = [deep]
    with pytest.raises(text.BorderError, match=r"^a\.0: expected `str`, got `array`$"):
        schema.Checker(schema.whole(a=schema.items(schema.TEXT, 5))).check({"a": [deep]})


def test_without_the_library_nothing_passes(monkeypatch):
    lost = ModuleNotFoundError("No module named 'msgspec'", name="msgspec")
    monkeypatch.setattr(schema, "MISSING_LIBRARY", lost)
    with pytest.raises(ModuleNotFoundError):
        schema.Checker(schema.BOOL).check(True)
