# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python packages that the controller lacks, as one sentence. Pure functions: the caller says which imports failed."""

from __future__ import annotations

import sys
import typing as t


def sentence(purpose: str, failed: t.Iterable[ImportError | None]) -> str | None:
    """Return one message about all missing packages, or None when there are none.

    Args:
        purpose: what needs them.
        failed: what each import raised, or None for one that succeeded.
    """
    errors = [error for error in failed if error is not None]
    if not errors:
        return None
    reasons = "; ".join(sorted({str(error) for error in errors}))
    return f"{purpose} needs Python packages that this controller does not have ({reasons}): {_install(errors)}"


def left_out(what: str, failed: t.Mapping[str, ImportError | None]) -> str | None:
    """Return one message about what is made in another way than with all recommended packages,
    or None when none is missing.

    Args:
        what: what is made.
        failed: how it is made without a package, such as ``without samples.parquet``, and what the import raised, or
            None for one that succeeded.
    """
    lost = {how: error for how, error in failed.items() if error is not None}
    if not lost:
        return None
    return f"{what} {' and '.join(lost)}, for which this controller lacks Python packages: {_install(lost.values())}"


def _install(errors: t.Iterable[ImportError]) -> str:
    names = {(error.name or "").partition(".")[0] for error in errors}
    return f"{sys.executable} -m pip install {' '.join(sorted(filter(None, names)))}"
