# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result file of one host: its name, reading it through the border, writing it whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
import typing as t
from pathlib import Path
from urllib.parse import quote

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.results import MAX_BYTES

ResultError = results.ResultError
MISSING_LIBRARY = schema.MISSING_LIBRARY or text.MISSING_LIBRARY

# Of a file that is compared or copied, in bytes.
PIECE = 1024 * 1024

# Names in a run's directory that belong to the report.
REPORT_NAMES = frozenset({"index", "results", "comparisons", "summary", "metrics", "compare"})


def load(path: str | os.PathLike[str]) -> dict[str, t.Any]:
    """Read one host's result file.

    Args:
        path: the file

    Returns:
        the document, as :data:`results.SCHEMA` says, all strings showable, all numbers finite

    Raises:
        ResultError: with the file's name and the reason
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
    """The files in a run's directory that should be results of hosts, sorted by name.

    Raises:
        ResultError: no such directory
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


def write_text(path: str | os.PathLike[str], content: str, dry_run: bool = False) -> bool:
    """:func:`write_stream` for a text, as UTF-8."""
    return write_stream(path, io.BytesIO(content.encode("utf-8")), dry_run)


def write_stream(path: str | os.PathLike[str], source: t.IO[bytes], dry_run: bool = False) -> bool:
    """Put what ``source`` holds from its beginning into a file, whole or not at all; a file that holds it already is left alone.

    Args:
        dry_run: only say whether it would be written

    Returns:
        whether the file was written

    Raises:
        ResultError: with the reason
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
            # mkstemp makes a private file; a report is for whom the directory and the umask let in.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
            _keep_name(path.parent)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from error
    return True


def _keep_name(directory: Path) -> None:
    """Have a new name on the disk: a file that was written through may still be lost with its name (fsync(2))."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _holds(path: Path, source: t.IO[bytes]) -> bool:
    """Whether the file holds just what the source does."""
    if not path.is_file() or path.stat().st_size != source.seek(0, os.SEEK_END):
        return False
    source.seek(0)
    with path.open("rb") as stream:
        return all(piece == source.read(PIECE) for piece in iter(lambda: stream.read(PIECE), b""))


def save(run_dir: str | os.PathLike[str], document: dict[str, t.Any]) -> tuple[Path, bool]:
    """Keep one host's result in its run's directory, which is made when missing.

    Args:
        document: plain JSON data

    Returns:
        the file, and whether it was written

    Raises:
        ResultError: not as the schema says, or the place is taken by another host or another run
    """
    run_dir = Path(run_dir)
    host = document.get("host") if isinstance(document, dict) else None
    path = run_dir / f"{file_stem(host if isinstance(host, str) else '')}.json"
    try:
        # Without blanks: a result of a large machine is near the limit of what is read back.
        document_text = json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{path.name}: not plain data with finite numbers: {text.line(error, 160)}") from error
    # The text is what will be read back: it is what has to be sound, not the objects that Ansible hands over.
    document = results.parse(document_text, path.name)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(f"{run_dir}: cannot be made: {error.strerror}") from error
    if path.exists():
        kept = load(path)
        if (kept["host"], kept["run"]) != (document["host"], document["run"]):
            raise ResultError(
                f"{path}: holds run {kept['run']} of host {text.line(kept['host'], 160)}, which is not overwritten by "
                f"run {document['run']} of host {text.line(document['host'], 160)}: name another directory"
            )
    return path, write_text(path, document_text)
