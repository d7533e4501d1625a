# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's own command in one line, and its number in one pattern: an entry of ``custom`` of them."""

import os
import re
import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import WorkloadError

NAME = "command"
TIMEOUT = 3600
# What a shell would make something of.
SHELL = frozenset(("|", "||", "&&", ";", "&", "<", ">", ">>", "2>&1"))
_ESCAPES = re.compile(r"\\.|\(\?P?<\w+>|\(\?[a-z]+\)")
# Work of which more is better, in a time: errors/s and misses/s are none.
_RATE = re.compile(
    r"\b((?:[kKMGT]i?)?(?:B|bytes?|b|bits?|req|reqs|requests?|ops?|operations?|transactions?|queries|events?|messages"
    r"|msgs|iterations?|rows|records|items|keys|packets|lines|files|jobs|frames|images|tokens))"
    r" ?(?:/|per[ _-])(?:s|sec|secs|second)\b",
    re.IGNORECASE,
)
_SHORT_RATE = re.compile(r"\b(iops|tps|qps|rps)\b", re.IGNORECASE)
_TIME = re.compile(r"(?<![A-Za-z/])((?:ns|us|\u00b5s|ms|sec|secs|seconds|s)(?:/[a-z]+)?)(?![A-Za-z])")
_PERCENTILE = re.compile(r"latenc|respons|delay|wait|\bp[0-9]{2}|percentile|request|query", re.IGNORECASE)


def entries(command: "str | None", pattern: "str | None") -> "list[dict[str, t.Any]]":
    """Return the entry of ``custom`` that a command in one line is; none without one.

    Args:
        command: the command as it is typed, quotes included. No shell reads it.
        pattern: a regular expression for its number, or None for the time of a run.

    Raises:
        WorkloadError: a shell would be needed, or it cannot be known which way the number is better.
    """
    if not command:
        if pattern:
            raise WorkloadError("metric is set, and no command that prints it: set smt_eval_command too")
        return []
    argv = words(command)
    return [
        {
            "name": NAME,
            "title": os.path.basename(argv[0]),
            "argv": argv,
            "timeout": TIMEOUT,
            "metric": metric(pattern) if pattern else {**_time_of("time", "s"), "clock": "wall_seconds"},
        }
    ]


def words(command: str) -> "list[str]":
    """Return a command and its arguments as a shell would split them.

    Raises:
        WorkloadError: it cannot be split, or has what only a shell understands.
    """
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise WorkloadError(f"the command cannot be split into words: {error}") from None
    of_shell = [word for word in arguments if word in SHELL]
    if not arguments or of_shell:
        raise WorkloadError(
            f"the command has {of_shell[0]!r}, and no shell reads it: put it into sh -c '...'"
            if arguments
            else "the command is empty"
        )
    return arguments


def metric(pattern: str) -> "dict[str, t.Any]":
    """Return a metric of ``custom`` for a pattern that says by its own words what the number is.

    Raises:
        WorkloadError: it does not.
    """
    text = _ESCAPES.sub(" ", pattern)
    rate = _RATE.search(text) or _SHORT_RATE.search(text)
    time = _TIME.search(text)
    if rate and not time:
        unit = rate.group(1)
        # With a first letter as in a sentence it is a word, and otherwise it may be a unit.
        word = unit.lower() if unit[1:].islower() and len(unit) > 2 else unit
        counted = word if rate.re is _SHORT_RATE else f"{word}/s"
        return {"name": "throughput", "unit": counted, "better": "higher", "pattern": pattern}
    if time and not rate:
        return {**_time_of("response_time" if _PERCENTILE.search(text) else "time", time.group(1)), "pattern": pattern}
    raise WorkloadError(
        "it cannot be known from the pattern which way its number is better: let it have the unit, as in 'Requests/sec:"
        r" (\S+)' or '(\S+) ns/op', or declare the metric in smt_eval_custom"
    )


def _time_of(name: str, unit: str) -> "dict[str, t.Any]":
    return {"name": name, "unit": unit, "better": "lower"}
