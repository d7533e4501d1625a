# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the report's files from the results of hosts.

Data from hosts is untrusted: pages are rendered by Jinja with automatic escaping and a content security policy that
allows nothing external. The same results give the same bytes. A host takes some milliseconds and one row in memory;
everything else goes to temporary files, so that thousands of hosts take seconds.
"""

from __future__ import annotations

import collections
import concurrent.futures.process
import contextlib
import dataclasses
import functools
import gc
import io
import multiprocessing
import os
import re
import signal
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    costs,
    paired,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import (
    recommendation,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import (
    Ending,
    Format,
    FormatError,
    HostReport,
    Refused,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    comparison as comparison_page,
    fleet as fleet_page,
    host as host_page,
    machines as machines_page,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary

# Minimum number of hosts per process.
MIN_HOSTS_A_PROCESS = 20
# Hosts per process that are in work or wait to be written.
AHEAD = 4
# Bytes of a combined file that stay in memory before it goes to disk.
MAX_HELD = 4 * 1024 * 1024
# Longest host name in a message.
MAX_TEXT = 160


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a report.

    Attributes:
        margin: effects within this share of 1 count as none.
        confidence: family-wise confidence of the verdicts.
        licence: the price of licensed software, or None.
        before: results of an earlier run for a comparison.
        other_runs: results of each of other runs, whose machines are set beside those of this one.
        compare: which arms are compared, one of ``comparisons.COMPARE``.
    """

    margin: float = 0.01
    confidence: float = 0.95
    licence: recommendation.Licence | None = None
    before: tuple[Path, ...] = ()
    other_runs: tuple[tuple[Path, ...], ...] = ()
    compare: str = host_comparisons.BASELINE

    def analysed(self, result: HostResult) -> HostAnalysis:
        """Return the analysis of a host's result with these settings."""
        return HostAnalysis(result, self.margin, self.confidence, self.compare)


@dataclasses.dataclass(frozen=True)
class Built:
    """The outcome of a build.

    Attributes:
        written: the files that were written, or would be.
        refused: the results that could not be used.
        hosts: the overview's row of each host.
        classes: what holds for each hardware class, from :func:`hardware_classes.by_class`.
        summary: the old and the new text of summary.md.
        missing: sentences about what is not made as it would be with all recommended packages, and about files that
            could not be made.
    """

    written: list[str]
    refused: list[Refused]
    hosts: list[hardware_classes.Row]
    classes: list[hardware_classes.HardwareClass]
    summary: tuple[str, str]
    missing: list[str]


@dataclasses.dataclass(frozen=True)
class _Host:
    """The output of one result: the overview's row, its page, and its part of each combined file."""

    row: hardware_classes.Row
    page: str
    parts: dict[str, str]


def build(paths: t.Iterable[Path], run_dir: Path, settings: Settings = Settings(), dry_run: bool = False) -> Built:
    """Build the report of these results.

    Args:
        paths: the result files.
        run_dir: directory for the report.
        settings: of the report.
        dry_run: only list the files that would be written.

    Returns:
        The outcome.

    Raises:
        ResultError: a file cannot be written.
        BorderError: a file with the name of one of the report's is somebody else's; none was written, but pages of
            hosts.
    """
    paths = list(paths)
    signs = {file_format.name: file_format.sign for file_format in registry.formats()}
    for name in own_names():
        places.see_that_ours(run_dir / name, signs.get(name))
    alone = len(paths) == 1
    refused: list[Refused] = []
    rows: list[hardware_classes.Row] = []
    missing = [sentence] if (sentence := registry.left_out()) else []
    written = _Written(run_dir, dry_run, signs)
    keep = written.keep
    with contextlib.ExitStack() as stack:
        whole = _Whole(stack)
        for made in _accepted(_each(paths, functools.partial(_make, settings=settings, alone=alone))):
            if isinstance(made, Refused):
                refused.append(made)
                continue
            keep(made.row.page, made.page)
            rows.append(made.row)
            whole.add(made)
        missing += whole.finish(keep)
        classes = hardware_classes.by_class(rows, settings.margin, settings.confidence)
        if not alone or refused:
            keep(fleet_page.NAME, fleet_page.render(rows, refused, classes))
        if settings.before:
            keep(
                comparison_page.NAME,
                comparison_page.render(
                    _rows_of(settings.before, settings, refused, "the earlier run"),
                    rows,
                    (settings.margin, settings.confidence),
                ),
            )
        others = [row for paths in settings.other_runs for row in _rows_of(paths, settings, refused, "another run")]
        if len(rows) + len(others) > 1:
            keep(machines_page.NAME, machines_page.render([*rows, *others]))
        before = result_files.read_text(run_dir / "summary.md") or ""
        whole.close(Ending(refused, classes), keep)
        return Built(written.paths, refused, rows, classes, (before, whole.text("summary.md")), missing)


def own_names() -> list[str]:
    """Return the names of all files that a report can have beside those of its hosts."""
    return sorted([*registry.page_names(), *(file_format.name for file_format in registry.formats())])


def _formats() -> list[Format]:
    """Return the formats whose files this controller can make."""
    return [file_format for file_format in registry.formats() if file_format.missing_library is None]


class _Written:
    """The files of a report in its directory, written where their content is new.

    Args:
        run_dir: the directory.
        dry_run: whether only to list them.
        signs: name of the file of each output format -> its sign.
    """

    def __init__(self, run_dir: Path, dry_run: bool, signs: t.Mapping[str, re.Pattern[bytes]]):
        self._run_dir = run_dir
        self._signs = signs
        self._dry_run = dry_run
        self.paths: list[str] = []

    def keep(self, name: str, content: str | t.IO[bytes]) -> None:
        """Write a file unless it holds this content already."""
        path = self._run_dir / name
        places.see_that_ours(path, self._signs.get(name))
        stream = io.BytesIO(content.encode("utf-8")) if isinstance(content, str) else content
        if result_files.write_stream(path, stream, self._dry_run):
            self.paths.append(str(path))


def _make(path: Path, settings: Settings, alone: bool) -> _Host | Refused:
    """Read one result and make its parts."""
    source = text.showable(path.name)
    try:
        stored = result_files.load(path)
        analysis = settings.analysed(costs.added(stored))
        return _host(stored, Summary(analysis, path.name, settings.licence), alone)
    except result_files.ResultError as error:
        return Refused(source, str(error))
    except paired.SampleError as error:
        return Refused(source, f"{source}: {error}")
    except Exception as error:  # an unexpected error in one host's result must not prevent the others' report
        return _unforeseen(source, error)


def _host(stored: HostResult, summary: Summary, alone: bool) -> _Host:
    """Make the parts of a host: files of samples have what was measured, all others also what was made of it."""
    page = fleet_page.NAME if alone else f"{result_files.file_stem(stored.host)}.html"
    host = HostReport(parts.changed(summary.result, samples=stored.samples), summary)
    made = {file_format.name: file_format.host(host) for file_format in _formats()}
    return _Host(hardware_classes.row(summary, page), host_page.render(summary, alone), made)


def _rows_of(
    paths: t.Sequence[Path], settings: Settings, refused: list[Refused], whose: str
) -> list[hardware_classes.Row]:
    """Return the rows of results of another run; add the unusable ones to ``refused``."""
    rows = []
    for entry in _accepted(_each(paths, functools.partial(_row, settings=settings))):
        if isinstance(entry, Refused):
            refused.append(Refused(entry.file, f"of {whose}: {entry.reason}"))
        else:
            rows.append(entry)
    return rows


def _row(path: Path, settings: Settings) -> hardware_classes.Row | Refused:
    """Read one result for the overview only."""
    try:
        analysis = settings.analysed(costs.added(result_files.load(path)))
        summary = Summary(analysis, path.name, settings.licence)
        return hardware_classes.row(summary, f"{result_files.file_stem(analysis.result.host)}.html")
    except (result_files.ResultError, paired.SampleError) as error:
        return Refused(text.showable(path.name), str(error))
    except Exception as error:  # as in _make
        return _unforeseen(text.showable(path.name), error)


def _unforeseen(source: str, error: Exception) -> Refused:
    return Refused(
        source,
        f"{source}: its numbers or names make the report fail ({type(error).__name__}: {text.line(error, 200)}):"
        " evaluate this host again, and report this as a defect of threadwise.smt",
    )


Made = t.TypeVar("Made")


def _each(paths: t.Sequence[Path], make: t.Callable[[Path], Made]) -> t.Iterator[Made | Refused]:
    """Yield what is made of each path, in order, with as many processes as there are usable CPUs;
    refuse a path whose process is killed twice.
    """
    processes = min(len(os.sched_getaffinity(0)), len(paths) // MIN_HOSTS_A_PROCESS)
    if processes < 2:
        yield from map(make, paths)
        return
    left = collections.deque(paths)
    waiting: collections.deque[tuple[Path, concurrent.futures.Future[Made]]] = collections.deque()
    while left:
        try:
            with _forked(processes) as pool:
                while left or waiting:
                    # In portions: finished hosts wait in memory.
                    while left and len(waiting) < AHEAD * processes:
                        waiting.append((left[0], pool.submit(_made_and_collected, make, left[0])))
                        left.popleft()
                    made = waiting[0][1].result()
                    waiting.popleft()
                    yield made
        except concurrent.futures.process.BrokenProcessPool:
            # The pool loses all work when one process is killed: retry each file in its own process to find the cause.
            while waiting:
                yield _by_itself(waiting.popleft()[0], make)


def _by_itself(path: Path, make: t.Callable[[Path], Made]) -> Made | Refused:
    """Process one path in its own process."""
    try:
        with _forked(1) as pool:
            return pool.submit(make, path).result()
    except concurrent.futures.process.BrokenProcessPool:
        name = text.showable(path.name)
        return Refused(
            name,
            f"{name}: the process that read it was killed, probably for lack of memory: build the report on a larger"
            " host",
        )


def _forked(processes: int) -> concurrent.futures.ProcessPoolExecutor:
    """Return a pool of forked processes: a new interpreter would not find this collection.

    When one process is killed the pool ends the others by SIGTERM and waits for them: the parent may ignore that
    signal, so it is reset.
    """
    return concurrent.futures.ProcessPoolExecutor(
        processes, multiprocessing.get_context("fork"), initializer=_begin_process
    )


def _begin_process() -> None:
    """Prepare a process that makes parts of hosts.

    A result is a large tree without cycles, and is not to be walked again and again in search of some. They are
    collected after each host (:func:`_made_and_collected`), when there is little to walk.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()
    gc.disable()


def _made_and_collected(make: t.Callable[[Path], Made], path: Path) -> Made:
    made = make(path)
    gc.collect()
    return made


def _accepted(made: t.Iterable[_Host | hardware_classes.Row | Refused]) -> t.Iterator[t.Any]:
    """Yield the items, but refuse the second result of the same host: neither can be trusted more than the other."""
    seen: dict[str, str] = {}
    for entry in made:
        if isinstance(entry, Refused):
            yield entry
            continue
        row = entry.row if isinstance(entry, _Host) else entry
        if row.host in seen:
            yield Refused(
                row.file,
                f"{row.file}: has the same host {row.host[:MAX_TEXT]} as {seen[row.host]}: remove one of the two",
            )
        else:
            seen[row.host] = row.file
            yield entry


def _held() -> tempfile.SpooledTemporaryFile[bytes]:
    """Return a new temporary file that stays in memory up to ``MAX_HELD`` bytes."""
    return tempfile.SpooledTemporaryFile(MAX_HELD)


class _Whole:
    """The combined files of all hosts, assembled on disk."""

    def __init__(self, stack: contextlib.ExitStack):
        self._formats = _formats()
        self._held = {file_format.name: stack.enter_context(_held()) for file_format in self._formats}
        self._hosts = 0
        for file_format in self._formats:
            self._write(file_format, file_format.head)

    def _write(self, file_format: Format, content: str) -> None:
        self._held[file_format.name].write(content.encode("utf-8"))

    def add(self, host: _Host) -> None:
        """Append the parts of a host."""
        for file_format in self._formats:
            self._write(file_format, (file_format.between if self._hosts else "") + host.parts[file_format.name])
        self._hosts += 1

    def finish(self, keep: t.Callable[[str, t.IO[bytes]], None]) -> list[str]:
        """Make the files whose content is not the text itself; return a sentence about each that cannot be made."""
        missing = []
        for file_format in self._formats:
            if file_format.finish:
                try:
                    with file_format.finish(self._held[file_format.name]) as content:
                        keep(file_format.name, content)
                except FormatError as error:
                    missing.append(str(error))
        return missing

    def close(self, ending: Ending, keep: t.Callable[[str, t.IO[bytes]], None]) -> None:
        """Make the other files."""
        for file_format in self._formats:
            if not file_format.finish:
                self._write(file_format, file_format.tail(ending))
                keep(file_format.name, self._held[file_format.name])

    def text(self, name: str) -> str:
        """Return the content of a file as text."""
        self._held[name].seek(0)
        return self._held[name].read().decode("utf-8")
