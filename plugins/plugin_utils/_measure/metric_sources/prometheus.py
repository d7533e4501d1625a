# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Prometheus server: queries by its HTTP API, and sentences for what it says instead of a number.

The API: https://prometheus.io/docs/prometheus/latest/querying/api/. Thanos, Mimir and VictoriaMetrics have it too.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import functools
import itertools
import json
import re
import statistics
import typing as t
import urllib.parse

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import (
    base,
    lineage,
    promql,
    server,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.server import SourceError

MAX_NAMES = 3
# Of the names that a server has, so many are compared with one that it does not know, and no longer ones.
MAX_COMPARED = 500
MAX_NAME = 200
# As results keep them: more is no real rate or time, and sums stay finite.
MAX_VALUE = 1e100
# Of a server of several stores, of which one is lost, a sum would be too small without a word: Thanos and
# VictoriaMetrics fail instead. Others ignore these.
_WHOLE = {"partial_response": "false", "deny_partial_response": "1"}
_REFUSED = "refuses access (status {status}): check {variable}token, or the user and the password"
# A server that reads its log after a start, and what proxies say while nothing behind them answers.
_NOT_NOW = "answers no queries now (status {status}): it is starting, or what is in front of it does not reach it"
_TOO_LONG = "refuses a query for its length (status {status}): make it shorter, by a recording rule for example"
_OF_STATUS = {401: _REFUSED, 403: _REFUSED}
_WITHOUT_JSON = {
    413: _TOO_LONG,
    414: _TOO_LONG,
    429: "refuses so many queries (status {status}): give fewer with a longer smt_trial_check",
    502: _NOT_NOW,
    503: _NOT_NOW,
    504: _NOT_NOW,
}

_Sample = tuple[float, t.Annotated[str, parts.at_most(100)]]
_Text = t.Annotated[str, parts.at_most(4096)]
# From Prometheus 3 on, a label may have any name, such as service.name.
_Labels = t.Annotated[dict[parts.Key, _Text], parts.at_most(100)]


class _Sent(parts.Part, frozen=True, forbid_unknown_fields=False):
    """What a server sends: what else it adds is nobody's concern here."""


class _Data(_Sent, frozen=True, rename="camel"):
    result_type: t.Annotated[str, parts.at_most(20)]
    result: list[t.Any]


class _Series(_Sent, frozen=True):
    metric: _Labels


class _Vector(_Series, frozen=True):
    value: _Sample


class _Matrix(_Series, frozen=True):
    values: t.Annotated[list[_Sample], parts.at_most(11_000)]


_One = t.TypeVar("_One", bound=_Series)


class _Rules(_Sent, frozen=True, rename="camel"):
    """Of a server's rules only what makes series counts, and alerts do not."""

    groups: t.Annotated[list[dict[str, t.Any]], parts.at_most(100_000)]
    group_next_token: t.Any = None


class _Group(_Sent, frozen=True):
    rules: list[t.Any]
    interval: t.Annotated[float, parts.msgspec.Meta(gt=0, le=schema.MAX_SECONDS)]


class _Rule(_Sent, frozen=True):
    name: _Text
    query: t.Annotated[str, parts.at_most(promql.MAX_CHARACTERS)]
    labels: _Labels | None = None


# Samples of this time say how far apart a series has them; twice as long as Prometheus lets a series go without one.
INTERVAL_MINUTES = 10
MAX_JOBS = 50
MAX_SERIES_NAMES = 1000
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MATCHER = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*=~?\s*\"((?:[^\"\\]|\\.)*)\"")


class Prometheus:
    """A server.

    Args:
        access: how to reach it.
        seconds: the time limit of an answer.
        most: bytes of an answer.
    """

    def __init__(
        self, access: server.Access, seconds: float = server.ANSWER_SECONDS, most: int = server.MAX_BYTES
    ) -> None:
        self._server = server.Server(access, seconds, most)

    def at_most(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Limit the time of all queries within a block together."""
        return self._server.at_most(seconds)

    def instant(self, query: str) -> float:
        """Return the number that a query gives now.

        Raises:
            SourceError: it gives none, or the server does not answer.
        """
        with self._server.border():
            data = self._asked("query", {"query": query}, _Data)
            is_scalar = data.result_type == "scalar"
            alone = {"metric": {}, "value": data.result}
            sample = self._made(alone, _Vector) if is_scalar else self._single(query, data, "vector", _Vector)
            written = sample.value[1]
            value = _number(written)
            if value is None:
                raise self._server.error(
                    f" gives {self._server.line(written, 40)} for {_readable(query)}, which is no number to judge by"
                )
            return value

    def every(self, query: str, most: int) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the number of each series that a query gives now; a number that is none is left out.

        Args:
            query: the query.
            most: of the series.

        Raises:
            SourceError: the server does not answer, or there are more.
        """
        with self._server.border():
            data = self._asked("query", {"query": query}, _Data)
            if data.result_type != "vector":
                sent = self._server.line(data.result_type, 40)
                raise self._server.error(
                    f" answers {_readable(query)} with a {sent}: it has to be a number for each series"
                )
            if len(data.result) > most:
                raise self._server.error(f" has {len(data.result)} series for {_readable(query)}, more than {most}")
            return [
                (series.metric, value)
                for series in self._made(data.result, list[_Vector])
                if (value := _number(series.value[1])) is not None
            ]

    def over(self, query: str, begin: datetime.datetime, end: datetime.datetime, step: float) -> base.Series:
        """Return the points of a query between two moments.

        Args:
            query: the query.
            begin: the first moment.
            end: the last moment.
            step: seconds between two points; more where there would be too many.

        Raises:
            SourceError: there is no series, or the server does not answer.
        """
        asked = base.Asked(begin, end, step)
        with self._server.border():
            data = self._asked("query_range", {"query": query, **asked.fields}, _Data)
            values = self._single(query, data, "matrix", _Matrix).values
            # VictoriaMetrics moves a range to multiples of the step; a point before the range is one of the arm before.
            points = {
                moment: number
                for moment, value in values
                if asked.has(moment) and (number := _number(value)) is not None
            }
            return base.Series(tuple(sorted(points.items())), asked.expected)

    def rules(self) -> dict[str, tuple[lineage.Rule, ...]]:
        """Return the recording rules of the server, by the names of their series.

        Raises:
            SourceError: it does not show them, or not all of them.
        """
        with self._server.border():
            data = self._asked("rules", {"type": "record"}, _Rules)
            if data.group_next_token:
                raise self._server.error(" shows only a part of its rules")
            rules: dict[str, tuple[lineage.Rule, ...]] = {}
            for group in data.groups:
                # Not every server leaves out alerts when it is asked to.
                recording = [
                    entry
                    for entry in group.get("rules") or ()
                    if isinstance(entry, dict) and entry.get("type") == "recording"
                ]
                for entry in recording:
                    seconds, sent = self._made(group, _Group).interval, self._made(entry, _Rule)
                    rule = lineage.Rule(sent.name, sent.query, sent.labels or {}, seconds)
                    rules[rule.name] = (*rules.get(rule.name, ()), rule)
            if not data.groups and not self._is_prometheus():
                raise self._server.error(" shows no rules, and only Prometheus itself is known to have none then")
            return rules

    def _is_prometheus(self) -> bool:
        """Return whether the server says of its build what Prometheus and Thanos do:
        others answer with no rules where they do not know them.
        """
        build = self._asked("status/buildinfo", {}, dict[str, t.Any])
        return "revision" in build and "application" not in build

    @functools.cached_property
    def _lineage(self) -> lineage.Lineage:
        return lineage.Lineage(self)

    def looks_back(self, query: str, declared: float | None) -> base.Path:
        """Return how far back a query counts; see `base.Server`."""
        return self._lineage.looks_back(query, declared)

    def names(self, selector: promql.Selector) -> list[str]:
        """Return the names of the series that a selector has now.

        Raises:
            SourceError: the server does not answer, or there are too many.
        """
        with self._server.border():
            result = self._asked("query", {"query": f"count by (__name__) ({selector.written})"}, _Data).result
            found = [self._made(series, _Vector) for series in result[: MAX_SERIES_NAMES + 1]]
            if len(result) > MAX_SERIES_NAMES:
                raise self._server.error(f" has series of {len(result)} names for {_readable(selector.written)}")
            return [series.metric.get("__name__", "") for series in found]

    def interval(self, selector: promql.Selector) -> float | None:
        """Return the seconds between two samples of the series that a selector has, as the samples say;
        None where there are no series.

        The longest of all jobs counts. What a server is configured to do would leave out series that reach it in other
        ways, and few show it.

        Raises:
            SourceError: the server does not answer, or there are too few samples to say.
        """
        with self._server.border():
            query = f"topk by (job) (1, count_over_time({selector.written}[{INTERVAL_MINUTES}m]))"
            of_jobs = self._asked("query", {"query": query}, _Data).result
            if len(of_jobs) > MAX_JOBS:
                raise self._server.error(f" has series of {len(of_jobs)} jobs for {_readable(selector.written)}")
            return max((self._of_one(selector, self._made(series, _Vector)) for series in of_jobs), default=None)

    def _of_one(self, selector: promql.Selector, vector: _Vector) -> float:
        """Return the seconds between two samples of one series."""
        labels = [f"{_quoted_label(label)}={_quoted(value)}" for label, value in vector.metric.items()]
        head, _brace, tail = selector.written.partition("{")
        inside = tail.rstrip().removesuffix("}").rstrip().removesuffix(",")
        exact = f"{head}{{{', '.join(filter(None, [inside, *labels]))}}}"
        result = self._asked("query", {"query": f"{exact}[{INTERVAL_MINUTES}m]"}, _Data).result
        gaps: list[float] = []
        for series in result[:1]:
            samples = (
                [*(series.get("values") or ()), *(series.get("histograms") or ())] if isinstance(series, dict) else []
            )
            made = self._made({"metric": {}, "values": [(moment, "") for moment, *_value in samples]}, _Matrix)
            moments = sorted({moment for moment, _none in made.values})
            gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
        if not gaps:
            raise self._server.error(
                f" has fewer than two samples of {_readable(selector.written)} in {INTERVAL_MINUTES} min: how far apart"
                " they are is not known yet"
            )
        # Scrapes are some milliseconds late or early.
        median = statistics.median(gaps)
        return round(median, 1) or median

    def _single(self, query: str, data: _Data, name: str, kind: type[_One]) -> _One:
        """Return the only series of an answer."""
        if data.result_type != name:
            sent = self._server.line(data.result_type, 40)
            raise self._server.error(
                f" answers {_readable(query)} with a {sent}: a metric has to be one number for each host"
            )
        if not data.result:
            raise self._server.error(f" has no series for {_readable(query)}{self._other_names(query)}")
        found: list[_One] = []
        for series in data.result[:2]:
            if (
                isinstance(series, dict)
                and not {"value", "values"} & set(series)
                and {"histogram", "histograms"} & set(series)
            ):
                raise self._server.error(
                    f" gives a histogram for {_readable(query)}: ask for one number of it, such as"
                    " histogram_quantile(0.99, ...)"
                )
            found.append(self._made(series, kind))
        if len(found) > 1:
            first, second = found[0].metric, found[1].metric
            differ = sorted(label for label in {*first, *second} if first.get(label) != second.get(label))
            raise self._server.error(
                f" has {len(data.result)} series for {_readable(query)}, which differ by"
                f" {self._server.line(', '.join(differ), 100) or 'nothing'}: a metric has to be one number for each"
                " host, so sum them or name one"
            )
        return found[0]

    def _other_names(self, query: str) -> str:
        """Return which values the labels of a query have on this server that are like those it names."""
        for label, value in _MATCHER.findall(query):
            if label == "__name__":
                continue
            try:
                known = [
                    candidate
                    for candidate in self._asked(f"label/{urllib.parse.quote(label, safe='')}/values", {}, list[t.Any])
                    if isinstance(candidate, str)
                ]
            except SourceError:
                return ""
            if value not in known:
                names = ", ".join(self._server.line(name, 80) for name in _nearest(value, known)) or "none at all"
                return f": it knows no {label} {text.line(value, 80)!r}; there is {names}"
        return ": it was not scraped lately, or has another name there"

    def _asked(self, path: str, wanted: dict[str, str], kind: type[parts.Made]) -> parts.Made:
        """Return the data of an answer."""
        status, sent, body = self._server.ask(f"api/v1/{path}", {**wanted, **_WHOLE})
        problem = _OF_STATUS.get(status)
        if problem is None and 300 <= status < 400:
            problem = (
                "redirects elsewhere (status {status}), which is not followed: give the address that it redirects to"
            )
        if problem is None and "json" not in sent:
            shown = self._server.line(sent, 60) or "nothing"
            problem = _WITHOUT_JSON.get(
                status,
                f"answers with {shown} and status {{status}} instead of JSON: is it the address of a Prometheus"
                " server?",
            )
        if problem is not None:
            raise self._server.error(
                " " + problem.replace("{status}", str(status)).replace("{variable}", self._server.variable)
            )
        try:
            document = text.parse(body.decode("utf-8", errors="replace"))
        except text.BorderError as error:
            raise self._server.error(f": its answer cannot be read: {self._server.line(error, 200)}") from None
        if not isinstance(document, dict) or document.get("status") != "success":
            why = document.get("error") if isinstance(document, dict) else None
            raise self._server.error(
                f" refuses the query (status {status}): {self._server.line(why or 'it does not say why', 300)}"
            )
        if document.get("isPartial") is True:
            raise self._server.error(" answers with a part of its numbers: one of its stores is lost")
        data = document.get("data")
        if data is None:
            raise self._server.error(": its answer has no data")
        return self._made(data, kind)

    def _made(self, data: t.Any, kind: type[parts.Made]) -> parts.Made:
        try:
            return parts.converted(data, kind)
        except text.BorderError as error:
            # It quotes the beginning of a value, in which the whole of a credential is not found any more.
            why = "" if self._server.is_repeated(json.dumps(data)) else f": {text.line(error, 200)}"
            raise self._server.error(f": its answer is not that of a Prometheus server{why}") from None


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _quoted_label(label: str) -> str:
    return label if _LABEL.fullmatch(label) else _quoted(label)


def _number(written: str) -> float | None:
    """Return a finite number, None for what is none."""
    try:
        value = float(written)
    except ValueError:
        return None
    return value if abs(value) <= MAX_VALUE else None


def _nearest(value: str, known: t.Sequence[str]) -> list[str]:
    """Return the names that are most like one, of any number of names of any length."""

    def likeness(name: str) -> tuple[bool, int, str]:
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(value, name))
        return value not in name, -len(list(same)), name

    likely = sorted((name for name in known if len(name) <= MAX_NAME), key=likeness)[:MAX_COMPARED]
    near = difflib.get_close_matches(value[:MAX_NAME], likely, MAX_NAMES, 0.4)
    return near or likely[:MAX_NAMES]


def _readable(query: str) -> str:
    return text.line(query, 200)


class Query(base.MetricSource):
    """A query to the Prometheus server."""

    key, settings = "query", ("query",)
    about = "PromQL, one number for this host"

    def connect(self, get: t.Callable[[str], t.Any]) -> Prometheus:
        """Return the server."""
        return Prometheus(server.access(get))


SOURCES = (Query(),)
