# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hyperfine: how long a command takes."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import (
    SECONDS,
    Recipe,
    of_operation,
)

ONE = "give hyperfine one command"

RECIPE = Recipe(
    name="hyperfine",
    number="mean time of a run",
    metrics=[
        of_operation("mean", SECONDS, {"file": "hyperfine.json", "json": ["results", "*", "mean"], "one": ONE}),
        of_operation("median", SECONDS, {"file": "hyperfine.json", "json": ["results", "*", "median"], "one": ONE}),
    ],
    example=["hyperfine", "-N", "--runs", "10", "gzip -c /srv/sample.tar"],
    adds=["--export-json", "hyperfine.json"],
    tested="1.15, 1.18, 1.20",
)
