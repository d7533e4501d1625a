# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the objects behind the border are made of: their base, and types with limits of length, count or size.

A part is declared once, as a class with annotated fields. msgspec makes it from JSON, refuses what has another type,
breaks a limit or has an unknown field, and describes it as JSON schema. The limits allow for machines of 8192 CPUs
(NR_CPUS with CONFIG_MAXSMP in the kernel's arch/x86/Kconfig).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import types
import typing as t
from typing import ClassVar

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms, placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text


class _StandIn:
    """Stands in for msgspec, so that an action can say in a sentence what is missing."""

    Meta = field = staticmethod(lambda *_arguments, **_options: None)
    UnsetType, UNSET = type(None), None

    class Struct:
        def __init_subclass__(cls, **_options: t.Any) -> None:
            pass


if t.TYPE_CHECKING or schema.MISSING_LIBRARY is None:
    import msgspec
else:
    msgspec = _StandIn

Made = t.TypeVar("Made")
# Of a field that came later, in data of an earlier version; as false as None, and not written again.
Unset: t.TypeAlias = msgspec.UnsetType
UNSET = msgspec.UNSET


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The base of what a host or a server sends. Its fields have the types and limits that it declares."""


class Excerpt(Part, frozen=True, forbid_unknown_fields=False):
    """A part of a file of which other parts are not read: later releases add fields."""


class Answer(Part, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=True):
    """The base of what a module of this collection answers. Only what it declares is kept: what Ansible adds
    (``invocation``, ``deprecations``) is dropped.

    Attributes:
        characters: length of the longest accepted text. Facts of 8192 CPUs with their problems are below 1 MiB.
        of_failure: what a failed module says, beside its message.
        warnings: lines that are safe to display.
    """

    characters: ClassVar[int] = 8 * 1024 * 1024
    of_failure: ClassVar[type[Part]] = Excerpt
    warnings: tuple[str, ...] = ()

    @property
    def of_ansible(self) -> dict[str, t.Any]:
        """What Ansible itself wants to know of it."""
        return {}

    def check(self) -> None:
        """Check what no type says of it; raises BorderError."""


class ChangedAnswer(Answer, frozen=True, kw_only=True):
    """An answer that says whether the host was changed."""

    changed: bool


Changed = t.TypeVar("Changed", bound=Part)


def about(description: str) -> t.Any:
    """Return what describes a field to readers of the published schema; it has the unit of a number. Of an object an
    empty text says what its fields say, and no more.
    """
    return msgspec.Meta(description=description)


def at_most(most: int) -> t.Any:
    """Return the limit of a text's, a list's or a mapping's length."""
    return msgspec.Meta(max_length=most)


def exact(pattern: str) -> str:
    """Return a regular expression for Python, where a newline may follow what ``$`` matches."""
    return pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern


def text_of(most: int | None, pattern: str = "", least: int = 0) -> t.Any:
    """Return the limits of a text: its length, and a regular expression that ends in ``$`` and means the end."""
    return msgspec.Meta(max_length=most, pattern=exact(pattern) or None, min_length=least or None)


def from_to(least: int, most: int) -> t.Any:
    """Return the limits of a list's length."""
    return msgspec.Meta(min_length=least, max_length=most)


def between(low: float, high: float | None) -> t.Any:
    """Return the limits of a number."""
    return msgspec.Meta(ge=low, le=high)


def above(low: float, high: float) -> t.Any:
    """Return the limits of a number, the lower one of which is none of them."""
    return msgspec.Meta(gt=low, le=high)


def entries(most: int) -> t.Any:
    """Return the limit of a mapping's length, which the published schema names before the mapping's keys."""
    return msgspec.Meta(max_length=most, extra_json_schema={"type": "object", "maxProperties": most})


def in_order(words: t.Any) -> t.Any:
    """Return what makes the published schema list the words of a ``Literal`` in its order: msgspec sorts them."""
    return msgspec.Meta(extra_json_schema={"x-order": list(t.get_args(words))})


def shown(**keywords: t.Any) -> t.Any:
    """Return what the published schema has in place of what msgspec makes of limits."""
    return msgspec.Meta(extra_json_schema={"x-shown": keywords})


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
CpuList = t.Annotated[str, text_of(schema.MAX_CPU_LIST, r"^[0-9,-]*$")]
# CPUs, or cores by their CPUs ("0,4"): without ranges, so that the length of the text limits their number.
CpuNumbers = t.Annotated[str, text_of(schema.MAX_CPU_LIST, r"^([0-9]{1,5}(,[0-9]{1,5})*)?$")]
# A list within a file, far longer than any that is written, and the hosts of one.
MAX_ITEMS, MAX_HOSTS, MAX_LINE = 1000, 200_000, 500
Line = t.Annotated[str, text_of(MAX_LINE, schema.ONE_LINE)]
Lines = t.Annotated[tuple[Line, ...], at_most(MAX_ITEMS)]
Texts = t.Annotated[tuple[Text, ...], at_most(MAX_ITEMS)]
HostLine = t.Annotated[str, text_of(MAX_LINE, r"^[^\n]{1,500}$")]
Day = t.Annotated[str, text_of(10, schema.DAY["pattern"])]
Key = t.Annotated[str, text_of(schema.MAX_NAME, r"^[^\n]{1,255}$")]
LineKey = t.Annotated[str, text_of(None, r"^[^\n]{1,255}$")]
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
        BorderError: not JSON, or not what the object holds; the message names the place of the first error.
        ImportError: this controller lacks msgspec.
    """
    if schema.MISSING_LIBRARY is None and not text.may_be_unshowable(document_text):
        # What is wrong, and where, is said of plain data.
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(document_text, type=kind)
    return converted(text.parse(document_text), kind)


def converted(data: t.Any, kind: type[Made]) -> Made:
    """Make an object from plain data whose texts are safe to display; errors as in :func:`decoded`."""
    if schema.MISSING_LIBRARY is not None:
        raise schema.MISSING_LIBRARY
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        place, reason = _first_error(kind, data, _reason(error))
    raise text.BorderError(f"{text.line('.'.join(place) or 'the document', 160)}: {text.line(reason, 200)}")


def untagged(registered: t.Any) -> t.Any:
    """Return what Ansible has kept as plain data: after a template it has Ansible's own kinds of texts and containers.

    Raises:
        BorderError: as :func:`text.parse`.
    """
    return text.parse(json.dumps(registered, default=str))


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    what = str(error).partition(" - at `")[0]
    return what[:1].lower() + what[1:]


def _first_error(kind: t.Any, data: t.Any, reason: str) -> tuple[list[str], str]:
    """Return the path and the reason of the first error in data that are not valid: msgspec names no key of a mapping.

    Args:
        kind: what the data are to be.
        data: plain JSON data.
        reason: why they are not.
    """
    place: list[str] = []
    while True:
        for name, part, value in _parts(kind, data):
            try:
                msgspec.convert(value, part)
            except (msgspec.ValidationError, RecursionError) as error:
                place.append(str(name))
                kind, data, reason = part, value, _reason(error)
                break
        else:
            return place, reason


def _parts(kind: t.Any, data: t.Any) -> t.Iterator[tuple[str | int, t.Any, t.Any]]:
    """Yield the name or number of each value in an object or a list, its type, and the value."""
    if t.get_origin(kind) is t.Annotated:
        yield from _parts(t.get_args(kind)[0], data)
    elif t.get_origin(kind) in (t.Union, types.UnionType):
        for each in t.get_args(kind):
            yield from _parts(each, data)
    elif isinstance(data, dict) and isinstance(kind, type(msgspec.Struct)):
        known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        yield from ((name, known[name], value) for name, value in data.items() if name in known)
    elif isinstance(data, dict) and t.get_origin(kind) is dict:
        yield from ((name, t.get_args(kind)[1], value) for name, value in data.items())
    elif isinstance(data, list) and t.get_origin(kind) in (list, tuple):
        of_items = t.get_args(kind)
        yield from zip(
            itertools.count(), itertools.repeat(of_items[0]) if of_items[1:] in ((), (...,)) else of_items, data
        )


def prepare(kind: type[t.Any]) -> None:
    """Make what the first object of a class makes, in a process from which many are forked that make them."""
    if schema.MISSING_LIBRARY is None:
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.convert(None, kind)


def changed(part: Changed, **values: t.Any) -> Changed:
    """Return the same object with other values of some of its fields."""
    return msgspec.structs.replace(part, **values)


def data(part: t.Any) -> t.Any:
    """Return the data of an object, whose numbers may be none that JSON has."""
    return msgspec.to_builtins(part)


def plain(part: t.Any) -> t.Any:
    """Return the data of an object, or of a tuple or a mapping of objects, as JSON has them."""
    return msgspec.json.decode(msgspec.json.encode(part))


def fields(part: Part) -> dict[str, t.Any]:
    """Return the fields of an object by name."""
    return msgspec.structs.asdict(part)


def schema_of(kind: t.Any, docstrings: bool = False) -> schema.Schema:
    """Return the JSON schema of a class, with the schema of each part in its place.

    Args:
        kind: the class.
        docstrings: whether those of its parts describe them to readers of the schema.
    """
    if schema.MISSING_LIBRARY is not None:
        return schema.strict()
    whole = msgspec.json.schema(kind)
    named = whole.get("$defs", {})
    for part in named.values():
        _describe(part)
        if not docstrings:
            part.pop("description", None)
    return t.cast("schema.Schema", _inlined(whole, named, _ORDER if docstrings else (*_LIMITS, *_ORDER)))


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


def _inlined(part: t.Any, named: t.Mapping[str, t.Any], order: t.Sequence[str]) -> t.Any:
    if isinstance(part, list):
        return [_inlined(entry, named, order) for entry in part]
    if not isinstance(part, dict):
        return part.removesuffix(r"\Z") + "$" if isinstance(part, str) and part.endswith(r"\Z") else part
    whole = {**named[part["$ref"].rpartition("/")[2]], **part} if "$ref" in part else part
    inlined = {
        key: _inlined(value, named, order)
        for key, value in whole.items()
        if key not in ("$defs", "$ref", "default")
        and (key, type(value)) != ("title", str)
        and (key, value) != ("description", "")
    }
    if "anyOf" in inlined:
        inlined = {**_joined(inlined.pop("anyOf")), **inlined}
    inlined.update(inlined.pop("x-shown", {}))
    if "x-order" in inlined:
        inlined["enum"].sort(key=[*inlined.pop("x-order"), None].index)
    return {key: inlined[key] for key in sorted(inlined, key=lambda key: order.index(key) if key in order else -1)}


# The keywords of a part as they are read best, after what says its kind.
_LIMITS = ("items", "minLength", "maxLength", "maxItems", "minItems", "pattern", "maxProperties", "propertyNames")
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
