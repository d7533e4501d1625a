# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result file of one host: its schema, reading it without trust, writing it whole or not at all.

A result comes from a managed host, and a host may be broken or hostile. What passes :func:`load` has the types and sizes of
:data:`SCHEMA`, finite numbers only, and strings that can be encoded and shown; what does not is refused with the file's name and the reason.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
import re
import shutil
import tempfile
import typing as t
from pathlib import Path
from urllib.parse import quote

try:
    import jsonschema_rs
    import orjson
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

SCHEMA_NAME = "threadwise.smt/result"
SCHEMA_VERSION = 1

MAX_BYTES = 32 * 1024 * 1024
MAX_TEXT = 20_000
# Of a file that is compared or copied, in bytes.
PIECE = 1024 * 1024
MAX_NAME = 255
# Beyond any count or rate a machine reaches, and far enough from the largest double that sums and squares stay finite. Bounds are integers of 64 bits:
# jsonschema-rs holds numbers against any other bound ten times as slowly, and a fleet has millions of them.
MAX_NUMBER = 2**63 - 1
MAX_SECONDS = 1_000_000_000

# Names in a run's directory that belong to the report.
REPORT_NAMES = frozenset({"index", "results", "comparisons", "summary", "metrics"})

_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
_TEXT = {"type": "string", "maxLength": MAX_TEXT}
_TEXT_OR_NULL = {"type": ["string", "null"], "maxLength": MAX_TEXT}
_NUMBER = {"type": "number", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
_NUMBER_OR_NULL = {"type": ["number", "null"], "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
_COUNT_OR_NULL = {"type": ["integer", "null"], "minimum": 0, "maximum": 1_000_000_000}
_BETTER = {"enum": ["higher", "lower"]}
# Seconds a sample can take, and so a bound for times that are shown.
_SECONDS_OR_NULL = {"type": ["number", "null"], "minimum": 0, "maximum": MAX_SECONDS}
# A usage is read from two clocks, so it may be a little above 1.
_SHARE_OR_NULL = {"type": ["number", "null"], "minimum": 0, "maximum": 2}
_BOOL_OR_NULL = {"type": ["boolean", "null"]}


def _object(required: t.Sequence[str] = (), **properties: t.Any) -> dict[str, t.Any]:
    """JSON schema of an object: further fields are allowed, so that a newer host's extra data is no reason to refuse."""
    return {"type": "object", "required": list(required), "properties": properties}


def _list(items: dict[str, t.Any], most: int) -> dict[str, t.Any]:
    return {"type": "array", "items": items, "maxItems": most}


def _or_null(schema: dict[str, t.Any]) -> dict[str, t.Any]:
    return {**schema, "type": [schema["type"], "null"]}


_METRIC = _object(("value",), name=_NAME, value=_NUMBER_OR_NULL, unit=_TEXT_OR_NULL, better=_BETTER)

_WORKER = _object(cpus=_TEXT_OR_NULL, value=_NUMBER_OR_NULL, wall_seconds=_SECONDS_OR_NULL, cpu_seconds=_SECONDS_OR_NULL)

# The parameter of a workload that is measured at several points.
_POINT = {"name": _NAME, "unit": _TEXT_OR_NULL}
_COUNTERS = {
    "type": "object",
    "maxProperties": 100_000,
    "additionalProperties": _object(cycles=_NUMBER_OR_NULL, instructions=_NUMBER_OR_NULL, ipc=_NUMBER_OR_NULL, cpi=_NUMBER_OR_NULL),
}
# Usage by the names of CPUs, or of cores ("0,4").
_USAGE = {"type": ["object", "null"], "maxProperties": 100_000, "additionalProperties": _SHARE_OR_NULL}

_SAMPLE = _object(
    ("workload", "placement", "condition", "block", "ok", "metric"),
    workload=_NAME,
    placement=_NAME,
    condition=_NAME,
    block={"type": "integer", "minimum": 0, "maximum": 1_000_000_000},
    index=_COUNT_OR_NULL,
    ok={"type": "boolean"},
    error=_TEXT_OR_NULL,
    started=_TEXT_OR_NULL,
    wall_seconds=_SECONDS_OR_NULL,
    metric=_or_null(_METRIC),
    metrics={"type": ["object", "null"], "maxProperties": 1000, "additionalProperties": _METRIC},
    workers=_or_null(_list(_WORKER, 100_000)),
    point=_or_null(_object(("name", "value"), value=_NUMBER, **_POINT)),
    cpu_usage=_USAGE,
    core_usage=_USAGE,
    steal=_SHARE_OR_NULL,
    frequency={"type": ["object", "null"], "maxProperties": 100_000, "additionalProperties": _NUMBER_OR_NULL},
    throttled=_COUNT_OR_NULL,
    boot=_COUNT_OR_NULL,
    pair=_COUNT_OR_NULL,
    perf=_or_null(_object(reason=_TEXT_OR_NULL, cpus=_COUNTERS, cores=_COUNTERS)),
)

_PLACEMENT = _object(
    workers=_or_null(_list(_list({"type": "integer", "minimum": 0, "maximum": 1_000_000}, 100_000), 100_000)),
    same_as=_TEXT_OR_NULL,
    reason=_TEXT_OR_NULL,
)

_WORKLOAD = _object(
    ("name",), name=_NAME, title=_TEXT_OR_NULL, metric=_TEXT_OR_NULL, unit=_TEXT_OR_NULL, better=_BETTER, points=_or_null(_list(_NUMBER, 10_000)),
    point=_or_null(_object(("name",), **_POINT)),
)

_SETTINGS = {"type": ["object", "null"], "maxProperties": 100, "additionalProperties": _NUMBER_OR_NULL}
_CPU_STATE = {
    "type": ["object", "null"],
    "properties": {"control": _TEXT_OR_NULL, "online": {"type": ["string", "array", "null"], "maxLength": MAX_TEXT, "maxItems": 100_000}},
}

_OBSERVATION = _object(
    ("condition",), condition=_NAME, settings=_SETTINGS, headroom_bytes=_NUMBER_OR_NULL, asked_bytes=_NUMBER_OR_NULL,
    allocatable=_or_null(_object(largest_bytes=_NUMBER_OR_NULL, total_bytes=_NUMBER_OR_NULL, total_limited=_BOOL_OR_NULL)),
    allocatable_reason=_TEXT_OR_NULL, overreach=_or_null(_object(("outcome",), outcome=_TEXT, touched_bytes=_NUMBER_OR_NULL)), overreach_reason=_TEXT_OR_NULL,
)

_CPU_SETS = {"type": ["array", "null"], "items": _TEXT, "maxItems": 100_000}

_FACTS = _object(
    supported=_BOOL_OR_NULL,
    control=_TEXT_OR_NULL,
    active=_BOOL_OR_NULL,
    sockets=_COUNT_OR_NULL,
    cores=_COUNT_OR_NULL,
    threads_per_core=_or_null(_object(min=_COUNT_OR_NULL, max=_COUNT_OR_NULL, online_max=_COUNT_OR_NULL)),
    cpus=_or_null(_object(present=_TEXT_OR_NULL, possible=_TEXT_OR_NULL, online=_TEXT_OR_NULL, offline=_TEXT_OR_NULL, isolated=_TEXT_OR_NULL)),
    sibling_groups=_CPU_SETS,
    nodes={"type": ["object", "null"], "additionalProperties": _TEXT_OR_NULL, "maxProperties": 10_000},
    numbering=_TEXT_OR_NULL,
    source=_TEXT_OR_NULL,
    complete=_BOOL_OR_NULL,
    vulnerabilities={
        "type": ["object", "null"],
        "maxProperties": 1000,
        "additionalProperties": _object(status=_TEXT_OR_NULL, smt=_TEXT_OR_NULL),
    },
    hardware_class=_TEXT_OR_NULL,
)

SCHEMA: dict[str, t.Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What one host measured in one run",
    **_object(
        ("schema", "schema_version", "run", "host", "outcome", "facts", "environment", "change", "plan", "samples"),
        schema={"const": SCHEMA_NAME},
        schema_version={"const": SCHEMA_VERSION},
        run=_NAME,
        host=_NAME,
        collection_version=_TEXT_OR_NULL,
        started=_TEXT_OR_NULL,
        finished=_TEXT_OR_NULL,
        outcome={"enum": ["completed", "failed", "interrupted"]},
        message=_TEXT_OR_NULL,
        facts=_FACTS,
        environment={"type": "object", "maxProperties": 1000, "properties": {"busy": _or_null(_object(others=_SHARE_OR_NULL))}},
        change=_object(("compared",), name=_TEXT_OR_NULL, compared={"type": "boolean"}, reason=_TEXT_OR_NULL, before=_TEXT_OR_NULL, after=_TEXT_OR_NULL,
                       confounded=_BOOL_OR_NULL, boots=_COUNT_OR_NULL),
        plan=_object(
            blocks=_COUNT_OR_NULL,
            blocks_done=_COUNT_OR_NULL,
            seconds_budget=_SECONDS_OR_NULL,
            settle_seconds=_SECONDS_OR_NULL,
            margin=_SHARE_OR_NULL,
            stopped=_TEXT_OR_NULL,
            workloads=_or_null(_list(_WORKLOAD, 1000)),
            placements={
                "type": ["object", "null"],
                "maxProperties": 10,
                "additionalProperties": {"type": "object", "maxProperties": 10_000, "additionalProperties": _PLACEMENT},
            },
        ),
        samples=_list(_SAMPLE, 500_000),
        skipped=_list(_object(("reason",), workload=_TEXT_OR_NULL, placement=_TEXT_OR_NULL, condition=_TEXT_OR_NULL, reason=_TEXT), 100_000),
        observations=_or_null(_list(_OBSERVATION, 100)),
        events=_list(_object(at=_TEXT_OR_NULL, event=_TEXT_OR_NULL, detail={}), 500_000),
        restored=_or_null(
            _object(("ok",), ok=_BOOL_OR_NULL, before=_CPU_STATE, after=_CPU_STATE, differences=_or_null(_list(_TEXT, 100_000))),
        ),
    ),
}


@functools.cache
def _validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(SCHEMA)


# C0 and C1 controls but tab and newline, lone surrogates (they cannot be encoded), and the marks that reverse the reading order of what follows.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")

# How JSON writes what may be unshowable without holding it.
_ESCAPES = ("\\u", "\\b", "\\f", "\\r")


class ResultError(Exception):
    """A result that cannot be read, trusted or written. The message names the file and says why and what to do."""


def showable(text: str) -> str:
    """``text`` with every character that cannot be encoded or that disturbs a page or a terminal replaced by U+FFFD."""
    return _UNSHOWABLE.sub("\ufffd", text)


def _may_be_unshowable(text: str) -> bool:
    """Whether a JSON text may hold a string that :func:`showable` would change. JSON itself forbids the controls below a space."""
    if "\\" in text and any(escape in text for escape in _ESCAPES):
        return True
    return "\x7f" in text if text.isascii() else _UNSHOWABLE.search(text) is not None


def _showable_all(value: t.Any) -> t.Any:
    if isinstance(value, str):
        return showable(value)
    if isinstance(value, dict):
        return {showable(key): _showable_all(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_showable_all(item) for item in value]
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _short_integer(text: str) -> int:
    if len(text) > 100:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _no_constant(text: str) -> t.NoReturn:
    raise ValueError(f"{text} is no number")


def _loads(text: str) -> t.Any:
    """JSON as data: by orjson, and what that refuses by the standard library, which takes halves of surrogates and says which constant or number is wrong.

    :raises ValueError: what is wrong
    :raises RecursionError: nested too deeply
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text, parse_float=_finite, parse_int=_short_integer, parse_constant=_no_constant)


def parse(text: str, source: str) -> dict[str, t.Any]:
    """A result document from its JSON text.

    :param text: the JSON text
    :param source: the file's name, for messages
    :raises ResultError: not JSON, NaN or infinite numbers, another schema or version, or not as :data:`SCHEMA` says
    """
    try:
        document = _loads(text)
        # Most results hold nothing that has to be replaced, and to look at the text is a tenth of the work of going through the document.
        if _may_be_unshowable(text):
            document = _showable_all(document)
    except json.JSONDecodeError as error:
        raise ResultError(
            f"{source}: not a whole JSON document ({error.msg} at line {error.lineno}, column {error.colno}): collect this host again"
        ) from error
    except ValueError as error:
        raise ResultError(f"{source}: {error}: a result holds finite numbers only, collect this host again") from error
    except RecursionError as error:
        raise ResultError(f"{source}: nested too deeply to be a result") from error
    validate(document, source)
    # A plan that was killed leaves no word on these.
    return {"message": None, "finished": None, "restored": None, "skipped": [], "events": [], "observations": [], **document}


def validate(document: t.Any, source: str) -> None:
    """Hold ``document`` (plain JSON data) against the schema.

    :raises ResultError: with the place of the first thing that is wrong
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA_NAME:
        raise ResultError(f'{source}: no result of this collection (its "schema" is not "{SCHEMA_NAME}")')
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ResultError(
            f"{source}: schema_version {_brief(version)}, this collection reads version {SCHEMA_VERSION}: "
            f'use the version of threadwise.smt that collected it ({_brief(document.get("collection_version"))})'
        )
    try:
        _validator().validate(document)
    except jsonschema_rs.ValidationError as error:
        place = ".".join(str(part) for part in error.instance_path) or "the document"
        raise ResultError(f"{source}: {_brief(place)}: {_brief(error.message)}") from error
    except ValueError as error:
        raise ResultError(f"{source}: {_brief(error)}") from error


def _brief(value: t.Any, most: int = 160) -> str:
    text = showable(str(value))
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def load(path: str | os.PathLike[str]) -> dict[str, t.Any]:
    """Read one host's result file.

    :param path: the file
    :returns: the document, as :data:`SCHEMA` says, all strings showable, all numbers finite
    :raises ResultError: with the file's name and the reason
    """
    path = Path(path)
    source = showable(path.name)
    try:
        if not path.is_file():
            raise ResultError(f"{source}: no such file" if not path.exists() else f"{source}: not a regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ResultError(f"{source}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ResultError(f"{source}: larger than {MAX_BYTES // 1024 // 1024} MiB, no result is")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ResultError(f"{source}: not UTF-8 at byte {error.start}: collect this host again") from error
    return parse(text, source)


def result_paths(run_dir: str | os.PathLike[str]) -> list[Path]:
    """The files in a run's directory that should be results of hosts, sorted by name.

    :raises ResultError: no such directory
    """
    run_dir = Path(run_dir)
    try:
        names = sorted(os.listdir(run_dir))
    except OSError as error:
        raise ResultError(f"{run_dir}: cannot be listed: {error.strerror}: name the directory of a run") from error
    return [run_dir / name for name in names if name.endswith(".json") and name[:-5] not in REPORT_NAMES and not name.startswith(".")]


def file_stem(host: str) -> str:
    """The name of a host's files without the ending: safe in any directory, and another one for another host.

    Percent-encoding as in a URL cannot be confused and is undone by eye. ``.`` and ``-`` in front (hidden files, options) and names of
    the report's own files are encoded in their first character; what is too long for a file system ends in ``=`` (which the
    encoding never leaves) and a hash.
    """
    stem = quote(host, safe="", errors="surrogatepass")
    if not stem or stem[0] in ".-~" or stem in REPORT_NAMES:
        stem = f"%{ord(stem[0]):02X}{stem[1:]}" if stem else "="
    if len(stem) > 150:
        digest = hashlib.sha256(host.encode("utf-8", errors="surrogatepass")).hexdigest()
        stem = f"{stem[:120]}={digest[:24]}"
    return stem


def read_text(path: str | os.PathLike[str]) -> str | None:
    """What a file of the report holds, None when there is none that can be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def write_text(path: str | os.PathLike[str], text: str, dry_run: bool = False) -> bool:
    """:func:`write_stream` for a text, as UTF-8."""
    return write_stream(path, io.BytesIO(text.encode("utf-8")), dry_run)


def write_stream(path: str | os.PathLike[str], source: t.IO[bytes], dry_run: bool = False) -> bool:
    """Put what ``source`` holds from its beginning into a file, whole or not at all; a file that holds it already is left alone.

    :param dry_run: only say whether it would be written
    :returns: whether the file was written
    :raises ResultError: with the reason
    """
    path = Path(path)
    try:
        if _holds(path, source):
            return False
        if dry_run:
            return True
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                source.seek(0)
                shutil.copyfileobj(source, stream, PIECE)
                stream.flush()
                os.fsync(stream.fileno())
            # mkstemp makes a private file; a report is for whom the directory and the umask let in.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from error
    return True


def _holds(path: Path, source: t.IO[bytes]) -> bool:
    """Whether the file holds just what the source does."""
    if not path.is_file() or path.stat().st_size != source.seek(0, os.SEEK_END):
        return False
    source.seek(0)
    with path.open("rb") as stream:
        return all(piece == source.read(PIECE) for piece in iter(lambda: stream.read(PIECE), b""))


def save(run_dir: str | os.PathLike[str], document: dict[str, t.Any]) -> tuple[Path, bool]:
    """Keep one host's result in its run's directory, which is made when missing.

    :param document: plain JSON data
    :returns: the file, and whether it was written
    :raises ResultError: not as the schema says, or the place is taken by another host or another run
    """
    run_dir = Path(run_dir)
    host = document.get("host") if isinstance(document, dict) else None
    path = run_dir / f'{file_stem(host if isinstance(host, str) else "")}.json'
    try:
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{path.name}: not plain data with finite numbers: {_brief(error)}") from error
    # The text is what will be read back: it is what has to be sound, not the objects that Ansible hands over.
    document = parse(text, path.name)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(f"{run_dir}: cannot be made: {error.strerror}") from error
    if path.exists():
        kept = load(path)
        if (kept["host"], kept["run"]) != (document["host"], document["run"]):
            raise ResultError(
                f'{path}: holds run {_brief(kept["run"])} of host {_brief(kept["host"])}, which is not overwritten by '
                f'run {_brief(document["run"])} of host {_brief(document["host"])}: name another directory'
            )
    return path, write_text(path, text)
