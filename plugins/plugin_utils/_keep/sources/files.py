# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of other checks: slices of a job, several controllers, hosts that pull.

Whoever could write where they are may have written anything. Nothing is extracted to a path, links in directories are
not followed, and what is read is limited in size and number before it takes memory.
"""

from __future__ import annotations

import collections
import datetime
import functools
import gzip
import hashlib
import io
import os
import re
import tarfile
import typing as t
import zipfile

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import folders
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import json_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance, Decision
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import base
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources.base import (
    Asked,
    ComplianceAnswer,
    Source,
    SourceError,
    Word,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

MIB = folders.MIB
# Of 10,000 hosts a file has about 10 MiB. An archive has no more when it is unpacked, and neither have all files of one
# host together.
MAX_FILE = 64 * MIB
# Of all files together that are no host's own.
MAX_ALL = 512 * MIB
MAX_FILES = 20_000
MAX_DEPTH = 8
MAX_NOTES = 50
MAX_REASON = 300
ZIP, TAR, JSON = (".zip",), (".tar.gz", ".tgz"), (".json",)
# How an entry of a zip archive's directory begins; the standard library reads all of it at once.
_ZIP_ENTRY = b"PK\x01\x02"
_WORD = re.compile(r"[^\W_]+")
# Longest name of a file (NAME_MAX), which those in archives need not keep to.
MAX_NAME = 255


class _RefusedError(Exception):
    """A file does not count; the message says why."""


# The name of a file for people, the host whose it is, and what is in it.
_Document = tuple[str, str | None, json_text.CheckFile]


class _Reader:
    """Reads files below paths; what cannot be read is a note that names it.

    Args:
        known: the hosts of the inventory.

    Attributes:
        notes: a sentence for each file that does not count.
        read: how many files were read of each host, and of controllers (None).
    """

    def __init__(self, known: t.Container[str]) -> None:
        self._known = known
        self.notes: list[str] = []
        self.read: collections.Counter[str | None] = collections.Counter()
        self._bytes: collections.Counter[str | None] = collections.Counter()
        self._seen: set[tuple[str | None, bytes]] = set()

    def documents(self, paths: t.Iterable[str]) -> t.Iterator[_Document]:
        """Yield each file once."""
        for path in paths:
            try:
                if os.path.isdir(path):
                    with folders.opened(path) as folder:
                        yield from self._below(folder, MAX_DEPTH)
                else:
                    yield from self._opened(path, functools.partial(folders.read, path, MAX_FILE))
            except OSError as error:
                self.refuse(path, error.strerror or str(error))

    def refuse(self, origin: str, reason: str) -> None:
        """Note that a file does not count."""
        self.notes.append(f"{text.line(origin, base.MAX_ORIGIN)} does not count: {text.line(reason, MAX_REASON)}")

    def _below(self, folder: folders.Folder, depth: int) -> t.Iterator[_Document]:
        for name in folder.names():
            origin = str(folder.path / name)
            if name.endswith((*ZIP, *TAR, *JSON)):
                yield from self._opened(origin, functools.partial(folder.read, name, MAX_FILE))
            elif folder.is_directory(name):
                try:
                    if not depth:
                        raise OSError(f"it is deeper than {MAX_DEPTH} directories")
                    with folder.below(name) as deeper:
                        yield from self._below(deeper, depth - 1)
                except OSError as error:
                    self.refuse(origin, error.strerror or str(error))

    def _opened(self, origin: str, content: t.Callable[[], bytes]) -> t.Iterator[_Document]:
        """Yield what is in a file, several ones of an archive: all or nothing of it."""
        whose = _whose(origin, self._known)
        try:
            whole = content()
            if origin.endswith(ZIP):
                members = _of_zip(whole)
            elif origin.endswith(TAR):
                members = _of_tar(whole)
            elif origin.endswith(JSON):
                members = iter([("", whole)])
            else:
                raise _RefusedError(f"its name ends in none of {', '.join((*JSON, *ZIP, *TAR))}")
            documents, left = list[tuple[bytes, int, _Document]](), MAX_FILE
            for name, member in members:
                left -= len(member)
                if left < 0:
                    raise _RefusedError(f"it is larger than {MAX_FILE // MIB} MiB when it is unpacked")
                by = whose or (_whose(name, self._known) if name else None)
                documents += self._document(f"{origin}:{name}" if name else origin, by, member)
            yield from self._kept(documents)
        except _RefusedError as error:
            self.refuse(origin, str(error))
        except OSError as error:
            self.refuse(origin, error.strerror or f"it cannot be unpacked ({error})")
        except Exception as error:
            # Of an archive that is none: their classes differ between releases of Python.
            self.refuse(origin, f"it cannot be unpacked ({error})")

    def _kept(self, documents: t.Sequence[tuple[bytes, int, _Document]]) -> list[_Document]:
        """Return what of a file counts, where there is room for it beside those of the same host, or of controllers:
        nobody takes it from others.
        """
        sizes, numbers = collections.Counter[str | None](), collections.Counter[str | None]()
        for _digest, size, (_origin, by, _check) in documents:
            sizes[by] += size
            numbers[by] += 1
        for by, size in sizes.items():
            most = MAX_ALL if by is None else MAX_FILE
            if self._bytes[by] + size > most or self.read[by] + numbers[by] > MAX_FILES:
                those = f"{by}'s files" if by else "those of controllers"
                raise _RefusedError(f"with it {those} are more than {MAX_FILES}, or than {most // MIB} MiB")
        self._bytes += sizes
        self.read += numbers
        # Whose it is as well: a copy in another host's folder is that one's.
        self._seen.update((document[1], digest) for digest, _size, document in documents)
        return [document for _digest, _size, document in documents]

    def _document(self, origin: str, by: str | None, content: bytes) -> t.Iterator[tuple[bytes, int, _Document]]:
        digest = hashlib.sha256(content).digest()
        if (by, digest) in self._seen:
            return
        try:
            check = parts.decoded(content.decode("utf-8"), json_text.CheckFile)
            for stamped in (check.at, *(host.checked for host in check.hosts or () if host.checked)):
                text.moment(stamped)
        except UnicodeDecodeError:
            self.refuse(origin, "it is no text in UTF-8")
        except (text.BorderError, ValueError) as error:
            self.refuse(origin, f"it is no smt_compliance.json of this collection ({error})")
        else:
            yield digest, len(content), (text.line(origin, base.MAX_ORIGIN), by, check)


def _whose(path: str, known: t.Container[str]) -> str | None:
    """Return the host of the inventory that a file is of, as its path tells: a folder has its name, or the file's own
    name has it in it. None for a file of a controller.
    """
    *above, name = path.split("/")
    spans = [word.span() for word in _WORD.finditer(name[:MAX_NAME])]
    within = (name[begin:end] for begin, _end in spans for _begin, end in reversed(spans) if end > begin)
    return next((host for host in (*above, *within) if host in known), None)


def _of_zip(content: bytes) -> t.Iterator[tuple[str, bytes]]:
    """Yield the JSON files of a zip archive, each with its name."""
    if content.count(_ZIP_ENTRY) > MAX_FILES:
        raise _RefusedError(f"it has more than {MAX_FILES} files")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in sorted(archive.infolist(), key=lambda member: member.filename):
            if member.is_dir() or not member.filename.endswith(JSON):
                continue
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _RefusedError("it is packed in another way than zip's own")
            with archive.open(member) as stream:
                yield member.filename, _limited(stream.read(MAX_FILE + 1), member.filename)


def _of_tar(content: bytes) -> t.Iterator[tuple[str, bytes]]:
    """Yield the JSON files of a packed tar archive, each with its name."""
    with (
        gzip.GzipFile(fileobj=io.BytesIO(content)) as unpacked,
        tarfile.open(fileobj=t.cast("t.IO[bytes]", _AtMost(unpacked)), mode="r|") as archive,
    ):
        for number, member in enumerate(archive):
            if number >= MAX_FILES:
                raise _RefusedError(f"it has more than {MAX_FILES} files")
            # tarfile keeps all that it has seen, of which its types say nothing.
            t.cast(t.Any, archive).members.clear()
            if member.isreg() and not member.issparse() and member.name.endswith(JSON):
                stream = archive.extractfile(member)
                yield member.name, _limited(stream.read(MAX_FILE + 1) if stream else b"", member.name)


class _AtMost:
    """A stream that ends with an error after so many bytes as a file may have."""

    def __init__(self, stream: t.IO[bytes] | gzip.GzipFile) -> None:
        self._stream, self._left = stream, MAX_FILE

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise _RefusedError(f"it is larger than {MAX_FILE // MIB} MiB when it is unpacked")
        return content


def _limited(content: bytes, name: str) -> bytes:
    if len(content) > MAX_FILE:
        raise _RefusedError(f"{text.line(name, base.MAX_ORIGIN)} in it is larger than {MAX_FILE // MIB} MiB")
    return content


def _words(origin: str, by: str | None, check: json_text.CheckFile) -> t.Iterator[Word]:
    decisions = {decision.hardware_class: decision for decision in check.decisions}
    for host in check.hosts or ():
        result = _result(host, decisions.get(host.hardware_class or ""))
        yield Word(host.host, text.moment(host.checked or check.at), result, origin, by)


def _result(host: json_text.CheckedHost, decision: json_text.DecisionOfClass | None) -> Compliance:
    """Return what a file says of a host. Commands that it says to give are not passed on."""
    kept = ("status", "wanted", "scope", "hardware_class", "decided_by", "reboot_pending", "checked", "waiver")
    aspects: dict[str, t.Any] = {
        name: found and compliance.Aspect(found.status, found.reasons)
        for name in compliance.ASPECTS
        for found in [getattr(host, name)]
    }
    held = None
    if host.stale is not None and decision is not None:
        held = Decision(parts.plain(decision.rests_on), tuple(parts.plain(decision.rechecks)), host.stale)
    return Compliance(
        sentence=text.line(host.sentence, schema.MAX_TEXT),
        pending_rollback=compliance.Rollback() if host.pending_rollback else None,
        decision=held,
        services=host.services,
        **{name: getattr(host, name) for name in kept},
        **aspects,
    )


def _read(asked: Asked) -> ComplianceAnswer:
    paths = sorted(set(asked.options["files"] or ()))
    if not paths:
        raise SourceError(
            "smt_compliance_files is not set: name the files, directories or archives of the checks that are to be one"
        )
    reader, words, failed = _Reader({*asked.hosts, *asked.others}), list[Word](), list[str]()
    for origin, by, check in reader.documents(paths):
        words += _words(origin, by, check)
        if check.error is not None:
            failed.append(f"{origin} checked no host: {text.line(check.error, MAX_REASON)}")
    if not reader.read:
        reason = "; ".join(reader.notes[: base.MAX_NAMED]) or "there is none below them"
        raise SourceError(
            f"smt_compliance_files ({base.some(paths)}) has no file of a check that can be read: {reason}"
        )
    notes = sorted([*failed, *reader.notes])
    more = f"; {wording.counted(len(notes), 'file')} could not be used" if notes else ""
    hours = asked.options["max_age"]
    return ComplianceAnswer(
        base.judged(
            asked,
            words,
            lambda _host: compliance.refused(f"no file has a word on it{more}"),
            datetime.timedelta(hours=hours) if hours is not None else None,
        ),
        base.strangers(asked, (word.host for word in words)),
        [
            *notes[:MAX_NOTES],
            *([f"{len(notes) - MAX_NOTES} more files do not count"] if notes[MAX_NOTES:] else []),
            *base.speakers(asked, words),
        ],
    )


SOURCE = Source(_read)
