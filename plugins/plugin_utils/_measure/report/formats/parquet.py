# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of a run as Parquet files for SQL queries, made by DuckDB, which can also query them; and samples.parquet,
the table of all samples.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

try:
    import duckdb
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import (
    SAMPLE_COLUMNS,
    Format,
    FormatError,
)

NAME = "samples.parquet"
SIGN = re.compile(rb"\APAR1")
"""How a Parquet file begins."""


def table(
    name: str, columns: dict[str, str]
) -> t.Callable[[t.IO[bytes]], contextlib.AbstractContextManager[t.IO[bytes]]]:
    """Return what turns rows into a Parquet file.

    Args:
        name: of the file, for messages.
        columns: name of each column -> its type in DuckDB.

    Returns:
        A context manager of the rows (CSV without a header, with unescaped texts) whose value is the content of the
        table. It raises FormatError where DuckDB fails.
    """

    @contextlib.contextmanager
    def made(rows: t.IO[bytes]) -> t.Iterator[t.IO[bytes]]:
        with tempfile.TemporaryDirectory(prefix="smt_report.") as directory:
            source, target = Path(directory, "rows.csv"), Path(directory, "table")
            with source.open("wb") as stream:
                rows.seek(0)
                shutil.copyfileobj(rows, stream)
            try:
                _convert(source, target, columns)
            except duckdb.Error as error:
                raise FormatError(
                    f"{name} was not made, all else was: DuckDB says {str(error).splitlines()[0][:200]}"
                ) from error
            with target.open("rb") as content:
                yield content

    return made


def _convert(source: Path, target: Path, columns: dict[str, str]) -> None:
    """Convert CSV to Parquet with one thread and in the order of rows, so that the same rows give the same bytes."""
    with duckdb.connect(":memory:", config={"threads": 1, "memory_limit": "200MB"}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.read_csv(
            str(source),
            header=False,
            columns=columns,
            sep=",",
            quotechar='"',
            escapechar='"',
            na_values="",
            parallel=False,
            max_line_size=4 * 1024 * 1024,
            auto_detect=False,
        ).write_parquet(str(target), compression="zstd")


FORMAT = Format(
    name=NAME,
    about=(
        "questions in SQL: a row for each sample, with unmodified text. Left out without duckdb; one sentence says so"
        " before any host is contacted"
    ),
    sign=SIGN,
    host=lambda host: host.samples_text,
    missing_library=MISSING_LIBRARY,
    finish=table(NAME, SAMPLE_COLUMNS),
)
