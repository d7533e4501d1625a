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

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import tables

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
class Host:
    """What a format is given of one host.

    Attributes:
        result: a document accepted by ``result_files.load``.
        summary: what ``build.summarise`` made of it.
    """

    result: dict[str, t.Any]
    summary: dict[str, t.Any]

    @functools.cached_property
    def samples(self) -> list[list[t.Any]]:
        """One row per metric of each sample, the primary metric first, with the columns of :data:`SAMPLE_COLUMNS`."""
        workloads = {one["name"]: one for one in self.result["plan"].get("workloads") or []}
        return [
            row
            for sample in self.result["samples"]
            for row in _sample_rows(self.result, sample, workloads[sample["workload"]])
        ]

    @functools.cached_property
    def workers(self) -> list[list[t.Any]]:
        """One row per worker of each sample, with the columns of :data:`WORKER_COLUMNS`."""
        workloads = {one["name"]: one for one in self.result["plan"].get("workloads") or []}
        return [
            row
            for sample in self.result["samples"]
            for row in _worker_rows(self.result, sample, workloads[sample["workload"]])
        ]

    @functools.cached_property
    def samples_text(self) -> str:
        """The same as CSV, with unescaped texts."""
        return tables.csv_text(self.samples)

    @functools.cached_property
    def workers_text(self) -> str:
        """The workers as CSV, with unescaped texts."""
        return tables.csv_text(self.workers)


@dataclasses.dataclass(frozen=True)
class Ending:
    """What a format is given after the last host.

    Attributes:
        refused: the result files that are not used.
        classes: what holds for each hardware class, from ``hardware_classes.by_class``.
    """

    refused: t.Sequence[Refused]
    classes: t.Sequence[dict[str, t.Any]]


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
    host: t.Callable[[Host], str]
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


def _identity(result: dict[str, t.Any], sample: dict[str, t.Any]) -> list[t.Any]:
    """Return the values of :data:`_SAMPLE`."""
    of_run = (result["run"], result["host"], result["facts"].get("hardware_class"))
    return [*of_run, *(sample[key] for key in ("workload", "placement", "arm", "block")), sample.get("index")]


def _worker_rows(
    result: dict[str, t.Any], sample: dict[str, t.Any], workload: dict[str, t.Any]
) -> t.Iterator[list[t.Any]]:
    telemetry = host_comparisons.telemetry_of(sample)
    of_sample = [*_identity(result, sample), sample.get("parameter")]
    unit = workload["metrics"][workload["primary"]]["unit"]
    for number, worker in enumerate(sample.get("workers") or []):
        cpus = worker.get("cpus") or ""
        # Of a worker that had several CPUs it is not known which of them it used.
        own = cpus if cpus.isdigit() else None
        yield [
            *of_sample,
            number,
            cpus,
            workload["primary"],
            worker["value"],
            unit,
            worker.get("wall_seconds"),
            worker.get("cpu_seconds"),
            worker.get("context_switches"),
            (telemetry.get("frequency") or {}).get(own),
            (telemetry.get("cpu_usage") or {}).get(own),
        ]


def _sample_rows(result: dict[str, t.Any], sample: dict[str, t.Any], workload: dict[str, t.Any]) -> list[list[t.Any]]:
    primary = workload["primary"]
    # A failed sample has no metric, and a row of its own.
    names = [primary, *(name for name in sample["metrics"] if name != primary)]
    return [_sample_row(result, sample, workload, name) for name in names]


def _sample_row(
    result: dict[str, t.Any], sample: dict[str, t.Any], workload: dict[str, t.Any], metric: str
) -> list[t.Any]:
    declared = workload["metrics"][metric]
    return [
        *_identity(result, sample),
        sample["ok"],
        metric,
        metric == workload["primary"],
        (sample["metrics"].get(metric) or {}).get("value"),
        declared["unit"],
        declared["better"],
        sample.get("parameter"),
        (workload.get("parameter") or {}).get("name") if sample.get("parameter") is not None else None,
        len(sample.get("workers") or []),
        sample.get("wall_seconds"),
        host_comparisons.telemetry_of(sample).get("steal"),
        sample.get("started"),
        sample.get("error"),
    ]
