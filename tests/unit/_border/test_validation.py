# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What crosses the border does not depend on the libraries of the controller: both validators accept and refuse the same."""

from __future__ import annotations

import copy
import json
import math
import random

import jsonschema_rs
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers, facts, results, schema, text, validation
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import progress
from hypothesis import given, settings, strategies as st

SCHEMAS = {
    "result": results.SCHEMA,
    "facts": facts.SMT,
    "memory facts": facts.MEMORY,
    "progress": progress._CHECKER.schema,
    **{f"answer of {name}": kind.check.__self__.schema for name, kind in answers.KINDS.items()},
    **{f"failure of {name}": kind.check_failure.__self__.schema for name, kind in answers.KINDS.items()},
}
OWN = {name: validation.compiled(one) for name, one in SCHEMAS.items()}
LIBRARY = {name: jsonschema_rs.Draft202012Validator(one) for name, one in SCHEMAS.items()}


def agree(name, data):
    """Both validators say the same of a document. Returns whether they accept it."""
    found = OWN[name](data)
    assert (found is None) == LIBRARY[name].is_valid(data), (name, found, data)
    return found is None


def values_of(one):
    """Values that a schema accepts, and those about its limits, by its keywords."""
    types = one.get("type", ["null"])
    strategies = [st.sampled_from(ODD)]
    strategies += [st.sampled_from([*one["enum"], *(str(value) for value in one["enum"])])] if "enum" in one else []
    strategies += [st.just(one["const"])] if "const" in one else []
    for kind in [types] if isinstance(types, str) else types:
        if kind in ("number", "integer"):
            least, most = one.get("minimum", -5), one.get("maximum", 5)
            strategies.append(
                st.sampled_from([least, most, least - 1, most + 1, float(least), float(most), math.nextafter(most, math.inf), (least + most) / 2])
            )
        elif kind == "string":
            strategies.append(strings_of(one))
        elif kind == "array":
            strategies.append(st.lists(values_of(one.get("items", {})), max_size=3))
        elif kind == "object":
            strategies.append(objects_of(one))
        elif kind == "boolean":
            strategies.append(st.booleans())
        else:
            strategies.append(st.none())
    return st.one_of(*strategies[1:]) | strategies[0]


ODD = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    0.0,
    -0.0,
    1.5,
    2**63 - 1,
    2**63,
    -(2**63),
    10**90,
    1e300,
    -1e300,
    5e-324,
    "",
    "0",
    "a\n",
    "\n",
    "é",
    [],
    {},
    [None],
    {"": 0},
)


def strings_of(one):
    found = st.text(max_size=6) | st.sampled_from(
        ["0-3", "0,4", "smt_on", "gzip", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z\n", "x" * 256, "😀" * 255, "a\r", "²"]
    )
    if "pattern" in one:
        found |= st.from_regex(validation._pattern(one["pattern"]).__self__) | st.from_regex(one["pattern"])
    if "maxLength" in one and one["maxLength"] <= 5000:
        found |= st.sampled_from(["a" * one["maxLength"], "a" * (one["maxLength"] + 1), "😀" * one["maxLength"]])
    return found


def objects_of(one):
    known = {name: values_of(value) for name, value in one.get("properties", {}).items()}
    required = {name: known[name] for name in one.get("required", ())}
    exact = st.fixed_dictionaries(required, optional={name: value for name, value in known.items() if name not in required})
    others = one.get("additionalProperties", True)
    names = strings_of(one.get("propertyNames", {})) | st.just("more")
    more = st.dictionaries(names, values_of(others) if isinstance(others, dict) else st.just(1), max_size=2)
    return st.one_of(exact, st.builds(lambda one, two: {**two, **one}, exact, more), exact.map(lambda found: dict(list(found.items())[1:])))


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_both_say_the_same_of_generated_answers(name):
    # Parts at a time: an answer of fifty fields that are all right would hardly ever be generated.
    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def compare(data):
        part = data.draw(st.sampled_from(PARTS[name]))
        document = data.draw(values_of(part))
        found = validation.compiled(part)(document)
        assert (found is None) == jsonschema_rs.Draft202012Validator(part).is_valid(document), (part, found, document)
        agree(name, document)

    compare()


def parts_of(one):
    """A schema and all schemas within it."""
    inner = [*one.get("properties", {}).values(), *(one[key] for key in ("items", "additionalProperties") if isinstance(one.get(key), dict))]
    return [one, *(part for found in inner for part in parts_of(found))]


PARTS = {name: parts_of(one) for name, one in SCHEMAS.items()}


def places(data, at=()):
    """The paths of all values."""
    found = [at]
    for key, one in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        found += places(one, (*at, key))
    return found


def replaced(data, at, value):
    if not at:
        return value
    data = copy.deepcopy(data)
    inner = data
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return data


def recorded():
    document = json.loads(json.dumps(result_maker.result(blocks=1, shape=(1, 2, 2))))
    return {"result": document, "facts": document["facts"]}


@pytest.mark.parametrize("name", ["facts", "result"])
def test_both_say_the_same_of_real_answers_with_one_value_changed(name):
    source = random.Random(17)
    whole = recorded()[name]
    assert agree(name, whole)
    refused = 0
    for at in source.choices(places(whole), k=400):
        inner = whole
        for key in at:
            inner = inner[key]
        value = source.choice([*ODD, {**inner, "more": 1} if isinstance(inner, dict) else [*inner, 7] if isinstance(inner, list) else f"{inner}\n"])
        refused += not agree(name, replaced(whole, at, value))
    # Neither accepts or refuses everything.
    assert 100 < refused < 400


@pytest.mark.parametrize("at", [("samples", 0, "workers", 0, "value"), ("facts", "sockets"), ("environment", "busy"), ("plan", "workloads", 0, "title")])
def test_both_name_the_same_place(monkeypatch, at):
    wrong = replaced(recorded()["result"], at, [1])
    said = []
    for missing in (None, ImportError("no jsonschema_rs")):
        monkeypatch.setattr(schema, "MISSING_LIBRARY", missing)
        with pytest.raises(text.BorderError) as caught:
            schema.Checker(results.SCHEMA).check(wrong)
        said.append(str(caught.value))
    assert {one.partition(":")[0] for one in said} == {".".join(map(str, at))} and said[0] != said[1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", (1,), {1}])
def test_what_is_not_json_is_refused(value):
    assert validation.compiled({"type": ["number", "string", "array", "object"], "minimum": 0, "maximum": 5})(value)


@pytest.mark.parametrize(
    ("unknown", "words"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"properties": {"a": {"items": {"format": "date"}}}}, "format"),
        ({"type": "text"}, "text"),
        ({"enum": [[1]]}, "constant"),
        ({"additionalProperties": {"pattern": "^a$", "type": "string", "not": {}}}, "not"),
        *(({"type": "string", "pattern": one}, "regular expression") for one in ("a$", "^a", r"^\d$", "^a.$", "^(?i:a)$", "^a$b$", r"^[\w]$")),
    ],
)
def test_a_schema_that_is_not_known_is_no_check(unknown, words):
    with pytest.raises(validation.SchemaError, match=words):
        validation.compiled(unknown)
