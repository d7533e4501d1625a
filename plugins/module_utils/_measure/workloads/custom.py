# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users' own commands as workloads: turn entries of an inventory into declarations, or refuse them with the reason."""

import os
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    CO_RUNNERS_ON,
    PLAIN,
    SAME,
    Metric,
    Parameter,
    ServerDeclaration,
    Workload,
    WorkloadError,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.metrics import (
    AGGREGATES,
    MEAN_PER_JOB,
    PER_JOB,
    PER_OPERATION,
    UNDECLARED,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.output import sources
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes import registry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, completed

RECIPES: "dict[str, Recipe]" = {recipe.name: recipe for recipe in registry.RECIPES}
NAME = re.compile(r"\A[a-z0-9][a-z0-9_]{0,63}\Z")
MOST = 100
MAX_ARGUMENTS = 1000
MAX_CHARACTERS = 4000
TIMEOUT = (1, 24 * 3600)
SOURCES = ("pattern", "json", "clock")
WALL = "wall_seconds"
CPU = "cpu_seconds"
CLOCKS = (WALL, CPU)
VARIABLE = re.compile(r"\A[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
MAX_VARIABLES = 100
MAX_VALUES = 50
MAX_VALUE = 1e12
MAX_SCALE = 1e18
MAX_CO_RUNNERS = 64
NICENESS = (-20, 19)

# Units of times, as tools print them; cycles are one.
_TIMES = frozenset(
    {"s", "sec", "secs", "second", "seconds", "ms", "msec", "milliseconds", "us", "usec", "\u00b5s", "\u03bcs"}
    | {"microseconds", "ns", "nsec", "nanoseconds", "min", "minutes", "h", "hours", "cycles"}
)
_RESPONSE = re.compile(r"latenc|respons|delay|wait|(?:^|_)(?:p|q)[0-9]+|percentile")


def declarations(given: "t.Sequence[t.Mapping[str, t.Any]]") -> "list[Workload]":
    """Return the declarations of a user's own commands.

    Args:
        given: the entries of the option ``custom`` of smt_benchmark.

    Raises:
        WorkloadError: an entry is not valid. The message names the first such entry, the wrong part and the allowed
            values.
    """
    if len(given) > MOST:
        raise WorkloadError(f"custom has {len(given)} commands: at most {MOST} are allowed")
    made = [_declaration(command) for command in given]
    names = [declaration["name"] for declaration in made]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise WorkloadError(
            f"custom uses the name {', '.join(duplicates)} more than once: give each command a name of its own"
        )
    return made


def _declaration(given: "t.Mapping[str, t.Any]") -> Workload:
    recipe = _recipe(given)
    name: str = given.get("name") or (recipe.name if recipe else "")
    if not NAME.match(name):
        raise WorkloadError(
            f"custom: {name[:80]!r} is not a valid name: use lower-case letters, digits and '_', at most 64 characters"
        )
    if name in BUILT_IN:
        raise WorkloadError(f"custom: {name} is the name of a built-in workload: choose another name")
    argv = _argv(name, "argv", given["argv"])
    timeout: float = given.get("timeout") or 60
    if not TIMEOUT[0] <= timeout <= TIMEOUT[1]:
        raise WorkloadError(
            f"custom: timeout of {name} is {timeout}: it must be from {TIMEOUT[0]} to {TIMEOUT[1]} seconds"
        )
    metrics = _metrics(name, given, recipe)
    metric_names = [metric["name"] for metric in metrics]
    if len(set(metric_names)) < len(metric_names):
        raise WorkloadError(f"custom: two metrics of {name} have the same name")
    return {
        **PLAIN,
        "name": name,
        "title": (given.get("title") or name)[:200],
        "argv": completed(argv, recipe) if recipe else argv,
        "placements": _placements(name, given.get("placements")),
        "parameter": _parameter(name, given.get("parameters")),
        "environment": _environment(name, given.get("environment") or {}),
        "server": _server(name, given),
        "multithreaded": bool(given.get("multithreaded")),
        "timeout": timeout,
        "nice": _whole(name, given, "nice", NICENESS),
        "co_runners": _whole(name, given, "co_runners", (0, MAX_CO_RUNNERS)),
        "co_runners_on": _co_runners_on(name, given.get("co_runners_on") or SAME),
        "co_runners_nice": _whole(name, given, "co_runners_nice", NICENESS),
        "metrics": metrics,
        "custom": True,
    }


def _recipe(given: "t.Mapping[str, t.Any]") -> t.Optional[Recipe]:
    """Return the recipe that a command asks for, None without one, or raise WorkloadError."""
    name = given.get("recipe")
    if name and name not in RECIPES:
        raise WorkloadError(f"custom: there is no recipe {name[:80]!r}: choose from {', '.join(sorted(RECIPES))}")
    return RECIPES[name] if name else None


def _metrics(name: str, given: "t.Mapping[str, t.Any]", recipe: t.Optional[Recipe]) -> "list[Metric]":
    """Return the metrics of a command, the primary one first: its own, or those of its recipe."""
    own, further = given.get("metric"), given.get("metrics") or []
    if not (own or recipe):
        raise WorkloadError(f"custom: {name} has no metric: give one, or a recipe, one of {', '.join(sorted(RECIPES))}")
    is_threaded = bool(given.get("multithreaded"))
    declared = [_metric(name, is_threaded, own, True)] if own else list(recipe.metrics) if recipe else []
    return declared + [_metric(name, is_threaded, metric) for metric in further]


def _whole(workload: str, given: "t.Mapping[str, t.Any]", option: str, limits: "tuple[int, int]") -> int:
    """Return a whole number, 0 where it is not given, or raise WorkloadError."""
    value: int = given.get(option) or 0
    if not limits[0] <= value <= limits[1]:
        raise WorkloadError(f"custom: {option} of {workload} is {value}: it must be from {limits[0]} to {limits[1]}")
    return value


def _co_runners_on(workload: str, given: str) -> str:
    if given not in CO_RUNNERS_ON:
        raise WorkloadError(
            f"custom: co_runners_on of {workload} is {given[:80]!r}: it must be one of {', '.join(CO_RUNNERS_ON)}"
        )
    return given


def _argv(workload: str, option: str, argv: "list[str]") -> "list[str]":
    """Return a command with its arguments, or raise WorkloadError."""
    # Ansible makes a list of a string: it splits the string at its commas, not at its spaces.
    if isinstance(argv, str) or (argv and re.search(r"\S\s+\S", argv[0]) and not os.path.exists(argv[0])):
        raise WorkloadError(
            f"custom: {option} of {workload} is a string: give the command and each argument as an item of a list, such"
            f' as {option}: [sleep, "1"]'
        )
    if (
        not argv
        or not argv[0]
        or len(argv) > MAX_ARGUMENTS
        or any("\0" in argument or len(argument) > MAX_CHARACTERS for argument in argv)
    ):
        raise WorkloadError(
            f"custom: {option} of {workload} is not valid: give 1 to {MAX_ARGUMENTS} arguments of at most"
            f" {MAX_CHARACTERS} characters, the command first"
        )
    return list(argv)


def _placements(workload: str, given: "t.Sequence[str] | None") -> "list[str] | None":
    """Return the names of the placements in which a command is meaningful, None for all, or raise WorkloadError."""
    unknown = [name for name in given or () if not placements.is_known(name)]
    if unknown:
        raise WorkloadError(
            f"custom: placements of {workload} has {unknown[0][:80]!r}: choose from {', '.join(placements.CHOICES)}"
        )
    return list(given) if given else None


def _parameter(workload: str, given: "t.Mapping[str, t.Any] | None") -> t.Optional[Parameter]:
    """Return the parameter of a command with its values in rising order, None for a command without one,
    or raise WorkloadError.
    """
    if not given:
        return None
    values = given["values"]
    if not NAME.match(given["name"]):
        raise WorkloadError(
            f"custom: the name of the parameters of {workload} must have only lower-case letters, digits and '_', at"
            " most 64 characters"
        )
    if not values or len(values) > MAX_VALUES or not all(0 < value <= MAX_VALUE for value in values):
        raise WorkloadError(
            f"custom: parameters of {workload} must have 1 to {MAX_VALUES} values above 0, at most {MAX_VALUE:g}"
        )
    # A whole number is written as one in the command's arguments.
    whole = sorted({int(value) if float(value).is_integer() else float(value) for value in values})
    return {"name": given["name"], "unit": (given.get("unit") or given["name"])[:60], "values": whole}


def _environment(workload: str, given: "t.Mapping[str, t.Any]") -> "dict[str, str]":
    """Return variables of the environment, or raise WorkloadError."""
    variables = {str(name): str(value) for name, value in given.items()}
    wrong = [
        name
        for name, value in variables.items()
        if not VARIABLE.match(name) or "\0" in value or len(value) > MAX_CHARACTERS
    ]
    if wrong or len(variables) > MAX_VARIABLES:
        culprit = f"the variable {wrong[0][:80]!r}" if wrong else f"{len(variables)} variables"
        raise WorkloadError(
            f"custom: environment of {workload} has {culprit}: at most {MAX_VARIABLES} are allowed, with names of"
            f" letters, digits and '_', and values of at most {MAX_CHARACTERS} characters"
        )
    return variables


def _server(workload: str, given: "t.Mapping[str, t.Any]") -> t.Optional[ServerDeclaration]:
    """Return the server that a command's hooks start and end in each arm, None without one, or raise WorkloadError."""
    hooks = {
        option: _argv(workload, option, given[option]) for option in ("start", "ready", "stop") if given.get(option)
    }
    if not hooks:
        return None
    if "start" not in hooks or "ready" not in hooks:
        raise WorkloadError(
            f"custom: {workload} has {' and '.join(hooks)}: start, and ready, which succeeds when what was started is"
            " ready, need each other"
        )
    return {
        "folders": [],
        "commands": {argv[0]: None for argv in (given["argv"], *hooks.values())},
        "user": None,
        "files": [],
        "prepare": [],
        "serve": hooks["start"],
        "ready": hooks["ready"],
        "fill": [],
        "end": hooks.get("stop", []),
        "in_each_arm": True,
        "has_own_cores": False,
        "stop": "SIGTERM",
        "kill": "SIGKILL",
    }


def _metric(workload: str, multithreaded: bool, given: "t.Mapping[str, t.Any]", is_primary: bool = False) -> Metric:
    where = f"custom: metric {given['name'][:80]} of {workload}"
    if not NAME.match(given["name"]):
        raise WorkloadError(
            f"{where}: the name must have only lower-case letters, digits and '_', at most 64 characters"
        )
    chosen = [source for source in SOURCES if given.get(source)]
    if len(chosen) != 1:
        raise WorkloadError(f"{where}: give exactly one of {', '.join(SOURCES)}")
    better = given["better"]
    aggregate = given.get("aggregate") or _default_aggregate(given, multithreaded, is_primary)
    # Workers share the time that passes while they run, and no CPU time.
    aggregate = MEAN_PER_JOB if (aggregate, given.get("clock")) == (PER_JOB, CPU) else aggregate
    choices = sorted(set(AGGREGATES) - {UNDECLARED})
    if better not in ("higher", "lower") or given.get("aggregate") not in (None, *choices):
        raise WorkloadError(f"{where}: better must be higher or lower, aggregate one of {', '.join(choices)}")
    metric: Metric = {"name": given["name"], "unit": given["unit"][:60], "better": better, "aggregate": aggregate}
    if chosen[0] == "pattern":
        metric["pattern"] = _pattern(where, given["pattern"])
    elif chosen[0] == "json":
        metric["json"] = list(given["json"])
    elif given["clock"] not in CLOCKS:
        raise WorkloadError(f"{where}: clock must be one of {', '.join(CLOCKS)}")
    else:
        metric["clock"] = given["clock"]
    if given.get("file"):
        metric["file"] = _file(where, given["file"], chosen[0])
    if given.get("scale") is not None:
        if not 1 / MAX_SCALE <= given["scale"] <= MAX_SCALE:
            raise WorkloadError(f"{where}: scale must be a number from {1 / MAX_SCALE:g} to {MAX_SCALE:g}")
        metric["scale"] = float(given["scale"])
    return metric


def _file(where: str, file: str, source: str) -> str:
    """Return the name of files in the folder of a sample, or raise WorkloadError."""
    if (
        source == "clock"
        or os.path.isabs(file)
        or ".." in file.split("/")
        or "\0" in file
        or len(file) > MAX_CHARACTERS
    ):
        raise WorkloadError(
            f"{where}: file is a name, such as result*.json, in the empty folder that each worker runs in, and goes"
            " with pattern or json"
        )
    return file


def _default_aggregate(metric: "t.Mapping[str, t.Any]", multithreaded: bool, is_primary: bool) -> str:
    if metric["better"] == "higher":
        return "sum"
    # More workers do more jobs in a longer time. The time alone would always count against the placement with more
    # workers.
    if metric.get("clock") in CLOCKS:
        return "max" if multithreaded else PER_JOB
    if not is_primary:
        return "max"
    # A response time is no time of work, and of a command with threads nobody knows whether it is that of all of them.
    is_time = metric["unit"].partition("/")[0].strip().lower() in _TIMES
    return PER_OPERATION if is_time and not multithreaded and not _RESPONSE.search(metric["name"]) else UNDECLARED


def _pattern(where: str, pattern: str) -> str:
    try:
        group = sources.value_group(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise WorkloadError(f"{where}: its pattern is not a valid regular expression: {error}") from None
    if not group:
        raise WorkloadError(f"{where}: its pattern has no group: put the number in parentheses")
    return pattern
