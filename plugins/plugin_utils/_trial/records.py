# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a trial as typed objects: its design, and what each host did. They are written on the controller, and checked again when they are read."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import schema, text, trials
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import design, units

# Begins why a trial ended that was decided, and the reason of the periods that this cut.
DECIDED = "each arm is decided: "


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of the service.

    Attributes:
        name: for results.
        unit: for people, may be empty.
        better: ``higher`` or ``lower``.
        is_primary: whether the trial is about this one.
        per: the name of the metric that this one is divided by, or None.
    """

    name: str
    unit: str
    better: str
    is_primary: bool
    per: str | None


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial, as it was written down before the first switch.

    Attributes:
        run: its name.
        created: when it was written, ISO 8601 in UTC.
        arms: names, the baseline first.
        titles: arm -> its title.
        metrics: the primary one first.
        traffic: the name of the metric that says how much the service is asked to do, or None.
        guardrails: a sentence each.
        margin: the equivalence margin.
        period_seconds: length of a period.
        settle_seconds: what is not counted at the beginning of each.
        design: what was drawn.
        seed: what it was drawn from.
    """

    run: str
    created: str
    arms: tuple[str, ...]
    titles: dict[str, str]
    metrics: tuple[Metric, ...]
    traffic: str | None
    guardrails: tuple[str, ...]
    margin: float
    period_seconds: float
    settle_seconds: float
    design: design.Design
    seed: int

    @property
    def units(self) -> int:
        """How many units of evidence the whole trial has."""
        if self.design.name == design.PARALLEL:
            return len(self.design.groups)
        return sum(len(self.design.schedule[group[0]]) // len(self.arms) for group in self.design.groups)

    def document(self) -> dict[str, t.Any]:
        """Return the trial as plain JSON data."""
        drawn = self.design
        return {
            "schema": trials.SCHEMA_NAME,
            "schema_version": trials.SCHEMA_VERSION,
            "run": self.run,
            "created": self.created,
            "design": drawn.name,
            "seed": self.seed,
            "arms": [{"name": name, "title": self.titles[name]} for name in self.arms],
            "metrics": [{"name": one.name, "unit": one.unit, "better": one.better, "primary": one.is_primary, "per": one.per} for one in self.metrics],
            "traffic": self.traffic,
            "guardrails": list(self.guardrails),
            "margin": self.margin,
            "period_seconds": self.period_seconds,
            "settle_seconds": self.settle_seconds,
            "groups": [list(group) for group in drawn.groups],
            "waves": [list(wave) for wave in drawn.waves],
            "hosts": {host: {"first_period": drawn.first[host], "arms": list(arms)} for host, arms in drawn.schedule.items()},
            "left_out": drawn.left_out,
        }


def trial_of(document: t.Any) -> Trial:
    """Return a trial from its JSON data.

    Raises:
        BorderError: it is not valid; the message names the place and the reason.
    """
    trials.TRIAL.check(document)
    hosts = document["hosts"]
    grouped = [host for group in document["groups"] for host in group]
    if sorted(grouped) != sorted(hosts) or sorted(place for wave in document["waves"] for place in wave) != list(range(len(document["groups"]))):
        raise text.BorderError("groups, waves and hosts do not name each host and each group once")
    names = {one["name"] for one in document["arms"]}
    if any(not set(one["arms"]) <= names for one in hosts.values()) or len({len(one["arms"]) for one in hosts.values()}) != 1:
        raise text.BorderError("hosts: a schedule has another arm or another length than the trial")
    if sum(one["primary"] for one in document["metrics"]) != 1:
        raise text.BorderError("metrics: exactly one has to be primary")
    return Trial(
        run=document["run"],
        created=document["created"],
        arms=tuple(one["name"] for one in document["arms"]),
        titles={one["name"]: one["title"] for one in document["arms"]},
        metrics=tuple(Metric(one["name"], one["unit"], one["better"], one["primary"], one["per"]) for one in document["metrics"]),
        traffic=document["traffic"],
        guardrails=tuple(document["guardrails"]),
        margin=document["margin"],
        period_seconds=document["period_seconds"],
        settle_seconds=document["settle_seconds"],
        design=design.Design(
            document["design"],
            tuple(tuple(group) for group in document["groups"]),
            tuple(tuple(wave) for wave in document["waves"]),
            {host: tuple(one["arms"]) for host, one in hosts.items()},
            {host: one["first_period"] for host, one in hosts.items()},
            dict(document["left_out"]),
        ),
        seed=document["seed"],
    )


def lines(path: pathlib.Path, checker: schema.Checker) -> list[dict[str, t.Any]]:
    """Return the documents of a file with one a line; a last line that was not written whole is left out.

    Raises:
        BorderError: a line is not valid; the message names the file and the line.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(trials.MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    if len(content) > trials.MOST_BYTES:
        raise text.BorderError(f"{text.line(path.name, 160)}: larger than {trials.MOST_BYTES // 1024 // 1024} MiB")
    whole = content[: content.rfind(b"\n") + 1]
    found = []
    for number, line in enumerate(whole.decode("utf-8", errors="replace").splitlines(), 1):
        try:
            document = text.parse(line)
            checker.check(document)
        except text.BorderError as error:
            raise text.BorderError(f"{text.line(path.name, 160)}, line {number}: {error}") from error
        found.append(document)
    return found


def complete(periods: t.Iterable[t.Mapping[str, t.Any]]) -> list[units.Period]:
    """Return the complete periods of a host's file, with the metrics that have a value."""
    return [
        units.Period(one["period"], one["arm"], {name: metric["value"] for name, metric in one["metrics"].items() if metric["value"] is not None})
        for one in periods
        if one["complete"]
    ]


def read_trial(path: pathlib.Path) -> Trial:
    """Read ``trial.json``.

    Raises:
        BorderError: it cannot be read, or is not valid.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(trials.MOST_BYTES)
    except OSError as error:
        raise text.BorderError(f"{text.line(path.name, 160)}: cannot be read: {error.strerror}") from error
    return trial_of(text.parse(content.decode("utf-8", errors="replace")))
