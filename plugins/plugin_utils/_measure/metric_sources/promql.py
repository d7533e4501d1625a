# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""PromQL, as far as it says which series a query counts, and from how far back.

The grammar: https://prometheus.io/docs/prometheus/latest/querying/basics/. What is not in it, such as an extension of
another server, is refused rather than guessed. A query may be one of a server's rules, which can be anything: its
length and its nesting are limited.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text

MAX_CHARACTERS = 100_000
MAX_DEPTH = 100

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)*(?:
    (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
    |(?P<range>\[[^\[\]]*\])
    |(?P<number>(?:[0-9]|\.[0-9])[0-9a-zA-Z_.]*)
    |(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<sign>[=!<>]=|[=!]~|[-+*/%^<>=(){},@])
    |(?P<end>$))""",
    re.VERBOSE,
)
_DURATION = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,12})?(?:ms|[smhdwy]))+")
_PART = re.compile(r"([0-9.]+)(ms|[smhdwy])")
_PLAIN = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_OPERATORS = frozenset({*"+-*/%^<>", "==", "!=", "<=", ">=", "and", "or", "unless", "atan2"})
_MATCHES = frozenset({"=", "!=", "=~", "!~"})
# Some servers give these a range of their own where the query has none.
_OF_RANGES = re.compile(
    r"\w+_over_time|i?rate|i?delta|increase|i?deriv|changes|resets|predict_linear|holt_winters|double_exponential_smoothing|\w*rollup\w*|lag|lifetime"
    r"|\w+_(?:pure|prometheus)"
)
# A value of a query over these depends on how long an alert has lasted.
_OF_ALERTS = ("ALERTS", "ALERTS_FOR_STATE")


class QueryError(Exception):
    """A query is not followed; the message quotes it, and says where and why."""


class Selector(t.NamedTuple):
    """What selects series.

    Attributes:
        written: as it stands in the query, without range and offset.
        name: of the series; None where a pattern or the labels alone say it.
        equal: label -> the value that it has to have.
        unlike: label -> a value that it may not have.
    """

    written: str
    name: str | None
    equal: t.Mapping[str, str]
    unlike: t.Mapping[str, str]


class Use(t.NamedTuple):
    """A selector in a query.

    Attributes:
        selector: the selector.
        seconds: the ranges and offsets around it together; schema.MAX_SECONDS for one moment that is the same in each
            period.
        has_range: whether a range is what its value is now.
    """

    selector: Selector
    seconds: float = 0.0
    has_range: bool = False


def uses(query: str) -> list[Use]:
    """Return the selectors of a query.

    Raises:
        QueryError: it is not PromQL as it is known here.
    """
    if len(query) > MAX_CHARACTERS:
        raise QueryError(f"{text.line(query, 200)} has {len(query)} characters, more than {MAX_CHARACTERS}")
    return _Reader(query).whole()


class _Reader:
    """Reads a query from its beginning to its end."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._tokens: list[tuple[str, str, int, int]] = []
        place = 0
        while not self._tokens or self._tokens[-1][0] != "end":
            match = _TOKEN.match(query, place)
            if match is None:
                raise self._error(query[place : place + 20].split()[:1] or ["its end"], place)
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind], match.start(kind), match.end()))
            place = match.end()
        self._place = 0

    def whole(self) -> list[Use]:
        used = self._expression(0)
        self._expect("")
        return used

    @property
    def _kind(self) -> str:
        return self._tokens[self._place][0]

    @property
    def _next(self) -> str:
        """The next token; words of the language are in any case."""
        kind, written, _start, _end = self._tokens[self._place]
        return written.lower() if kind == "word" else written if kind in ("sign", "end") else f"\0{kind}"

    def _take(self) -> str:
        self._place += 1
        return self._tokens[self._place - 1][1]

    def _took(self, *wanted: str) -> bool:
        """Take the next token if it is one of these."""
        if self._next not in wanted:
            return False
        self._place += 1
        return True

    def _expect(self, *wanted: str) -> None:
        if not self._took(*wanted):
            raise self._error([self._tokens[self._place][1] or "its end"], self._tokens[self._place][2])

    def _error(self, at: t.Sequence[str], place: int) -> QueryError:
        return QueryError(
            f"{text.line(self._query, 200)} is not followed from '{text.line(at[0], 40)}' on, at character {place + 1}"
        )

    def _expression(self, depth: int) -> list[Use]:
        if depth > MAX_DEPTH:
            raise QueryError(f"{text.line(self._query, 200)} is nested more than {MAX_DEPTH} times")
        used: list[Use] = []
        while True:
            while self._took("+", "-"):
                pass
            used += self._after(self._operand(depth))
            if self._next not in _OPERATORS:
                return used
            self._take()
            self._took("bool")
            if self._took("on", "ignoring"):
                self._labels()
                if self._took("group_left", "group_right") and self._next == "(":
                    self._labels()

    def _operand(self, depth: int) -> list[Use]:
        if self._kind in ("number", "string"):
            self._take()
            return []
        if self._took("("):
            used = self._expression(depth + 1)
            self._expect(")")
            return used
        start = self._tokens[self._place][2]
        if self._kind != "word":
            return [Use(self._selector(start, None))]
        word = self._take()
        if self._next in ("by", "without"):
            self._take()
            self._labels()
            return self._arguments(word, depth)
        if self._next == "(":
            used = self._arguments(word, depth)
            if self._took("by", "without"):
                self._labels()
            return used
        return [] if word.lower() in ("inf", "nan") else [Use(self._selector(start, word))]

    def _arguments(self, function: str, depth: int) -> list[Use]:
        self._expect("(")
        used: list[Use] = []
        while not self._took(")"):
            used += self._expression(depth + 1)
            if self._next != ")":
                self._expect(",")
        if used and _OF_RANGES.fullmatch(function) and not any(use.has_range for use in used):
            raise QueryError(
                f"{text.line(self._query, 200)} has {text.line(function, 60)} without a range, which a server chooses:"
                " write it, such as [1m]"
            )
        return [use._replace(has_range=False) for use in used]

    def _labels(self) -> None:
        self._expect("(")
        while not self._took(")"):
            if self._kind not in ("word", "string"):
                self._expect(")")
            self._take()
            if self._next != ")":
                self._expect(",")

    def _selector(self, start: int, name: str | None) -> Selector:
        equal: dict[str, str] = {}
        unlike: dict[str, str] = {}
        if name is None or self._next == "{":
            self._expect("{")
            while not self._took("}"):
                label, sign, value = self._word_or_string(), "=", None
                if label is not None and self._next in (",", "}"):
                    # From Prometheus 3 on: {"a name"}.
                    label, value = "__name__", label
                else:
                    sign = self._take()
                    if sign not in _MATCHES or self._kind != "string":
                        self._place -= 1
                        self._expect("=")
                    value = self._word_or_string()
                if label is not None and value is not None and sign in ("=", "!="):
                    (equal if sign == "=" else unlike)[label] = value
                if self._next != "}":
                    self._expect(",")
        name = name or equal.pop("__name__", None)
        if name in _OF_ALERTS:
            raise QueryError(
                f"{text.line(self._query, 200)} is about {name}, which depends on how long alerts have lasted"
            )
        return Selector(self._query[start : self._tokens[self._place - 1][3]], name, equal, unlike)

    def _word_or_string(self) -> str | None:
        """Take the name or value of a label; None for one with escapes, which only the server reads."""
        if self._kind not in ("word", "string"):
            self._expect("}")
        kind, written = self._kind, self._take()
        if kind == "word":
            return written
        return None if "\\" in written and written[0] != "`" else written[1:-1]

    def _after(self, used: list[Use]) -> list[Use]:
        """Take what may follow an operand: ranges, offsets and moments."""
        while True:
            if self._kind == "range":
                written = self._take()[1:-1]
                seconds = self._seconds(written.partition(":")[0].strip(), written)
                used = [use._replace(seconds=use.seconds + seconds, has_range=True) for use in used]
            elif self._took("offset"):
                is_ahead = self._took("-")
                written = self._take()
                # One that looks ahead finds nothing newer than the last sample, while the series grows.
                seconds = 0.0 * self._seconds(written, written) if is_ahead else self._seconds(written, written)
                used = [use._replace(seconds=use.seconds + seconds) for use in used]
            elif self._took("@"):
                # These are the ends of what is asked for: the part of a period that counts.
                if self._took("start", "end"):
                    self._labels()
                else:
                    self._take_moment()
                    used = [use._replace(seconds=float(schema.MAX_SECONDS)) for use in used]
            else:
                return used

    def _take_moment(self) -> None:
        self._took("-", "+")
        if self._kind != "number":
            self._expect("start")
        self._take()

    def _seconds(self, written: str, shown: str) -> float:
        if _PLAIN.fullmatch(written):
            return float(written)
        if not _DURATION.fullmatch(written):
            raise QueryError(
                f"{text.line(self._query, 200)} has {text.line(shown, 60)} where a duration such as 5m is known here"
            )
        return sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(written))
