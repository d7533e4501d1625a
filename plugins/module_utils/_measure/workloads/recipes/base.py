# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recipe has to offer: how the number of a tool that people have is read."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import Metric, Source
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.metrics import PER_OPERATION

SECONDS = "s"


class Recipe(t.NamedTuple):
    """How a tool's own number becomes the metrics of a workload.

    Attributes:
        name: its name, by which users ask for it.
        number: what the first metric is in the tool's own summary, for the documentation.
        metrics: the metrics, the primary one first.
        example: a command that it is for.
        adds: arguments that the reading needs. They are put at the end of a command that does not have the first of
            them.
        tested: the versions whose output the tests read.
    """

    name: str
    number: str
    metrics: "t.Sequence[Metric]"
    example: "t.Sequence[str]"
    adds: "t.Sequence[str]" = ()
    tested: str = ""


def of_operation(name: str, unit: str, source: Source) -> Metric:
    """Return a metric that is the time of one of many operations."""
    return {"name": name, "unit": unit, "better": "lower", "aggregate": PER_OPERATION, **source}


def response(name: str, unit: str, source: Source) -> Metric:
    """Return a metric that is a response time; that of the slowest worker counts."""
    return {"name": name, "unit": unit, "better": "lower", "aggregate": "max", **source}


def completed(argv: "t.Sequence[str]", recipe: Recipe) -> "list[str]":
    """Return a command with the arguments that a recipe adds."""
    option = recipe.adds[0].partition("=")[0] if recipe.adds else ""
    has_it = any(argument.partition("=")[0] == option or option in argument.split() for argument in argv)
    return [*argv, *(() if has_it else recipe.adds)]
