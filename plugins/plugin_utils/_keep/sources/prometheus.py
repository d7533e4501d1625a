# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts say of themselves, as a metrics server has it: one server is asked, and no host.

What a server has is a name and a time. A series is of whoever wrote the file that was scraped; it stays for minutes
after its end, and a file of a host that does nothing any more stays for ever. So the time in the sample counts. Whose
it is says the server, by the ``instance`` of the target, or where that is no name of the inventory the file of a pull.
"""

from __future__ import annotations

import collections
import datetime
import functools
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import metrics as names
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.credentials import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import BY_NAME, Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import base
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources.base import (
    Asked,
    ComplianceAnswer,
    Source,
    SourceError,
    Word,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import prometheus, server

# A host that pulls each hour, at a minute that differs by fifteen, may miss one pull.
MAX_AGE_HOURS = 3.0
# So far back a host is looked for that says nothing any more. Steps of an hour take a server seconds for 10,000 hosts.
KNOWN, STEP = "7d", "1h"
KNOWN_WORDS = "7 days"
MAX_SERIES = 500_000
# Of 10,000 hosts an answer has about 6 MiB.
MAX_BYTES = 256 * 1024 * 1024
SECONDS = 60.0
# A target is scraped once a minute or so: until then what it said before a pull is no contradiction.
SCRAPED = datetime.timedelta(minutes=5)
# Of the calendar, in seconds since 1970.
_TIMES = (0, 4e9)
# The label of a file becomes the second of these where the server's configuration has one of its name (honor_labels).
HOST, EXPORTED_HOST = "host", "exported_host"
_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):[0-9]{1,5}")
_BOOLEANS = {"true": True, "false": False}

Labels = t.Mapping[str, str]
# What is scraped: job and instance.
Target = tuple[str, str]
Sample = tuple[dict[str, str], float]


class _Exporter(t.NamedTuple):
    """Of which machine a sample is: the target, and the name in the file."""

    target: Target
    says: str


def _exporter(labels: Labels) -> _Exporter:
    says = labels.get(EXPORTED_HOST) or labels.get(HOST) or ""
    return _Exporter((labels.get("job", ""), labels.get("instance", "")), says)


class Names:
    """The names of hosts in the inventory, from the labels of their series.

    Args:
        known: names of the inventory.
        label: the label that has them; None for what the file itself says.
        given: names of the inventory by the values of that label, as the user gives them.
    """

    def __init__(self, known: t.Iterable[str], label: str | None, given: t.Mapping[str, str]) -> None:
        self._known, self._label, self._given = frozenset(known), label, given

    @property
    def is_of_file(self) -> bool:
        """Whether a name is in the file itself, and not one that the server gives to a target."""
        return self._label in (None, HOST, EXPORTED_HOST)

    def host_of(self, labels: Labels) -> str:
        """Return the name of a host, empty where there is none."""
        return self.named(labels.get(self._label, "") if self._label else _exporter(labels).says)

    def by_server(self, target: Target) -> str:
        """Return the host of the inventory that a target is by its instance, empty where that does not tell."""
        name = self.named(target[1])
        return name if name in self._known else ""

    def named(self, value: str) -> str:
        """Return the name of a host from the value of a label."""
        port = _PORT.fullmatch(value)
        without = port[1].strip("[]") if port else value
        for address in (value, without):
            if address in self._given:
                return self._given[address]
        return value if value in self._known else without


class Heard:
    """What a server has: who said what when.

    Args:
        times: samples of the time of each status.
        pulls: samples of the time of each pull, which a host writes about itself.
        alive: those of them that the server has now.
        which: the names.
        now: the present time (aware).
    """

    def __init__(
        self,
        times: t.Iterable[Sample],
        pulls: t.Iterable[Sample],
        alive: t.Iterable[Sample],
        which: Names,
        now: datetime.datetime,
    ) -> None:
        self._which, self._now = which, now
        self.odd: list[str] = []
        self._claimed: set[str] = set()
        # The name that each target has now, and since when.
        self._runs: dict[_Exporter, float] = {}
        for labels, value in pulls:
            exporter = _exporter(labels)
            self._runs[exporter] = max(value, self._runs.get(exporter, value))
        self._present: dict[Target, tuple[bool, bool, float, str]] = {}
        self._alive = {_exporter(labels): value for labels, value in alive}
        self._names = collections.Counter(exporter.target for exporter in self._alive)
        for exporter, run in self._runs.items():
            is_by_server = which.named(exporter.says) == which.by_server(exporter.target)
            ranked = (exporter in self._alive, is_by_server, run, exporter.says)
            self._present[exporter.target] = max(ranked, self._present.get(exporter.target, ranked))
        # Former name -> the target, and what it calls itself now.
        self.renamed: dict[str, tuple[Target, str]] = {}
        self.words = self._words(times)

    @functools.cached_property
    def several(self) -> dict[str, list[str]]:
        """Names of machines that are scraped as several targets, and these."""
        targets_of: dict[str, list[str]] = {}
        for exporter in self._alive:
            if self._is_present(exporter):
                targets_of.setdefault(exporter.says, []).append(_target_text(exporter.target))
        return {
            says: sorted(targets)
            for says, targets in sorted(targets_of.items())
            if len(targets) > 1 and says not in self._claimed
        }

    def _is_present(self, exporter: _Exporter) -> bool:
        return exporter.target in self._present and self._present[exporter.target][-1] == exporter.says

    def _is_itself(self, exporter: _Exporter, name: str) -> bool:
        """Return whether a target is this host. The server says it where it knows the target by a name; otherwise the
        target itself, as long as it has one name: a second file of a host can have any.
        """
        by_server = self._which.by_server(exporter.target)
        return by_server == name if by_server else self._names[exporter.target] < 2

    def _words(self, times: t.Iterable[Sample]) -> list[Word]:
        """Return one word of each host about itself, and one of each other target about it."""
        own: dict[str, dict[_Exporter, Word]] = {}
        others: dict[tuple[str, Target], Word] = {}
        for labels, value in times:
            exporter, name = _exporter(labels), self._which.host_of(labels)
            word = self._word(name, value, labels, exporter)
            if word is None:
                continue
            is_present = exporter in self._runs and self._is_present(exporter)
            if is_present and (not self._which.is_of_file or self._is_itself(exporter, name)):
                self._keep(own.setdefault(name, {}), exporter, word._replace(by=name))
            elif self._which.is_of_file and exporter in self._runs and not is_present and exporter not in self._alive:
                self.renamed[name] = (exporter.target, self._present[exporter.target][-1])
            elif self._which.is_of_file:
                # A controller's file has many hosts, and its target is none of them.
                self._keep(others, (name, exporter.target), word)
        return [*(word for _key, word in sorted(others.items())), *map(self._own, own.values())]

    def _word(self, name: str, value: float, labels: Labels, exporter: _Exporter) -> Word | None:
        result = _result(labels)
        if not name or result is None or not _TIMES[0] < value < _TIMES[1]:
            self.odd.append(text.line(name or _target_text(exporter.target), base.MAX_ORIGIN))
            return None
        by = self._which.by_server(exporter.target) or _target_text(exporter.target)
        return Word(
            name, datetime.datetime.fromtimestamp(value, datetime.UTC), result, _target_text(exporter.target), by
        )

    def _own(self, words: t.Mapping[_Exporter, Word]) -> Word:
        """Return what a host says of itself, or that several machines say they are this host."""
        latest, *before = sorted(words.values(), key=self._order)
        claims = [word for exporter, word in words.items() if exporter in self._alive]
        differ = len({word.result.status for word in claims}) > 1
        runs = {self._alive[exporter] for exporter in words if exporter in self._alive}
        # Two files of one machine have the time of one pull, but for a target that was not scraped since the last one.
        if len(runs) > 1 and (differ or self._now.timestamp() - max(runs) >= SCRAPED.total_seconds()):
            self._claimed.update(exporter.says for exporter in words)
            answers = base.some([base.says(word) for word in sorted(claims, key=self._order)])
            sentence = (
                f"{len(claims)} machines have this name: {answers}; give each the name that it has in the inventory"
            )
            return latest._replace(result=compliance.refused(sentence)) if differ else _with(latest, sentence)
        other = next((word for word in before if word.result.status != latest.result.status), None)
        return _with(latest, f"{base.says(other)} under this name") if other else latest

    def _order(self, word: Word) -> tuple[t.Any, ...]:
        """Return what orders words, those last whose time has not come yet."""
        return word.at > self._now + base.AHEAD, *base.order(word)

    def _keep(self, kept: dict[t.Any, Word], key: t.Any, word: Word) -> None:
        """Keep the word that counts of one origin: after a change of a label a server has two series for a while."""
        kept[key] = min(kept.get(key, word), word, key=self._order)


def _with(word: Word, sentence: str) -> Word:
    """Return a word with another sentence."""
    return word._replace(result=word.result.saying(sentence))


def _target_text(target: Target) -> str:
    return text.line(target[1] or target[0] or "a series without instance", base.MAX_ORIGIN)


def _result(labels: Labels) -> Compliance | None:
    """Return what a series says that a check found; None where it says no status that there is."""
    status, scope = BY_NAME.get(labels.get("status", "")), labels.get("scope")
    if status is None or not status.row.is_asked:
        return None
    found = Compliance(
        status=status,
        sentence=text.line(labels.get("sentence", ""), compliance.MAX_TEXT),
        wanted=text.line(labels.get("wanted", ""), base.MAX_ORIGIN) or None,
        hardware_class=text.line(labels.get("hardware_class", ""), base.MAX_ORIGIN) or None,
        scope=scope if scope in policy.SCOPES else None,
        reboot_pending=_BOOLEANS.get(labels.get("reboot_pending", "")),
    )
    states = {name: BY_NAME.get(labels.get(name, "")) for name in compliance.ASPECTS}
    of_aspects = {name: state for name, state in states.items() if state in compliance.OF_ASPECTS}
    return parts.changed(found, **{name: compliance.Aspect(state, ()) for name, state in of_aspects.items()})


def _heard(asked: Asked, source: prometheus.Prometheus, hours: float) -> Heard:
    """Ask the server; what is older than hosts may be only where some host is missing.

    Raises:
        server.SourceError: it does not answer as it should.
    """
    options = asked.options
    which = Names(
        [*asked.hosts, *asked.others],
        options["label"],
        {str(name): str(host) for name, host in (options["names"] or {}).items()},
    )
    span = f"[{max(1, round(hours * 3600))}s]"
    times, pulls = (
        source.every(f"last_over_time({name}{span})", MAX_SERIES) for name in (names.STATUS_TIME, names.PULL_RUN)
    )
    alive = source.every(names.PULL_RUN, MAX_SERIES)
    heard = Heard(times, pulls, alive, which, asked.now)
    if {word.host for word in heard.words if word.is_own}.issuperset(asked.hosts):
        return heard
    # Of 10,000 hosts all but a few were in the first answer.
    more = [
        source.every(f"last_over_time({name}[{KNOWN}:{STEP}]) unless last_over_time({name}{span})", MAX_SERIES)
        for name in (names.STATUS_TIME, names.PULL_RUN)
    ]
    return Heard([*times, *more[0]], [*pulls, *more[1]], alive, which, asked.now) if any(more) else heard


def _read(asked: Asked) -> ComplianceAnswer:
    hours = MAX_AGE_HOURS if asked.options["max_age"] is None else asked.options["max_age"]
    try:
        source = prometheus.Prometheus(server.access(asked.secret, variables.OF_COMPLIANCE), SECONDS, MAX_BYTES)
        heard = _heard(asked, source, hours)
    except server.SourceError as error:
        raise SourceError(str(error)) from None
    if not heard.words:
        raise SourceError(
            f"the metrics server has no series of {names.STATUS_TIME}: hosts write it by smt_pull, and a controller in"
            " smt_compliance.prom; see that node_exporter reads these files (--collector.textfile.directory)"
        )
    strangers = base.strangers(asked, (*(word.host for word in heard.words), *heard.renamed))
    near = {_short(name): name for name in reversed(strangers)}
    return ComplianceAnswer(
        base.judged(asked, heard.words, lambda host: _unheard(host, heard, near), datetime.timedelta(hours=hours)),
        strangers,
        [*_notes(heard), *base.speakers(asked, heard.words)],
    )


def _unheard(host: str, heard: Heard, near: t.Mapping[str, str]) -> Compliance:
    """Return the result of a host of which the server has no word."""
    if host in heard.renamed:
        target, name = heard.renamed[host]
        why = f"{_target_text(target)}, which had this name, calls itself {text.line(name, base.MAX_ORIGIN)} now"
    else:
        like = near.get(_short(host))
        hint = f"; it knows {text.line(like, base.MAX_ORIGIN)}" if like else ""
        why = f"the metrics server has no word of it within {KNOWN_WORDS}{hint}"
    return compliance.refused(why, Status.UNKNOWN_TO_SERVER)


def _short(name: str) -> str:
    """Return the first part of a domain name; of an address all."""
    return name if name.replace(".", "").isdigit() else name.partition(".")[0].lower()


def _notes(heard: Heard) -> list[str]:
    """Return what is to be said of the server beside hosts."""
    renamed = [
        f"{text.line(old, base.MAX_ORIGIN)} is {text.line(new, base.MAX_ORIGIN)} now"
        for old, (_target, new) in sorted(heard.renamed.items())
    ]
    several = [f"{text.line(says, base.MAX_ORIGIN)} ({', '.join(targets)})" for says, targets in heard.several.items()]
    notes = {
        "Renamed": renamed,
        "Scraped as several targets": several,
        "Series whose host, status or time cannot be read": sorted(set(heard.odd)),
    }
    return [f"{what}: {base.some(listed)}." for what, listed in notes.items() if listed]


SOURCE = Source(_read)
