# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all sources of a check: what one is asked, what it answers, and which of several words on a host counts.

A word is what somebody found of a host at a time: a check, as its file has it, or a host of itself, as a metrics server
has it. The inventory says which hosts there are; a source says what is known of them.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance_report import Judged
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status

# Checks of several controllers that are about the same time: two that differ then contradict each other.
SAME_TIME = datetime.timedelta(minutes=10)
# A clock that is ahead by more is wrong: what it says would be the latest word for ever.
AHEAD = datetime.timedelta(minutes=5)
MAX_NAMED = 3
MAX_ORIGIN = 120


class SourceError(Exception):
    """A source has no answer; the message says which, why and what to do."""


class Word(t.NamedTuple):
    """What somebody found of a host.

    Attributes:
        host: its name.
        at: when (aware).
        result: what was found.
        origin: who says so, for people.
        by: the host that says so, as far as its place tells; None where a controller did, which is trusted with all.
    """

    host: str
    at: datetime.datetime
    result: Compliance
    origin: str
    by: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether it is of the host itself, or of one that is trusted with it."""
        return self.by in (None, self.host)

    @property
    def is_seen(self) -> bool:
        """Whether somebody has seen the host, and not only missed it."""
        return self.result.status.row.is_seen


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a source is asked.

    Attributes:
        hosts: of the play, by name.
        others: the other hosts of the inventory.
        now: the present time (aware).
        options: of the module.
        registered: returns what a task registered for a host.
        secret: returns the value of a variable by its name, None where it is not set.
    """

    hosts: t.Sequence[str]
    others: t.Sequence[str]
    now: datetime.datetime
    options: t.Mapping[str, t.Any]
    registered: t.Callable[[str, str], t.Any]
    secret: t.Callable[[str], t.Any]


@dataclasses.dataclass(frozen=True)
class ComplianceAnswer:
    """What a source answers.

    Attributes:
        judged: the hosts of the play.
        strangers: names that it has and the inventory has not.
        notes: what else is to be said of it, a sentence each.
    """

    judged: t.Sequence[Judged]
    strangers: t.Sequence[str] = ()
    notes: t.Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Source:
    """A source of a check.

    Attributes:
        read: asks it; raises SourceError.
    """

    read: t.Callable[[Asked], ComplianceAnswer]


def judged(
    asked: Asked,
    words: t.Iterable[Word],
    unheard: t.Callable[[str], Compliance],
    max_age: datetime.timedelta | None,
) -> list[Judged]:
    """Return the hosts of the play, each by the word that counts.

    Args:
        asked: what the source was asked.
        words: what it has, in any order and as often as it has it.
        unheard: returns the result of a host without a word.
        max_age: a word that is older is too old; None for no limit.
    """
    by_host: dict[str, list[Word]] = {host: [] for host in asked.hosts}
    for word in words:
        if word.host in by_host:
            by_host[word.host].append(word)
    return [(host, _counting(of_host, unheard(host), asked.now, max_age)) for host, of_host in sorted(by_host.items())]


def _counting(
    words: list[Word], unheard: Compliance, now: datetime.datetime, max_age: datetime.timedelta | None
) -> Compliance:
    """Return the result that counts of the words on a host. What other hosts say makes it worse, and never better: a
    host is not trusted with others.
    """
    own = [word for word in words if word.is_own]
    result = _decided(own, now, max_age) if own else unheard
    worst, since = _rank(result), max((word.at for word in own), default=None)
    others = [word for word in words if not word.is_own]
    worse = [word for word in others if _rank(word.result) <= worst]
    if worse:
        result = _decided([*own, *worse], now, max_age)
    better = [word for word in others if _rank(word.result) > worst and (since is None or word.at > since)]
    if better:
        sentence = f"{says(min(better, key=order))}, which does not count: it is another host"
        result = result.saying(sentence)
    return result


def speakers(asked: Asked, words: t.Iterable[Word]) -> list[str]:
    """Return a sentence about the hosts that speak of others of the inventory; none where there are none."""
    hosts_by: dict[str, set[str]] = {}
    known = {*asked.hosts, *asked.others}
    for word in words:
        if word.by is not None and not word.is_own and word.host in known:
            hosts_by.setdefault(word.by, set()).add(word.host)
    named = [f"{text.line(by, MAX_ORIGIN)} (of {some(sorted(hosts))})" for by, hosts in sorted(hosts_by.items())]
    more = f" and {len(named) - MAX_NAMED} more" if named[MAX_NAMED:] else ""
    return [f"Hosts that speak of others: {', '.join(named[:MAX_NAMED])}{more}."] if named else []


def _decided(words: list[Word], now: datetime.datetime, max_age: datetime.timedelta | None) -> Compliance:
    """Return the result that counts of the words on a host, at least one."""
    timely = sorted((word for word in words if word.at <= now + AHEAD), key=order)
    if not timely:
        word = min(words, key=order)
        return compliance.refused(
            f"its time of check is {compliance.stamp(word.at)} ({word.origin}), which has not come yet: set the clock"
            " of who checked it",
            **_known(word.result),
        )
    newest = timely[0]
    near = [word for word in timely if newest.at - word.at <= SAME_TIME]
    # Who could not reach a host says nothing against one who could.
    counts = next((word for word in near if word.is_seen), newest)
    result = parts.changed(counts.result, checked=compliance.stamp(counts.at))
    if max_age is not None and now - counts.at > max_age:
        return compliance.refused(
            f"its last word is of {compliance.stamp(counts.at)} ({counts.origin}), more than {_hours(max_age)} ago; it"
            f" was {counts.result.status.words} then",
            Status.SILENT,
            checked=result.checked,
            **_known(result),
        )
    return result.saying(_contradiction(counts, near))


def _rank(result: Compliance) -> int:
    """Return how much attention a result needs: 0 is the worst."""
    return result.status.row.order


def order(word: Word) -> tuple[t.Any, ...]:
    """Return what orders the words on a host: the latest first, and of the same time the worse one, so that the order
    in which they were read decides nothing.
    """
    return -word.at.timestamp(), _rank(word.result), word.origin, word.result.sentence


def _contradiction(counts: Word, near: t.Sequence[Word]) -> str:
    """Return a sentence about words of about the same time that say something else; empty without any."""
    others = {word.result.status: word for word in reversed(near) if word.result.status != counts.result.status}
    if not others:
        return ""
    return f"two checks contradict each other: {'; '.join(map(says, (counts, *sorted(others.values(), key=order))))}"


def says(word: Word) -> str:
    """Return who says what when."""
    return f"{word.origin} says {word.result.status.words} at {compliance.stamp(word.at)}"


def _known(result: Compliance) -> dict[str, t.Any]:
    """Return what stays true of a host that is not judged."""
    return {"wanted": result.wanted, "scope": result.scope, "hardware_class": result.hardware_class}


def _hours(span: datetime.timedelta) -> str:
    return f"{span.total_seconds() / 3600:g} h"


def strangers(asked: Asked, names: t.Iterable[str]) -> list[str]:
    """Return the names that no host of the inventory has, sorted."""
    return sorted(set(names).difference(asked.hosts, asked.others))


def some(names: t.Sequence[str]) -> str:
    """Return some of many names."""
    shown = ", ".join(text.line(name, MAX_ORIGIN) for name in names[:MAX_NAMED])
    return shown + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")
