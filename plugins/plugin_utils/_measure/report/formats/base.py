# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all output formats: what a format has to offer, and what it is given of each host.

A format is one file of this folder with a ``FORMAT``; the registry finds it. A host's part is text and is made by
itself, possibly in another process, so that a fleet's file is put together on disk, without the whole fleet in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample, Workload
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import recorded
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import tables
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.hardware_classes import HardwareClass
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary

SCHEMA_NAME = "threadwise.smt/report"
SCHEMA_VERSION = 2


class FormatError(Exception):
    """A file cannot be made; the message names it, the reason and the way out."""


@dataclasses.dataclass(frozen=True)
class Refused:
    """A result file that is not used, with the reason."""

    file: str
    reason: str


@dataclasses.dataclass
class HostReport:
    """What a format is given of one host.

    Attributes:
        result: from ``result_files.load``, with the declarations of what was made of its samples.
        summary: what was made of it.
    """

    result: HostResult
    summary: Summary

    @functools.cached_property
    def samples(self) -> list[list[t.Any]]:
        """One row per metric of each sample, the primary metric first, with the columns of :data:`SAMPLE_COLUMNS`."""
        workloads = {workload.name: workload for workload in self.result.plan.workloads or ()}
        return [
            row
            for sample in self.result.samples
            for row in _sample_rows(self.result, sample, workloads[sample.workload])
        ]

    @functools.cached_property
    def samples_text(self) -> str:
        """The same as CSV, with unescaped texts."""
        return tables.csv_text(self.samples)

    @functools.cached_property
    def workers_text(self) -> str:
        """One row per worker of each sample as CSV, with the columns of :data:`WORKER_COLUMNS` and unescaped texts."""
        return self.workers_with(lambda cell: cell)

    def workers_with(self, cell: t.Callable[[t.Any], t.Any]) -> str:
        """Return the rows of all workers as CSV, each text as ``cell`` makes it.

        They are most of a report's numbers. What all workers of a sample share is written once.
        """
        quoted = functools.cache(lambda text: _quoted(cell(text)))
        of_run = [quoted(text) for text in _run(self.result)]
        workloads = {
            workload.name: (quoted(workload.primary), quoted(workload.metrics[workload.primary].unit))
            for workload in self.result.plan.workloads or ()
        }
        return "".join(
            line
            for sample in self.result.samples
            for line in _worker_lines(of_run, sample, *workloads[sample.workload], quoted)
        )


@dataclasses.dataclass(frozen=True)
class Ending:
    """What a format is given after the last host.

    Attributes:
        refused: the result files that are not used.
        classes: what holds for each hardware class, from ``hardware_classes.by_class``.
    """

    refused: t.Sequence[Refused]
    classes: t.Sequence[HardwareClass]


def _nothing(_ending: Ending) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Format:
    """One output file of a report.

    Attributes:
        name: of the file.
        about: for whom the file is and what it holds, for the documentation.
        sign: what each such file contains at its beginning or its end, so that a report replaces no file of somebody
            else.
        host: makes a host's part.
        head: the text before the first host.
        between: the text between two hosts.
        tail: makes the text after the last host.
        missing_library: what the import of a package raised without which the file is left out.
        finish: turns the text of all hosts into the content of the file, or raises FormatError; None where the text is
            the content. It gets no ``tail``.
    """

    name: str
    about: str
    sign: re.Pattern[bytes]
    host: t.Callable[[HostReport], str]
    head: str = ""
    between: str = ""
    tail: t.Callable[[Ending], str] = _nothing
    missing_library: ImportError | None = None
    finish: t.Callable[[t.IO[bytes]], contextlib.AbstractContextManager[t.IO[bytes]]] | None = None


# What identifies a sample.
_SAMPLE = {
    "run": "VARCHAR",
    "host": "VARCHAR",
    "hardware_class": "VARCHAR",
    "workload": "VARCHAR",
    "placement": "VARCHAR",
    "arm": "VARCHAR",
    "block": "BIGINT",
    "index": "BIGINT",
}
SAMPLE_COLUMNS = {
    **_SAMPLE,
    "ok": "BOOLEAN",
    "metric": "VARCHAR",
    "primary": "BOOLEAN",
    "value": "DOUBLE",
    "unit": "VARCHAR",
    "better": "VARCHAR",
    "parameter": "DOUBLE",
    "parameter_name": "VARCHAR",
    "workers": "BIGINT",
    "wall_seconds": "DOUBLE",
    "steal": "DOUBLE",
    "started": "VARCHAR",
    "error": "VARCHAR",
}
WORKER_COLUMNS = {
    **_SAMPLE,
    "parameter": "DOUBLE",
    "worker": "BIGINT",
    "cpus": "VARCHAR",
    "metric": "VARCHAR",
    "value": "DOUBLE",
    "unit": "VARCHAR",
    "wall_seconds": "DOUBLE",
    "cpu_seconds": "DOUBLE",
    "context_switches": "BIGINT",
    "frequency_mhz": "DOUBLE",
    "usage": "DOUBLE",
}


def _identity(result: HostResult, sample: Sample) -> list[t.Any]:
    """Return the values of :data:`_SAMPLE`."""
    return [*_run(result), sample.workload, sample.placement, sample.arm, sample.block, sample.index]


def _run(result: HostResult) -> tuple[str, str, str | None]:
    """Return what all samples of a result share."""
    return result.run, result.host, result.facts.hardware_class


def _worker_lines(
    of_run: t.Sequence[str], sample: Sample, metric: str, unit: str, quoted: t.Callable[[str | None], str]
) -> t.Iterator[str]:
    telemetry = recorded.telemetry_of(sample)
    frequency, usage = telemetry.frequency or {}, telemetry.cpu_usage or {}
    texts = [*of_run, *map(quoted, (sample.workload, sample.placement, sample.arm))]
    numbers = map(_number, (sample.block, sample.index, sample.parameter))
    of_sample = ",".join((*texts, *numbers))
    for number, worker in enumerate(sample.workers or ()):
        # Of a worker that had several CPUs it is not known which of them it used.
        own = worker.cpus if worker.cpus.isdigit() else ""
        yield (
            f"{of_sample},{number},{own or quoted(worker.cpus)},{metric},{_number(worker.value)},{unit},"
            f"{_number(worker.wall_seconds)},{_number(worker.cpu_seconds)},{_number(worker.context_switches)},"
            f"{_number(frequency.get(own))},{_number(usage.get(own))}\n"
        )


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def _quoted(text: str | None) -> str:
    """Return a text as it stands among others in a row: alone, an empty one would be quoted."""
    return tables.csv_text([["", text]])[1:-1]


def _sample_rows(result: HostResult, sample: Sample, workload: Workload) -> list[list[t.Any]]:
    primary = workload.primary
    # A failed sample has no metric, and a row of its own.
    names = [primary, *(name for name in sample.metrics if name != primary)]
    return [_sample_row(result, sample, workload, name) for name in names]


def _sample_row(result: HostResult, sample: Sample, workload: Workload, metric: str) -> list[t.Any]:
    declared, measured = workload.metrics[metric], sample.metrics.get(metric)
    return [
        *_identity(result, sample),
        sample.ok,
        metric,
        metric == workload.primary,
        measured and measured.value,
        declared.unit,
        declared.better,
        sample.parameter,
        workload.parameter.name if workload.parameter and sample.parameter is not None else None,
        len(sample.workers or []),
        sample.wall_seconds,
        recorded.telemetry_of(sample).steal,
        sample.started,
        sample.error,
    ]
