# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of hosts -> the report's files.

Whatever comes from a host is data: the pages are made by Jinja with automatic escaping and carry a content security policy that allows
nothing from outside. The same results give the same bytes. A host costs some milliseconds and leaves a row of figures in memory, all else goes to
temporary files, so that thousands of hosts are a matter of seconds.
"""

from __future__ import annotations

import collections
import concurrent.futures.process
import contextlib
import dataclasses
import functools
import io
import multiprocessing
import os
import shutil
import signal
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.module_utils._siblings import cache as sibling_cache
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons, conclusion, paired, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import charts, hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import parquet, texts
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats.texts import Refused
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import comparison as comparison_page, fleet as fleet_page, host as host_page
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

# Up to so many hosts each page holds its pictures drawn; beyond, the browser draws them, which is fifty times as fast to build.
MOST_HOSTS_DRAWN = 10
# A process is worth its start from so many hosts on.
LEAST_HOSTS_A_PROCESS = 20
# Of each process, so many hosts are begun or done and not yet taken.
AHEAD = 4
# Of a file put together from the hosts' parts, held in memory before it goes to disk.
MOST_HELD = 4 * 1024 * 1024
# Of a host's name in a message.
MOST_TEXT = 160


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a report is made.

    Attributes:
        margin: effects within this share of 1 count as none
        confidence: of the verdicts of a family together
        licence: what software costs, or None
        before: the results of an earlier run to compare with
    """

    margin: float = 0.01
    confidence: float = 0.95
    licence: recommendation.Licence | None = None
    before: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Built:
    """What was built.

    Attributes:
        written: the files that were written, or would be
        refused: what could not be used
        hosts: the overview's row of each host
        summary: text of summary.md before, and as it is now
        missing: what could not be made, in sentences
    """

    written: list[str]
    refused: list[Refused]
    hosts: list[hardware_classes.Row]
    summary: tuple[str, str]
    missing: list[str]


@dataclasses.dataclass(frozen=True)
class _Host:
    """What a result gives: the overview's row, its page, and its part of each file that holds all hosts."""

    row: hardware_classes.Row
    page: str
    parts: dict[str, str]
    metrics: dict[str, list[str]]


def build(paths: t.Iterable[Path], run_dir: Path, settings: Settings = Settings(), dry_run: bool = False) -> Built:
    """Make the report of these results in ``run_dir``.

    Raises:
        ResultError: a file cannot be written
    """
    paths = list(paths)
    alone, later = len(paths) == 1, len(paths) > MOST_HOSTS_DRAWN
    refused: list[Refused] = []
    rows: list[hardware_classes.Row] = []
    missing: list[str] = []
    written = _Written(run_dir, dry_run)
    keep = written.keep
    with contextlib.ExitStack() as stack:
        whole = _Whole(stack)
        for made in _accepted(_each(paths, functools.partial(_make, settings=settings, alone=alone, later=later))):
            if isinstance(made, Refused):
                refused.append(made)
                continue
            keep(made.row["page"], made.page)
            rows.append(made.row)
            whole.add(made)
        # Before the first picture is drawn: the libraries of both take a hundred megabytes and more, and only this one gives them back.
        try:
            with parquet.made(whole.samples()) as table:
                keep(parquet.NAME, table)
        except parquet.TableError as error:
            missing.append(str(error))
        if not alone or refused:
            keep("index.html", fleet_page.render(rows, refused, settings.margin, settings.confidence))
        if settings.before:
            keep("compare.html", comparison_page.render(_earlier(settings, refused), rows, (settings.margin, settings.confidence)))
        if later:
            keep("charts.js", charts.browser_script())
        before = result_files.read_text(run_dir / "summary.md") or ""
        for name, content in whole.files(refused):
            keep(name, content)
        return Built(written.paths, refused, rows, (before, whole.text("summary.md")), missing)


class _Written:
    """The files of a report in its directory, written where their content is new."""

    def __init__(self, run_dir: Path, dry_run: bool):
        self._run_dir = run_dir
        self._dry_run = dry_run
        self.paths: list[str] = []

    def keep(self, name: str, content: str | t.IO[bytes]) -> None:
        """Write a file unless it holds this content already."""
        path = self._run_dir / name
        stream = io.BytesIO(content.encode("utf-8")) if isinstance(content, str) else content
        if result_files.write_stream(path, stream, self._dry_run):
            self.paths.append(str(path))


def summarise(result: dict[str, t.Any], file: str, settings: Settings) -> dict[str, t.Any]:
    """One host's part of results.json."""
    comparisons = host_comparisons.compare_host(result, settings.margin, settings.confidence)
    reboot = (result["facts"].get("boot") or {}).get("reboot_required") if isinstance(result["facts"].get("boot"), dict) else None
    return {
        "host": result["host"],
        "run": result["run"],
        "file": text.showable(file),
        "outcome": result["outcome"],
        "message": result["message"],
        "started": result.get("started"),
        "finished": result["finished"],
        "collection_version": result.get("collection_version"),
        "hardware_class": result["facts"].get("hardware_class"),
        "environment": result["environment"],
        "change": result["change"],
        "answer": conclusion.answer(result, comparisons),
        "recommendation": recommendation.recommend(result, comparisons, settings.licence),
        "comparisons": comparisons,
        "levels": host_comparisons.levels(result, settings.confidence),
        "not_measured": host_comparisons.not_measured(result),
        "failures": host_comparisons.failures(result),
        "restored": result["restored"],
        "vulnerable": conclusion.exposed(result),
        "reboot_required": reboot if isinstance(reboot, bool) else None,
        "disagreement": sibling_cache.disagreement(result["facts"].get("measured")),
    }


def _make(path: Path, settings: Settings, alone: bool, later: bool) -> _Host | Refused:
    """One result, read and turned into its parts."""
    source = text.showable(path.name)
    try:
        result = result_files.load(path)
        summary = summarise(result, path.name, settings)
        return _host(result, summary, settings, alone, later)
    except result_files.ResultError as error:
        return Refused(source, str(error))
    except paired.SampleError as error:
        return Refused(source, f"{source}: {error}")
    except Exception as error:  # what nobody thought of in one host's result is no reason that the others' are not shown
        return _unforeseen(source, error)


def _host(result: dict[str, t.Any], summary: dict[str, t.Any], settings: Settings, alone: bool, later: bool) -> _Host:
    page = "index.html" if alone else f"{result_files.file_stem(result['host'])}.html"
    samples = texts.sample_rows(result)
    safe, table = texts.safe_rows(samples), texts.csv_text(samples)
    parts = {
        "results.csv": table if safe is samples else texts.csv_text(safe),
        parquet.NAME: table,
        "comparisons.csv": texts.csv_text(texts.safe_rows(texts.comparison_rows(summary))),
        "summary.md": texts.host_markdown(summary),
        "results.json": texts.json_text(summary),
    }
    return _Host(hardware_classes.row(summary, page), host_page.render(result, summary, alone, settings.margin, later), parts, texts.metric_lines(summary))


def _earlier(settings: Settings, refused: list[Refused]) -> list[hardware_classes.Row]:
    """The rows of the earlier run; what cannot be used of it is added to ``refused``."""
    rows = []
    for one in _accepted(_each(settings.before, functools.partial(_row, settings=settings))):
        if isinstance(one, Refused):
            refused.append(Refused(one.file, f"of the run before: {one.reason}"))
        else:
            rows.append(one)
    return rows


def _row(path: Path, settings: Settings) -> hardware_classes.Row | Refused:
    """One result, read for the overview alone."""
    try:
        result = result_files.load(path)
        return hardware_classes.row(summarise(result, path.name, settings), f"{result_files.file_stem(result['host'])}.html")
    except (result_files.ResultError, paired.SampleError) as error:
        return Refused(text.showable(path.name), str(error))
    except Exception as error:  # as in _make
        return _unforeseen(text.showable(path.name), error)


def _unforeseen(source: str, error: Exception) -> Refused:
    return Refused(
        source,
        f"{source}: its numbers or names have the report fail ({type(error).__name__}: {text.line(error, 200)}): evaluate this host again, "
        "and report this as a defect of threadwise.smt",
    )


Made = t.TypeVar("Made")


def _each(paths: t.Sequence[Path], make: t.Callable[[Path], Made]) -> t.Iterator[Made | Refused]:
    """What is made of each path, in their order, by as many processes as there are CPUs to use. A path whose process is killed each time is refused."""
    processes = min(len(os.sched_getaffinity(0)), len(paths) // LEAST_HOSTS_A_PROCESS)
    if processes < 2:
        yield from map(make, paths)
        return
    left = collections.deque(paths)
    waiting: collections.deque[tuple[Path, concurrent.futures.Future[Made]]] = collections.deque()
    while left:
        try:
            with _forked(processes) as pool:
                while left or waiting:
                    # Not all at once: what is made waits in memory until it is taken.
                    while left and len(waiting) < AHEAD * processes:
                        waiting.append((left[0], pool.submit(make, left[0])))
                        left.popleft()
                    made = waiting[0][1].result()
                    waiting.popleft()
                    yield made
        except concurrent.futures.process.BrokenProcessPool:
            # One process that is killed takes the others' work along: whose file it was shows when each has a process of its own.
            while waiting:
                yield _by_itself(waiting.popleft()[0], make)


def _by_itself(path: Path, make: t.Callable[[Path], Made]) -> Made | Refused:
    """What is made of a path, in a process of its own."""
    try:
        with _forked(1) as pool:
            return pool.submit(make, path).result()
    except concurrent.futures.process.BrokenProcessPool:
        name = text.showable(path.name)
        return Refused(name, f"{name}: the process that read it was killed, perhaps for want of memory: build the report on a larger host")


def _forked(processes: int) -> concurrent.futures.ProcessPoolExecutor:
    """Forked, since a fresh interpreter would not know where Ansible found this collection.

    When one of them is killed the pool asks the others to end by SIGTERM and waits for them: who forks may have that signal ignored.
    """
    return concurrent.futures.ProcessPoolExecutor(
        processes, multiprocessing.get_context("fork"), initializer=signal.signal, initargs=(signal.SIGTERM, signal.SIG_DFL)
    )


def _accepted(made: t.Iterable[_Host | hardware_classes.Row | Refused]) -> t.Iterator[t.Any]:
    """The same, with the second result that claims to be the same host refused: nobody could tell which one is right."""
    seen: dict[str, str] = {}
    for one in made:
        if isinstance(one, Refused):
            yield one
            continue
        row = one.row if isinstance(one, _Host) else one
        if row["host"] in seen:
            yield Refused(row["file"], f"{row['file']}: says it is host {row['host'][:MOST_TEXT]}, as {seen[row['host']]} does: remove one")
        else:
            seen[row["host"]] = row["file"]
            yield one


def _held() -> tempfile.SpooledTemporaryFile[bytes]:
    """Return a new temporary file that stays in memory up to ``MOST_HELD`` bytes."""
    return tempfile.SpooledTemporaryFile(MOST_HELD)


class _Whole:
    """The files that hold all hosts, put together on disk from the parts of each."""

    def __init__(self, stack: contextlib.ExitStack):
        names = ("results.csv", "comparisons.csv", "summary.md", "results.json", parquet.NAME, *texts.METRICS)
        self._held = {name: stack.enter_context(_held()) for name in names}
        self._hosts = 0
        self._write("results.csv", texts.csv_text([texts.SAMPLE_COLUMNS]))
        self._write("comparisons.csv", texts.csv_text([texts.COMPARISON_COLUMNS]))
        self._write("summary.md", "# Should SMT be on here?\n\n")
        self._write("results.json", texts.JSON_HEAD)

    def _write(self, name: str, content: str) -> None:
        self._held[name].write(content.encode("utf-8"))

    def add(self, host: _Host) -> None:
        for name, content in host.parts.items():
            self._write(name, (",\n" if name == "results.json" and self._hosts else "") + content)
        for name, lines in host.metrics.items():
            self._write(name, "".join(lines))
        self._hosts += 1

    def files(self, refused: t.Sequence[Refused]) -> t.Iterator[tuple[str, t.IO[bytes]]]:
        """Name and content of each file but the table of samples."""
        self._write("summary.md", texts.refused_markdown(refused))
        self._write("results.json", texts.json_tail(refused))
        for name in ("results.csv", "comparisons.csv", "summary.md", "results.json"):
            yield name, self._held[name]
        with tempfile.SpooledTemporaryFile(MOST_HELD) as metrics:
            for name in texts.METRICS:
                if self._held[name].tell():
                    metrics.write(texts.metrics_head(name).encode("utf-8"))
                    self._held[name].seek(0)
                    shutil.copyfileobj(self._held[name], metrics)
            metrics.write(b"# EOF\n")
            yield "metrics.prom", metrics

    def samples(self) -> t.IO[bytes]:
        """The rows of all samples, as CSV without a head, texts as they are."""
        return self._held[parquet.NAME]

    def text(self, name: str) -> str:
        self._held[name].seek(0)
        return self._held[name].read().decode("utf-8")
