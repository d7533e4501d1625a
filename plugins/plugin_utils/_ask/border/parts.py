# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the objects behind the border are made of: their base, and types with limits of length, count or size.

A part is declared once, as a class with annotated fields. msgspec makes it from JSON, refuses what has another type,
breaks a limit or has an unknown field, and describes it as JSON schema. The limits allow for machines of 8192 CPUs
(NR_CPUS with CONFIG_MAXSMP in the kernel's arch/x86/Kconfig).
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms, placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text

try:
    import msgspec
except ImportError:

    class msgspec:  # type: ignore[no-redef]  # noqa: N801
        """Stands in, so that an action can say in a sentence what is missing."""

        Meta = field = staticmethod(lambda *_arguments, **_options: None)
        UnsetType, UNSET = type(None), None

        class Struct:
            def __init_subclass__(cls, **_options: t.Any) -> None:
                pass


Made = t.TypeVar("Made")
# Of a field that came later, in data of an earlier version; as false as None, and not written again.
Unset: t.TypeAlias = msgspec.UnsetType
UNSET = msgspec.UNSET


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The base of what a host or a server sends. Its fields have the types and limits that it declares."""


class Excerpt(Part, frozen=True, forbid_unknown_fields=False):
    """A part of a file of which other parts are not read: later releases add fields."""


Changed = t.TypeVar("Changed", bound=Part)


def about(description: str) -> t.Any:
    """Return what describes a field to readers of the published schema; it has the unit of a number. Of an object an
    empty text says what its fields say, and no more.
    """
    return msgspec.Meta(description=description)


def at_most(most: int) -> t.Any:
    """Return the limit of a text's, a list's or a mapping's length."""
    return msgspec.Meta(max_length=most)


def text_of(most: int | None, pattern: str = "", least: int = 0) -> t.Any:
    """Return the limits of a text: its length, and a regular expression that ends in ``$`` and means the end."""
    return msgspec.Meta(max_length=most, pattern=schema.exact(pattern) or None, min_length=least or None)


def between(low: int, high: int | None) -> t.Any:
    """Return the limits of a number."""
    return msgspec.Meta(ge=low, le=high)


def entries(most: int) -> t.Any:
    """Return the limit of a mapping's length, which the published schema names before the mapping's keys."""
    return msgspec.Meta(max_length=most, extra_json_schema={"type": "object", "maxProperties": most})


def in_order(words: t.Any) -> t.Any:
    """Return what makes the published schema list the words of a ``Literal`` in its order: msgspec sorts them."""
    return msgspec.Meta(extra_json_schema={"x-order": list(t.get_args(words))})


# Of a field that is always written, and that files of others may lack.
WRITTEN = msgspec.Meta(extra_json_schema={"x-written": True})


def listed(*values: t.Any) -> t.Any:
    """Return what names the values of an enumeration to readers of the published schema: those of some, in order."""
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


def unread(published: schema.Schema) -> t.Any:
    """Return what describes a field that nobody reads."""
    return msgspec.Meta(extra_json_schema={"x-unread": True, **published})


def empty_mapping() -> t.Any:
    """Return the default of a field: a mapping without entries."""
    return msgspec.field(default_factory=dict)


Text = t.Annotated[str, text_of(schema.MAX_TEXT)]
Name = t.Annotated[str, text_of(schema.MAX_NAME, least=1)]
Sentence = t.Annotated[str, text_of(4000)]
Moment = t.Annotated[str, text_of(20, schema.MOMENT["pattern"])]
CpuList = t.Annotated[str, text_of(schema.MAX_CPU_LIST, schema.CPU_LIST["pattern"])]
# CPUs, or cores by their CPUs ("0,4").
CpuNumbers = t.Annotated[str, text_of(schema.MAX_CPU_LIST, schema.CPU_NUMBERS)]
# A list within a file, far longer than any that is written, and the hosts of one.
MAX_ITEMS, MAX_HOSTS, MAX_LINE = 1000, 200_000, 500
Line = t.Annotated[str, text_of(MAX_LINE, schema.ONE_LINE)]
Lines = t.Annotated[tuple[Line, ...], at_most(MAX_ITEMS)]
Texts = t.Annotated[tuple[Text, ...], at_most(MAX_ITEMS)]
HostLine = t.Annotated[str, text_of(MAX_LINE, r"^[^\n]{1,500}$")]
Day = t.Annotated[str, text_of(10, schema.DAY["pattern"])]
Key = t.Annotated[str, text_of(schema.MAX_NAME, r"^[^\n]{1,255}$")]
# A whole number stays one, as the host has written it.
Number = (
    t.Annotated[int, between(-schema.MAX_NUMBER, schema.MAX_NUMBER)]
    | t.Annotated[float, between(-schema.MAX_NUMBER, schema.MAX_NUMBER)]
)
Seconds = t.Annotated[int, between(0, schema.MAX_SECONDS)] | t.Annotated[float, between(0, schema.MAX_SECONDS)]
# CPU usage comes from two clocks, so it can be slightly above 1.
Share = t.Annotated[int, between(0, 2)] | t.Annotated[float, between(0, 2)]
Count = t.Annotated[int, between(0, 1_000_000_000)]
Cpu = t.Annotated[int, between(0, 65535)]
Better = t.Literal["higher", "lower"]

# Names declared by this collection or by the user, with the syntax of the packages that declare them.
RunName = t.Annotated[str, text_of(100, schema.RUN_NAME)]
WorkloadName = t.Annotated[str, text_of(100, r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
MetricName = t.Annotated[str, text_of(100, r"^[A-Za-z][A-Za-z0-9_]{0,99}$")]
ArmName = t.Annotated[str, text_of(arms.LONGEST_NAME, arms.NAME)]
PlacementName = t.Annotated[
    str,
    text_of(
        placements.LONGEST_NAME,
        r"^([a-z_]{1,40}|packages_2|(free|spread|packed)_[1-9][0-9]{0,3}|cpus(_[0-9]{1,5}){1,16})$",
    ),
]


# Such as C(text) and V(text).
_MARKUP = re.compile(r"\b[A-Z]\(([^)]*)\)")


def with_documented(
    known: type[Changed], documentation: t.Mapping[str, t.Any], by_type: t.Mapping[str, t.Any]
) -> type[Changed]:
    """Return a class with all fields that are documented, and with their descriptions.

    Args:
        known: the class that declares the others.
        documentation: name of a field -> its entry in ``RETURN`` of a module.
        by_type: type in such an entry -> that of a field which no class declares: it may be null, and be missing.
    """
    if schema.MISSING_LIBRARY is not None:
        return known
    fields: dict[str, t.Any] = {
        field.name: (field.type, *([] if field.required else [field.default]))
        for field in msgspec.structs.fields(known)
    }
    for name, entry in documentation.items():
        if name not in fields and entry["type"] in by_type:
            fields[name] = (by_type[entry["type"]] | None | Unset, UNSET)
        if name in fields and "description" in entry:
            kind, *default = fields[name]
            words = entry["description"]
            plain_words = _MARKUP.sub(r"\1", words if isinstance(words, str) else " ".join(words))
            fields[name] = (t.Annotated[kind, about(plain_words)], *default)
    declared = [(name, *rest) for name, rest in fields.items()]
    options: dict[str, t.Any] = {"module": known.__module__, "frozen": True, "kw_only": True}
    return t.cast("type[Changed]", msgspec.defstruct(known.__name__, declared, bases=(known,), **options))


def decoded(document_text: str, kind: type[Made]) -> Made:
    """Make an object from a JSON text; its numbers are finite, and its texts are safe to display.

    Raises:
        BorderError: not JSON, or not what the object holds; the message is msgspec's, which names no key of a mapping.
    """
    try:
        if text.may_be_unshowable(document_text):
            return converted(text.parse(document_text), kind)
        return msgspec.json.decode(document_text, type=kind)
    except msgspec.ValidationError as error:
        raise text.BorderError(text.line(error, 300)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        # The standard library says in which line.
        text.parse(document_text)
        raise text.BorderError(f"not a complete JSON document ({error})") from None


def converted(data: t.Any, kind: type[Made]) -> Made:
    """Make an object from plain data whose texts are safe to display; errors as in :func:`decoded`."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise text.BorderError(text.line(error, 300)) from None
    except RecursionError:
        raise text.BorderError("nested too deeply") from None


def changed(part: Changed, **values: t.Any) -> Changed:
    """Return the same object with other values of some of its fields."""
    return msgspec.structs.replace(part, **values)


def plain(part: t.Any) -> t.Any:
    """Return the data of an object, or of a tuple or a mapping of objects, as JSON has them."""
    return msgspec.json.decode(msgspec.json.encode(part))


def fields(part: Part) -> dict[str, t.Any]:
    """Return the fields of an object by name."""
    return msgspec.structs.asdict(part)


def schema_of(kind: t.Any) -> schema.Schema:
    """Return the JSON schema of a class, with the schema of each part in its place."""
    if schema.MISSING_LIBRARY is not None:
        return schema.strict()
    whole = msgspec.json.schema(kind)
    named = whole.get("$defs", {})
    for part in named.values():
        _describe(part)
    return t.cast("schema.Schema", _inlined(whole, named))


_ATTRIBUTE = re.compile(r"^ {8}(\w+): (.+(?:\n {12}.+)*)", re.MULTILINE)


def _describe(part: t.Any) -> None:
    """Describe the fields of a class as its docstring does, where that says what they are to readers of the schema."""
    section = part.get("description", "").partition("Attributes of the file:\n")[2]
    for name, words in _ATTRIBUTE.findall(section):
        line = " ".join(words.split())
        part["properties"][name]["description"] = line[0].upper() + line[1:]
    if section or "enum" in part:
        part.pop("description", None)


def without_limits(part: t.Any) -> t.Any:
    """Return the schema of what is written: the limits by which files of others are read are none of it."""
    if isinstance(part, list):
        return [without_limits(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    if part.pop("x-unread", False):
        return part
    limits = {"maxItems", "maximum", *(("maxLength", "pattern") if part.get("maxLength", 0) >= MAX_LINE else ())}
    kept = {key: without_limits(value) for key, value in part.items() if key not in limits}
    if kept.get("minimum", 0) < 0:
        del kept["minimum"]
    if "properties" in kept:
        always = [
            name for name, field in kept["properties"].items() if field.pop("x-written", name in kept["required"])
        ]
        kept.update(required=always, additionalProperties=False)
    return {key: kept[key] for key in sorted(kept, key=lambda key: key == "description")}


def _inlined(part: t.Any, named: t.Mapping[str, t.Any]) -> t.Any:
    if isinstance(part, list):
        return [_inlined(entry, named) for entry in part]
    if not isinstance(part, dict):
        return part.removesuffix(r"\Z") + "$" if isinstance(part, str) and part.endswith(r"\Z") else part
    whole = {**named[part["$ref"].rpartition("/")[2]], **part} if "$ref" in part else part
    inlined = {
        key: _inlined(value, named)
        for key, value in whole.items()
        if key not in ("$defs", "$ref", "default")
        and (key, type(value)) != ("title", str)
        and (key, value) != ("description", "")
    }
    if "anyOf" in inlined:
        inlined = {**_joined(inlined.pop("anyOf")), **inlined}
    if "x-order" in inlined:
        inlined["enum"].sort(key=[*inlined.pop("x-order"), None].index)
    return {key: inlined[key] for key in sorted(inlined, key=lambda key: _ORDER.index(key) if key in _ORDER else -1)}


# The keywords of a part as they are read best, after what says its kind.
_ORDER = ("required", "properties", "additionalProperties", "description")


def _joined(kinds: list[schema.Schema]) -> schema.Schema:
    """Return the schema of what is of one of some kinds; a keyword of one kind says nothing of others."""
    types = [kind["type"] for kind in kinds if "type" in kind]
    if "number" in types and "integer" in types:
        # A number, whole or not.
        kinds = [kind for kind in kinds if kind.get("type") != "integer"]
        types.remove("integer")
    if any("enum" in kind for kind in kinds):
        return {"enum": [value for kind in kinds for value in kind.get("enum", [None])]}
    return {**{key: value for kind in kinds for key, value in kind.items()}, "type": types if types[1:] else types[0]}
