# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Result files of hosts: names, validated reading, atomic writing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import typing as t
from pathlib import Path
from urllib.parse import quote

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.results import MAX_BYTES
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import report_names

ResultError = results.ResultError

# Bytes compared or copied at a time.
PIECE = 1024 * 1024

# Times in pages, JSON and OpenMetrics.
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d[0-9:.]*(?: UTC|Z|\+00:00)|(?<=_timestamp_seconds).*")

# Names that a host's file and page may not have, without their suffixes; a file system that ignores case has one file of each.
_TAKEN = frozenset(name.rpartition(".")[0].casefold() for name in report_names.NAMES if name.endswith((".json", ".html")))


def load(path: str | os.PathLike[str]) -> dict[str, t.Any]:
    """Read one host's result file.

    Args:
        path: the file.

    Returns:
        The document: it matches :data:`results.SCHEMA`, all strings are safe to display, all numbers are finite.

    Raises:
        ResultError: cannot be read or is not valid; the message names the file and the reason.
    """
    path = Path(path)
    source = text.showable(path.name)
    try:
        if not path.is_file():
            raise ResultError(f"{source}: no such file" if not path.exists() else f"{source}: not a regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ResultError(f"{source}: cannot be read: {error.strerror}") from error
    results.see_size(len(data), source)
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
    return [run_dir / name for name in names if name.endswith(".json") and name not in report_names.NAMES and not name.startswith(".")]


def file_stem(host: str) -> str:
    """Return the name of a host's files without suffix: safe in any directory, and unique per host.

    Names are percent-encoded as in a URL. A leading ``.`` or ``-`` (hidden files, options) and names of the report's own files are encoded in their
    first character. Names that are too long for a file system end in ``=`` (which the encoding never produces) and a hash.
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
    found = [path for path in (Path(run_dir) / name, *sorted(Path(run_dir).glob(f"boots/*/{name}"))) if os.path.lexists(path)]
    if found:
        raise ResultError(f"{found[0]} exists: a run never overwrites another, so give this one another name (smt_eval_run), or move that file away")


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
            tried.write(bytes(PIECE))
    except OSError as error:
        raise ResultError(f"{place}: results cannot be written here ({error.strerror}): choose another directory (smt_eval_dest)") from error


def read_text(path: str | os.PathLike[str]) -> str | None:
    """Return the content of a file of the report, or None when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
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
    return before is None or _TIMES.sub("", before) != _TIMES.sub("", content)


def write_stream(path: str | os.PathLike[str], source: t.IO[bytes], dry_run: bool = False) -> bool:
    """Write the whole content of a stream to a file atomically; a file with the same content is not touched.

    Args:
        path: the file.
        source: a seekable stream, read from its beginning.
        dry_run: only return whether the file would be written.

    Returns:
        Whether the file was written.

    Raises:
        ResultError: the file cannot be written.
    """
    path = Path(path)
    try:
        if _holds(path, source):
            return False
        if dry_run:
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                source.seek(0)
                shutil.copyfileobj(source, stream, PIECE)
                stream.flush()
                os.fsync(stream.fileno())
            # mkstemp makes a private file; a report gets the permissions of the umask.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
            _sync_directory(path.parent)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from error
    return True


def _sync_directory(directory: Path) -> None:
    """Flush a directory to disk: without this a new name may be lost although the file was flushed (fsync(2))."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _holds(path: Path, source: t.IO[bytes]) -> bool:
    """Return whether the file has exactly the content of the source."""
    if not path.is_file() or path.stat().st_size != source.seek(0, os.SEEK_END):
        return False
    source.seek(0)
    with path.open("rb") as stream:
        return all(piece == source.read(PIECE) for piece in iter(lambda: stream.read(PIECE), b""))


def save(run_dir: str | os.PathLike[str], document: dict[str, t.Any]) -> tuple[Path, bool]:
    """Save one host's result in its run's directory, which is created when missing.

    Args:
        run_dir: directory of the run.
        document: plain JSON data.

    Returns:
        The file, and whether it was written.

    Raises:
        ResultError: not valid, cannot be written, or the file belongs to another host, run, or start of the run.
    """
    run_dir = Path(run_dir)
    host = document.get("host") if isinstance(document, dict) else None
    path = run_dir / f"{file_stem(host if isinstance(host, str) else '')}.json"
    try:
        # Compact: the result of a large machine is near the size limit.
        document_text = json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{path.name}: not plain data with finite numbers: {text.line(error, 160)}") from error
    # Validate the text that will be read back, not Ansible's objects.
    document = results.parse(document_text, path.name)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(f"{run_dir}: cannot be created: {error.strerror}") from error
    if path.exists():
        saved = load(path)
        if (saved["host"], saved["run"]) != (document["host"], document["run"]):
            raise ResultError(
                f"{path}: holds run {saved['run']} of host {text.line(saved['host'], 160)}, which is not overwritten by "
                f"run {document['run']} of host {text.line(document['host'], 160)}: name another directory"
            )
        if saved.get("started") != document.get("started"):
            raise ResultError(
                f"{path}: holds run {saved['run']} as it started at {saved.get('started')}, which is not overwritten by its start at "
                f"{document.get('started')}: move that file away"
            )
    return path, write_text(path, document_text)
