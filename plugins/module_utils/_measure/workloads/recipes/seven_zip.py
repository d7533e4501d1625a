# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""7z b: the benchmark of 7-Zip."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe

RECIPE = Recipe(
    name="7z",
    number="total rating in MIPS",
    metrics=[throughput("MIPS", {"pattern": r"(?m)^Tot:(?: +\d+)* +(\d+)\s*$"})],
    example=["7z", "b", "-mmt1"],
    tested="26.02",
)
