# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Result files of hosts: names, validated reading, atomic writing."""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import json
import os
import re
import tempfile
import typing as t
from pathlib import Path
from urllib.parse import quote

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.results import MAX_BYTES
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import folders, report_names

ResultError = results.ResultError

# The largest file of a report that is read again, to see what changes.
MAX_REPORT_BYTES = 64 * folders.MIB

# Times in pages, JSON, SARIF, JUnit XML and OpenMetrics.
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d[0-9:.]*(?: UTC|Z|\+00:00)|(?<=_timestamp_seconds).*|(?<= timestamp=.)[0-9T:-]*"
)

# Names that a host's file and page may not have, without their suffixes; a file system that ignores case has one file
# of each.
_TAKEN = frozenset(
    name.rpartition(".")[0].casefold() for name in report_names.NAMES if name.endswith((".json", ".html"))
)


def load(path: str | os.PathLike[str]) -> HostResult:
    """Read one host's result file.

    Args:
        path: the file.

    Returns:
        The result: all strings are safe to display, all numbers are finite.

    Raises:
        ResultError: cannot be read or is not valid; the message names the file and the reason.
    """
    path = Path(path)
    source = text.showable(path.name)
    try:
        # A user may gather results of several runs by links.
        data = folders.read(path, MAX_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            results.see_size(path.stat().st_size, source)
        raise ResultError(f"{source}: cannot be read: {error.strerror}") from error
    return _parsed(data, source)


def _parsed(data: bytes, source: str) -> HostResult:
    try:
        document_text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ResultError(f"{source}: not UTF-8 at byte {error.start}: collect this host again") from error
    return results.parse(document_text, source)


def result_paths(run_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the result files of hosts in a run's directory, sorted by name.

    Args:
        run_dir: directory of the run.

    Raises:
        ResultError: the directory cannot be listed.
    """
    run_dir = Path(run_dir)
    try:
        names = sorted(os.listdir(run_dir))
    except OSError as error:
        raise ResultError(f"{run_dir}: cannot be listed: {error.strerror}: name the directory of a run") from error
    return [
        run_dir / name
        for name in names
        if name.endswith(".json") and name not in report_names.NAMES and not name.startswith(".")
    ]


def file_stem(host: str) -> str:
    """Return the name of a host's files without suffix: safe in any directory, and unique per host.

    Names are percent-encoded as in a URL. A leading ``.`` or ``-`` (hidden files, options) and names of the report's
    own files are encoded in their first character. Names that are too long for a file system end in ``=`` (which the
    encoding never produces) and a hash.
    """
    stem = quote(host, safe="", errors="surrogatepass")
    if not stem or stem[0] in ".-~" or stem.casefold() in _TAKEN:
        stem = f"%{ord(stem[0]):02X}{stem[1:]}" if stem else "="
    if len(stem) > 150:
        digest = hashlib.sha256(host.encode("utf-8", errors="surrogatepass")).hexdigest()
        stem = f"{stem[:120]}={digest[:24]}"
    return stem


def see_that_none_exists(run_dir: str | os.PathLike[str], host: str) -> None:
    """Refuse a run's directory that holds a result of the host from another start, whatever the file contains.

    Args:
        run_dir: directory of the run that is about to start. Results of its boots lie below ``boots/``.
        host: the host's name.

    Raises:
        ResultError: there is such a file; the message names it and the way out.
    """
    name = f"{file_stem(host)}.json"
    existing = [
        path for path in (Path(run_dir) / name, *sorted(Path(run_dir).glob(f"boots/*/{name}"))) if os.path.lexists(path)
    ]
    if existing:
        raise ResultError(
            f"{existing[0]} exists: a run never overwrites another, so give this one another name (smt_eval_run), or"
            " move that file away"
        )


def see_that_it_can_be_written(run_dir: str | os.PathLike[str]) -> None:
    """Try to write a file where a run's directory is, or will be created; nothing of it stays.

    Args:
        run_dir: directory of the run.

    Raises:
        ResultError: the file cannot be written; the message names the directory and the reason.
    """
    place = Path(run_dir)
    while not os.path.lexists(place):
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as tried:
            tried.write(bytes(folders.PIECE))
    except OSError as error:
        raise ResultError(
            f"{place}: results cannot be written here ({error.strerror}): choose another directory (smt_eval_dest)"
        ) from error


def read_text(path: str | os.PathLike[str]) -> str | None:
    """Return the content of a file of the report, or None when it cannot be read; a link is none of its files."""
    path = Path(path)
    try:
        with folders.opened(path.parent) as folder:
            return folder.read(path.name, MAX_REPORT_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None


def write_text(path: str | os.PathLike[str], content: str, dry_run: bool = False) -> bool:
    """Write a text as UTF-8, as :func:`write_stream` does."""
    return write_stream(path, io.BytesIO(content.encode("utf-8")), dry_run)


def write_page(path: str | os.PathLike[str], content: str, dry_run: bool = False) -> bool:
    """Write a text that tells when it was made, as :func:`write_stream` does.

    Returns:
        Whether it tells anything else than the file did, apart from times.
    """
    before = read_text(path)
    write_text(path, content, dry_run)
    return before is None or not _is_same_but_for_times(before, content)


def _is_same_but_for_times(before: str, after: str) -> bool:
    # No time goes over the end of a line, and most lines have none that differs.
    lines = (text.split("\n") for text in (before, after))
    pairs = itertools.zip_longest(*lines)
    return all(
        first == second or (None not in (first, second) and _TIMES.sub("", first) == _TIMES.sub("", second))
        for first, second in pairs
    )


def write_stream(path: str | os.PathLike[str], source: t.IO[bytes], dry_run: bool = False) -> bool:
    """Write the whole content of a stream to a file atomically; a file with the same content is not touched,
    and a link of its name is replaced.

    Args:
        path: the file; links in the path of its directory are followed.
        source: a seekable stream, read from its beginning.
        dry_run: only return whether the file would be written.

    Returns:
        Whether the file was written.

    Raises:
        ResultError: the file cannot be written.
    """
    path = Path(path)
    try:
        if dry_run and not path.parent.exists():
            return True
        with folders.opened(path.parent, make=not dry_run) as folder:
            return _written(folder, path.name, source, dry_run)
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from error


def _written(folder: folders.Folder, name: str, source: t.IO[bytes], dry_run: bool = False) -> bool:
    """Write a file unless it has this content, and return whether it was written, or would be."""
    if folder.holds(name, source):
        return False
    if not dry_run:
        folder.write(name, source)
    return True


def save(run_dir: str | os.PathLike[str], document: t.Mapping[str, t.Any]) -> tuple[Path, bool, HostResult]:
    """Save one host's result in its run's directory, which is created when missing.

    Args:
        run_dir: directory of the run.
        document: plain JSON data.

    Returns:
        The file, whether it was written, and the result that it holds.

    Raises:
        ResultError: not valid, cannot be written, or the file belongs to another host, run, or start of the run.
    """
    run_dir = Path(run_dir)
    host = document.get("host")
    path = run_dir / f"{file_stem(host if isinstance(host, str) else '')}.json"
    try:
        # Compact: the result of a large machine is near the size limit.
        document_text = json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{path.name}: not plain data with finite numbers: {text.line(error, 160)}") from error
    # Validate the text that will be read back, not Ansible's objects.
    result = results.parse(document_text, path.name)
    try:
        # What is below the directory of runs is the collection's own: no link belongs there.
        with folders.opened(run_dir.parent, make=True) as runs, runs.below(run_dir.name, make=True) as folder:
            if folder.has(path.name):
                _see_that_it_is_the_same(path, _parsed(folder.read(path.name, MAX_BYTES), path.name), result)
            return path, _written(folder, path.name, io.BytesIO(document_text.encode("utf-8"))), result
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from error


def _see_that_it_is_the_same(path: Path, saved: HostResult, result: HostResult) -> None:
    """Refuse to overwrite a result of another host, run, or start of the run."""
    if (saved.host, saved.run) != (result.host, result.run):
        raise ResultError(
            f"{path}: holds run {saved.run} of host {text.line(saved.host, 160)}, which is not overwritten by "
            f"run {result.run} of host {text.line(result.host, 160)}: name another directory"
        )
    if saved.started != result.started:
        raise ResultError(
            f"{path}: holds run {saved.run} as it started at {saved.started}, which is not overwritten by its"
            f" start at {result.started}: move that file away"
        )
