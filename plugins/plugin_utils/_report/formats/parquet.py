# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All samples of a run as one Parquet file for SQL queries, made by DuckDB, which can also query it."""

from __future__ import annotations

import contextlib
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

from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats.base import SAMPLE_COLUMNS, Format, FormatError

NAME = "samples.parquet"


@contextlib.contextmanager
def _made(rows: t.IO[bytes]) -> t.Iterator[t.IO[bytes]]:
    """Make the table.

    Args:
        rows: CSV without a header, with the columns of :data:`SAMPLE_COLUMNS` and unescaped texts.

    Yields:
        The content of the table, valid within the context.

    Raises:
        FormatError: DuckDB fails.
    """
    with tempfile.TemporaryDirectory(prefix="smt_report.") as directory:
        source, target = Path(directory, "rows.csv"), Path(directory, NAME)
        with source.open("wb") as stream:
            rows.seek(0)
            shutil.copyfileobj(rows, stream)
        try:
            _convert(source, target)
        except duckdb.Error as error:
            raise FormatError(f"{NAME} was not made, all else was: DuckDB says {str(error).splitlines()[0][:200]}") from error
        with target.open("rb") as table:
            yield table


def _convert(source: Path, target: Path) -> None:
    """Convert CSV to Parquet with one thread and in the order of rows, so that the same rows give the same bytes."""
    with duckdb.connect(":memory:", config={"threads": 1, "memory_limit": "200MB"}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.read_csv(
            str(source),
            header=False,
            columns=SAMPLE_COLUMNS,
            sep=",",
            quotechar='"',
            escapechar='"',
            na_values="",
            parallel=False,
            max_line_size=4 * 1024 * 1024,
            auto_detect=False,
        ).write_parquet(str(target), compression="zstd")


FORMAT = Format(name=NAME, host=lambda host: host.samples_text, missing_library=MISSING_LIBRARY, finish=_made)
