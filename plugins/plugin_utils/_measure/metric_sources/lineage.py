# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far back a query counts: its own ranges and offsets, those of the recording rules that make its series,
their evaluations, and the scrapes.

What a server says of its rules may be anything: they may be made of each other without an end, or be many.
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import promql
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.base import (
    ENDLESS,
    NotKnownError,
    Path,
    span,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.server import SourceError

MAX_DEPTH = 30
MAX_RULES = 500
MAX_SELECTORS = 30
# What Prometheus keeps for rules: no exporter is to have it in a name.
RULE_SIGN = ":"


class Rule(t.NamedTuple):
    """A recording rule.

    Attributes:
        name: of the series that it makes.
        query: what it makes them from.
        labels: those that it gives them.
        seconds: between two evaluations.
    """

    name: str
    query: str
    labels: t.Mapping[str, str]
    seconds: float

    def can_make(self, selector: promql.Selector) -> bool:
        """Return whether series of this rule can be among those of a selector that names them."""
        fits = all(self.labels.get(label, value) == value for label, value in selector.equal.items())
        return fits and not any(self.labels.get(label) == value for label, value in selector.unlike.items())


class Server(t.Protocol):
    """Who is asked for what queries are made of."""

    def rules(self) -> t.Mapping[str, tuple[Rule, ...]]:
        """Return the recording rules, by the names of their series."""

    def names(self, selector: promql.Selector) -> list[str]:
        """Return the names of the series that a selector has now."""

    def interval(self, selector: promql.Selector) -> float | None:
        """Return the seconds between two samples of the series that a selector has; None where there are none."""


class Lineage:
    """What the queries of one host are made of.

    Args:
        source: the server; it is asked for its rules once.
    """

    def __init__(self, source: Server) -> None:
        self._source = source
        self._rules: t.Mapping[str, tuple[Rule, ...]] | None = None
        self._of_rules: dict[int, Path] = {}
        self._of_selectors: dict[str, float] = {}

    def looks_back(self, query: str, declared: float | None = None) -> Path:
        """Return how far back a query counts.

        Args:
            query: the query.
            declared: what the user says of it, in seconds; None for nothing. It counts where the server does not say,
                and where it is more.

        Raises:
            NotKnownError: neither the server nor the user says it.
        """
        try:
            path = self._of_query(query, None, ())
        except (promql.QueryError, SourceError, NotKnownError) as error:
            if declared is None:
                raise NotKnownError(str(error)) from None
            return Path(max(declared, _own(query)), (f"its looks_back says so, because {error}",))
        return path if declared is None or declared <= path.seconds else Path(declared, ("its looks_back says so",))

    def _of_query(self, query: str, made: Rule | None, above: tuple[int, ...]) -> Path:
        """Return how far back a query counts, of a rule or the user's own."""
        paths = [Path(0.0, _ranges(made, 0.0))]
        for use in promql.uses(query):
            below = self._of_selector(use.selector, above)
            paths.append(Path(min(use.seconds + below.seconds, ENDLESS), (*_ranges(made, use.seconds), *below.said)))
        return max(paths, key=lambda path: path.seconds)

    def _of_selector(self, selector: promql.Selector, above: tuple[int, ...]) -> Path:
        if self._rules is None:
            self._rules = self._source.rules()
        names = [selector.name] if selector.name is not None else self._source.names(selector)
        rules = [rule for name in names for rule in self._rules.get(name, ()) if rule.can_make(selector)]
        made = {rule.name for rule in rules}
        elsewhere = [name for name in names if RULE_SIGN in name and name not in made]
        if elsewhere:
            raise NotKnownError(
                f"{text.line(elsewhere[0], 100)} has the name of a rule's series, and no rule of the metrics server"
                " makes it"
            )
        paths = [self._of_rule(rule, above) for rule in rules]
        if not made.issuperset(names):
            paths.append(self._of_scrapes(selector))
        return max(paths, key=lambda path: path.seconds, default=Path())

    def _of_rule(self, rule: Rule, above: tuple[int, ...]) -> Path:
        name = text.line(rule.name, 100)
        if id(rule) in above:
            return Path(ENDLESS, (f"the rule {name} is made of its own values",))
        if len(above) >= MAX_DEPTH or len(self._of_rules) >= MAX_RULES:
            raise NotKnownError(f"{name} is made of more rules than {MAX_DEPTH} over each other, or {MAX_RULES} in all")
        if id(rule) not in self._of_rules:
            self._of_rules[id(rule)] = self._of_query(rule.query, rule, (*above, id(rule)))
        below = self._of_rules[id(rule)]
        # A rule that is evaluated before another one of its group sees what that one made two evaluations before, as of
        # Prometheus 3.
        return Path(min(below.seconds + rule.seconds * (2 if above else 1), ENDLESS), below.said)

    def _of_scrapes(self, selector: promql.Selector) -> Path:
        """Return the age of what is scraped: a sample stands for the time since the one before,
        which some functions and servers count as well.
        """
        if selector.written not in self._of_selectors:
            if len(self._of_selectors) >= MAX_SELECTORS:
                raise NotKnownError(f"it is made of the series of more than {MAX_SELECTORS} selectors")
            self._of_selectors[selector.written] = self._source.interval(selector) or 0.0
        seconds = self._of_selectors[selector.written]
        return Path(
            seconds, (f"{text.line(selector.written, 100)} has a sample every {span(seconds)}",) if seconds else ()
        )


def _own(query: str) -> float:
    """Return how far back a query looks by itself, as far as it is understood."""
    try:
        return max((use.seconds for use in promql.uses(query)), default=0.0)
    except promql.QueryError:
        return 0.0


def _ranges(made: Rule | None, seconds: float) -> tuple[str, ...]:
    if made is None:
        return (f"its query looks back {span(seconds)}",) if seconds else ()
    clause = f"the rule {text.line(made.name, 100)} is evaluated every {span(made.seconds)}"
    return (f"{clause} and looks back {span(seconds)}" if seconds else clause,)
