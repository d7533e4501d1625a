# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the cores of many hosts are used, in sentences and a table; what smt_usage answered on each."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.room import Use
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.registered import why
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.usage import UsageAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import terminal_table, wording

MAX_TEXT = 200
# How much room is left, as :func:`cells` says it.
ROOM_COLUMNS = ("usage", "of its work", "room for", "not for")
COLUMNS = ("host", *ROOM_COLUMNS, "siblings busy together", "SMT off changes")
# The fields of an answer that say how much room is left, and how that is known.
KEPT = ("seconds", "method", "source", "guessed", "use")
# Units in a sentence, and their least share of CPU time beside others.
NAMED, NOTABLE = 3, 0.05
HOURS, MINUTE = 24, 60
NO_MINUTES = "less than a minute"
NOT_NAMED = "tasks whose unit is not known"
HIDDEN = (
    "This is a virtual machine that sees no siblings: whether its CPUs share cores, and so how much room is left,"
    " cannot be seen from here."
)


@dataclasses.dataclass(frozen=True)
class HostLook:
    """One host's look.

    Attributes:
        name: in the inventory.
        reason: why there is no look; None where there is one.
        answer: of smt_usage; None without a look.
        yields: which workloads the yield is of; empty for a guess.
        open_to: vulnerabilities that the kernel calls open because siblings are online.
        is_without_siblings: whether it is a virtual machine of which siblings are neither online nor offline: its
            hypervisor need not show which of its CPUs share a core.
    """

    name: str
    reason: str | None
    answer: UsageAnswer | None
    yields: tuple[str, ...] = ()
    open_to: tuple[str, ...] = ()
    is_without_siblings: bool = False

    @property
    def has_siblings(self) -> bool:
        """Whether a core has several CPUs online."""
        return self.answer is not None and any(len(core.cpus) > 1 for core in self.answer.cores)

    @property
    def hides_siblings(self) -> bool:
        """Whether its CPUs may share cores of the real machine without its knowing."""
        # Of a partition of POWER the processor says what it uses of its cores.
        return (
            self.is_without_siblings
            and not self.has_siblings
            and self.answer is not None
            and self.answer.source != look.PURR
        )

    @functools.cached_property
    def use(self) -> Use | None:
        """The use of the host, None where it is not known."""
        if self.answer is None or self.answer.use is None:
            return None
        seen = self.answer.use
        return Use(
            seen.usage,
            Span(*seen.busy),
            Span(*seen.several),
            Span(*seen.work),
            None if seen.room is None else Span(*seen.room),
            seen.by_usage,
            seen.bound,
            Span(*seen.gain),
        )


def host(name: str, answer: t.Mapping[str, t.Any], yields: t.Iterable[str], facts: Facts | None = None) -> HostLook:
    """Return a host's look from what its task registered.

    Args:
        name: of the host.
        answer: what the task registered.
        yields: the workloads whose yield was measured.
        facts: of the host, if they are known.
    """
    if not {"use", "cores", "units", "pairs"} <= set(answer):
        return HostLook(name, why(answer, MAX_TEXT) or "it was not looked at: an earlier task failed", None)
    try:
        seen = parts.converted(parts.untagged(answer), UsageAnswer)
    except text.BorderError as error:
        return HostLook(name, f"its answer is none of smt_usage: {error}", None)
    if facts is None:
        return HostLook(name, None, seen, tuple(yields))
    return HostLook(name, None, seen, tuple(yields), facts.open_by_smt(), facts.is_guest_without_siblings)


def if_looked(name: str, answer: t.Mapping[str, t.Any], facts: Facts | None = None) -> HostLook | None:
    """Return a host's look where there was to be one: its task was not skipped, and nothing before it failed.

    Args:
        name: of the host.
        answer: what the task registered.
        facts: as for :func:`host`.
    """
    return None if not answer or answer.get("skipped") is True else host(name, answer, [], facts)


def sentences(host: HostLook) -> list[str]:
    """Say what a look found, the most important first."""
    use, answer = host.use, host.answer
    if use is None or answer is None:
        return [f"How its CPUs are used is not known: {unknown(host)}."]
    if host.hides_siblings:
        return [f"CPU usage is {wording.percent(use.usage)}.", HIDDEN]
    said = [wording.room_left(use), _of_smt(host, use)]
    if not host.has_siblings:
        return said
    said += [*_of_waiting(answer, use), *_of_units(answer), *_of_security(host, answer)]
    said.append(_of_yield(host, answer))
    if answer.source_reason:
        said.append(f"The processor's own counters were not used: {answer.source_reason}.")
    if answer.source == look.ONE_THREAD:
        said.append("How long siblings were busy together is what the processor counted of the whole time.")
    elif answer.method != look.SWITCHES:
        why = answer.reason or "too few windows were taken"
        said.append(f"When siblings were busy together was not seen, so the limits are those of its counters: {why}.")
    if answer.method == look.SWITCHES and answer.cut:
        said.append(f"{answer.cut} of {answer.windows} windows ended early, because a buffer was full.")
    return said


def _of_yield(host: HostLook, answer: UsageAnswer) -> str:
    """Say how it is known what second threads give."""
    if host.yields:
        return f"What second threads give is as measured with {wording.named(host.yields)}."
    if answer.source == look.PURR:
        return "How much of its work it does is what the processor counts of its cores (PURR)."
    return "What second threads give is a guess: 1.0 to 1.3 (no evaluation of this class)."


def _of_smt(host: HostLook, use: Use) -> str:
    if not host.has_siblings:
        return "No two siblings are online, so no work shares a core."
    together = f"Siblings were busy together for {wording.span(use.several)} of the time of a core"
    most = wording.percent(use.bound)
    if use.bound <= wording.MARGIN:
        return f"{together}: under this load SMT off cannot change what the host does by more than {most}."
    return f"{together}: under this load SMT off can change what the host does by up to {most}; an evaluation tells."


def _of_units(answer: UsageAnswer) -> list[str]:
    """Say who runs beside others' work."""
    notable = [
        (unit.apart / unit.ran, unit)
        for unit in answer.units
        if unit.ran > 0 and unit.unit is not None and unit.apart / unit.ran >= NOTABLE
    ]
    first = sorted(notable, key=lambda pair: -pair[1].apart)[:NAMED]
    if not first:
        return []
    each = [f"{unit_title(unit.unit)} {wording.percent(share)}" for share, unit in first]
    return [f"So much of their CPU time units spent beside a sibling with other work: {', '.join(each)}."]


def _of_waiting(answer: UsageAnswer, use: Use) -> list[str]:
    """Say whose answers can become faster with SMT off: of all busy threads each does its part of what their core
    does.
    """
    least = max(0.0, 1 - use.gain.low / max(len(core.cpus) for core in answer.cores))
    notable = [
        (unit.beside / unit.ran, unit)
        for unit in answer.units
        if unit.ran > 0 and unit.unit is not None and unit.beside / unit.ran * least >= NOTABLE
    ]
    return [
        f"{unit_title(unit.unit)} spent {wording.percent(share)} of its CPU time beside a busy sibling: with SMT off"
        f" the same work can take up to {wording.percent(share * least)} less of it, where no CPU is missing then."
        for share, unit in sorted(notable, key=lambda pair: -pair[1].beside)[:NAMED]
    ]


def _of_security(host: HostLook, answer: UsageAnswer) -> list[str]:
    """Say what is open across threads, and whose work shared cores most."""
    if not host.open_to:
        return []
    begun = f"{wording.join(list(host.open_to))} {'is' if len(host.open_to) == 1 else 'are'} open across threads here"
    if answer.method != look.SWITCHES:
        return [f"{begun}."]
    named = [pair for pair in answer.pairs if None not in pair.units]
    unknown = _minutes(sum(pair.seconds for pair in answer.pairs if pair not in named))
    shared = []
    if named:
        first, second = map(unit_title, named[0].units)
        shared.append(f"{first} and {second} share cores for {_minutes(named[0].seconds)} of a day like this")
    if unknown != NO_MINUTES:
        shared.append(f"{NOT_NAMED} share cores, with each other or with units, for {unknown} of it")
    return [f"{begun}, and {'; '.join(shared) or 'no two units shared a core in the windows'}."]


def _minutes(seconds_an_hour: float) -> str:
    """Return how many minutes of a day seconds of an hour are."""
    minutes = seconds_an_hour * HOURS / MINUTE
    return f"{minutes:.0f} minutes" if minutes >= 1.5 else "a minute" if minutes >= 0.5 else NO_MINUTES


def unit_title(unit: str | None) -> str:
    """Return a unit for people; it is what a host says."""
    return text.line(unit or "", MAX_TEXT) or NOT_NAMED


def described(host: HostLook) -> dict[str, t.Any]:
    """Return a look as plain data, within the document of something else."""
    return {
        "reason": None if host.use and not host.hides_siblings else unknown(host),
        **{name: answered(host, name) for name in KEPT},
    }


def answered(host: HostLook, name: str) -> t.Any:
    """Return a field of an answer for a document, which says nothing of the use of a host that hides siblings."""
    if host.reason is None and host.hides_siblings and name in ("use", "use_reason"):
        return None if name == "use" else HIDDEN.removesuffix(".")
    return None if host.answer is None else parts.plain(getattr(host.answer, name))


# The terminal


def table(hosts: t.Sequence[HostLook]) -> list[str]:
    """Format the hosts as lines of a table, and a last line with counts."""
    return terminal_table.of_hosts(COLUMNS, map(_cells, ordered(hosts)), summary(hosts))


def ordered(hosts: t.Sequence[HostLook]) -> list[HostLook]:
    """Return those without a look first, then those with the least room."""
    return sorted(hosts, key=lambda host: (host.use is not None, -(host.use.work[1] if host.use else 0), host.name))


def _cells(host: HostLook) -> tuple[str, ...]:
    use = host.use
    if use is None:
        return (host.name, *cells(host), "-", unknown(host))
    if host.hides_siblings:
        return (host.name, *cells(host), "-", "it sees no siblings")
    return (host.name, *cells(host), wording.span(use.several), f"at most {wording.percent(use.bound)}")


def cells(host: HostLook | None) -> tuple[str, ...]:
    """Return how much room is left, a text for each of `ROOM_COLUMNS`; None stands for a host without a look."""
    use = host and host.use
    if not host or not use:
        return ("-",) * len(ROOM_COLUMNS)
    if host.hides_siblings:
        return (wording.percent(use.usage), *("-",) * (len(ROOM_COLUMNS) - 1))
    by_usage = (
        f"{wording.percent(use.by_usage or 0.0)} more" if use.room is not None and wording.room_differs(use) else "-"
    )
    return (wording.percent(use.usage), wording.span(use.work), wording.room(use), by_usage)


def unknown(host: HostLook) -> str:
    """Return why it is not known how a host is used."""
    if host.reason is None and host.hides_siblings:
        return HIDDEN.removesuffix(".")
    return host.reason or (host.answer and host.answer.use_reason) or "no CPU was counted"


def summary(hosts: t.Sequence[HostLook]) -> str:
    """Describe all hosts in one sentence."""
    seen = [host for host in hosts if host.use is not None]
    looked = [host.use for host in seen if host.use is not None and not host.hides_siblings]
    of_siblings = [host for host in seen if host.has_siblings]
    # Second threads that give more than their share leave more room.
    other = [(use.by_usage or 0.0) < use.room.low for use in looked if use.room and wording.room_differs(use)]
    counts = [
        (len(looked) - len(of_siblings), "without siblings online"),
        (len(seen) - len(looked), "virtual and without siblings in sight"),
        (
            sum(1 for host in of_siblings if host.use and host.use.bound <= wording.MARGIN),
            "on which SMT cannot matter under this load",
        ),
        (sum(1 for more in other if not more), "with less room than usage says"),
        (sum(1 for more in other if more), "with more room than usage says"),
        (len(hosts) - len(seen), "without a look"),
    ]
    parts = ", ".join(f"{count} {words}" for count, words in counts if count)
    return f"{wording.counted(len(hosts), 'host')}: {parts or 'all as usage says'}."
