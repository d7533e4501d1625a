# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What crosses the border does not depend on the libraries of the controller:
both validators accept and refuse the same.
"""

from __future__ import annotations

import copy
import gc
import importlib
import inspect
import json
import math
import pathlib
import random

import jsonschema_rs
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins import plugin_utils
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts, results, schema, text, validation
from hypothesis import given, settings, strategies as st


def modules():
    """All modules of the controller's side."""
    (root,) = plugin_utils.__path__
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        yield importlib.import_module(".".join([plugin_utils.__name__, *path.relative_to(root).with_suffix("").parts]))


def checkers(value):
    """The checkers within a value of a module: in collections, in objects of this collection,
    and those whose method it is.
    """
    if isinstance(value, schema.Checker):
        yield value
    elif inspect.ismethod(value):
        yield from checkers(value.__self__)
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from checkers(one)
    elif type(value).__module__.startswith(plugin_utils.__name__) and hasattr(value, "__dict__"):
        yield from checkers(vars(value))


def named():
    """Each schema by which something is checked, by where it is."""
    found = {}
    for module in modules():
        for attribute, value in vars(module).items():
            for number, one in enumerate(checkers(value)):
                if not any(one.schema is other for other in found.values()):
                    found[f"{module.__name__.removeprefix(plugin_utils.__name__)}.{attribute} {number}"] = one.schema
    return found


SCHEMAS = {"facts": facts.SMT, "memory facts": facts.MEMORY, "result": results.SCHEMA, **named()}
OWN = {name: validation.compiled(one) for name, one in SCHEMAS.items()}
LIBRARY = {name: jsonschema_rs.Draft202012Validator(one) for name, one in SCHEMAS.items()}


def test_every_checker_of_the_collection_is_compiled_and_compared():
    """All that there are, also one that only a function has, can be compiled;
    and those that are compared are not a few of them.
    """
    for one in [one.schema for one in gc.get_objects() if isinstance(one, schema.Checker)]:
        validation.compiled(one)
    assert {"resultType", "counted_from", "units", "ansible_facts"} <= {
        field for one in SCHEMAS.values() for field in one.get("properties", {})
    }


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
            least, most = one.get("minimum", one.get("exclusiveMinimum", -5)), one.get("maximum", 5)
            strategies.append(
                st.sampled_from(
                    [
                        least,
                        most,
                        least - 1,
                        most + 1,
                        float(least),
                        float(most),
                        math.nextafter(most, math.inf),
                        (least + most) / 2,
                    ]
                )
            )
        elif kind == "string":
            strategies.append(strings_of(one))
        elif kind == "array":
            first = [values_of(part) for part in one.get("prefixItems", ())]
            strategies.append(st.lists(values_of(one.get("items", {})), max_size=3))
            strategies += [st.tuples(*first).map(list), st.tuples(*first, st.none()).map(list)] if first else []
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
        [
            "0-3",
            "0,4",
            "smt_on",
            "gzip",
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05Z\n",
            "x" * 256,
            "😀" * 255,
            "a\r",
            "²",
        ]
    )
    if "pattern" in one:
        found |= st.from_regex(validation._pattern(one["pattern"]).__self__) | st.from_regex(one["pattern"])
    if "maxLength" in one and one["maxLength"] <= 5000:
        found |= st.sampled_from(["a" * one["maxLength"], "a" * (one["maxLength"] + 1), "😀" * one["maxLength"]])
    return found


def objects_of(one):
    known = {name: values_of(value) for name, value in one.get("properties", {}).items()}
    required = {name: known[name] for name in one.get("required", ())}
    exact = st.fixed_dictionaries(
        required, optional={name: value for name, value in known.items() if name not in required}
    )
    others = one.get("additionalProperties", True)
    names = strings_of(one.get("propertyNames", {})) | st.just("more")
    more = st.dictionaries(names, values_of(others) if isinstance(others, dict) else st.just(1), max_size=2)
    return st.one_of(
        exact,
        st.builds(lambda one, two: {**two, **one}, exact, more),
        exact.map(lambda found: dict(list(found.items())[1:])),
    )


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


KEYWORDS = {
    "minItems": ({"minItems": 2, "maxItems": 3}, [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], "x", {}]),
    "prefixItems": (
        {"prefixItems": [{"type": "number"}, {"type": "string"}]},
        [[], [1], ["x"], [1, "x"], [1, 2], [1, "x", None], [True, "x"]],
    ),
    "prefixItems and items": (
        {"prefixItems": [{"type": "number"}], "items": {"type": "null"}},
        [[1], [1, None], [1, 2], [None], [1, None, 3]],
    ),
    "exclusiveMinimum": ({"exclusiveMinimum": 0, "maximum": 1}, [0, 0.0, -0.0, 5e-324, -1, 1, 1.5, True, "0", None]),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_both_say_the_same_at_the_limits_of_a_keyword(name):
    one, values = KEYWORDS[name]
    own, library = validation.compiled(one), jsonschema_rs.Draft202012Validator(one)
    said = [own(value) is None for value in values]
    assert said == [library.is_valid(value) for value in values] and True in said and False in said


def parts_of(one):
    """A schema and all schemas within it."""
    inner = [
        *one.get("properties", {}).values(),
        *one.get("prefixItems", ()),
        *(one[key] for key in ("items", "additionalProperties") if isinstance(one.get(key), dict)),
    ]
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
        value = source.choice(
            [
                *ODD,
                (
                    {**inner, "more": 1}
                    if isinstance(inner, dict)
                    else [*inner, 7]
                    if isinstance(inner, list)
                    else f"{inner}\n"
                ),
            ]
        )
        refused += not agree(name, replaced(whole, at, value))
    # Neither accepts or refuses everything.
    assert 100 < refused < 400


@pytest.mark.parametrize(
    "at",
    [
        ("samples", 0, "workers", 0, "value"),
        ("facts", "sockets"),
        ("environment", "busy"),
        ("plan", "workloads", 0, "title"),
    ],
)
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
        *(
            ({"type": "string", "pattern": one}, "regular expression")
            for one in ("a$", "^a", r"^\d$", "^a.$", "^(?i:a)$", "^a$b$", r"^[\w]$")
        ),
    ],
)
def test_a_schema_that_is_not_known_is_no_check(unknown, words):
    with pytest.raises(validation.SchemaError, match=words):
        validation.compiled(unknown)
