# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials whose hosts have followed their schedule, written by the collection's own code."""

import datetime
import hashlib
import random

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import trial as trial_page
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import directory, looking

ARMS = ("smt_on", "smt_off")
BEGIN = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
PERIOD = 300


def moment(seconds):
    return (BEGIN + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def of_design(drawn, titles, metrics, traffic=None, guardrails=(), period=300.0, settle=60.0):
    """Return a trial of what was drawn."""
    return records.Trial(
        run="october",
        created=moment(0),
        compared=tuple(records.Arm(*arm) for arm in titles.items()),
        metrics=metrics,
        traffic=traffic,
        guardrails=guardrails,
        margin=0.01,
        period_seconds=period,
        settle_seconds=settle,
        seed=7,
        **records.of_design(drawn),
    )


def begun(path, hosts=("web1", "web2", "web3", "web4")):
    """Write the design of a trial of latency and traffic; return its directory and the trial."""
    members = [design.Member(name, "x", float(number)) for number, name in enumerate(hosts)]
    drawn = design.draw(design.SWITCHBACK, members, design.Wanted(ARMS, 24, 0, len(hosts), 7))
    metrics = (records.Metric("p99", "s", "lower", True, None), records.Metric("traffic", "1/s", "higher", False, None))
    titles = {"smt_on": "SMT on", "smt_off": "SMT off"}
    trial = of_design(drawn, titles, metrics, "traffic", ("errors above 0.01",), PERIOD)
    files = directory.TrialDirectory(path)
    files.create(records.written(trial, 1))
    return files, trial


def followed(
    path,
    hosts=("web1", "web2", "web3", "web4"),
    effect=0.2,
    reason="the guardrail errors was breached: above 0.01 (0.5)",
):
    """Write such a trial, in which the last host left early for a reason.

    Returns: its directory, trial, periods, ends and looks.
    """
    files, trial = begun(path, hosts)
    source = random.Random(3)
    parts = {host: looking.HostFiles(files, trial, host, lambda _line: None) for host in hosts}
    for number in range(24):
        for host, part in parts.items():
            is_last, arm = host == hosts[-1], trial.design.schedule[host][number]
            if not (is_last and number >= 9) and not files.ended():
                part.period(record(number, arm, effect, source, is_last and number == 8, reason))
    for host, part in parts.items():
        at, why = (9, reason) if host == hosts[-1] else (24, files.ended())
        part.ended(
            records.End(host=host, ended=moment(at * PERIOD), reason=why, restored=True, before="0-3", after="0-3")
        )
    seen = looking.known(files, trial)
    return files, trial, seen.periods, seen.ends, looking.looks_of(files)


def record(number, arm, effect=0.0, source=random, is_cut=False, reason=None):
    """The record of a period."""
    start = number * PERIOD
    latency = 0.1 * (1 + effect * (arm == "smt_off")) * source.uniform(0.95, 1.05)
    traffic = 200 * source.uniform(0.8, 1.2)
    times = [float(at) for at in range(0, PERIOD - 60, 15)]
    known = {"p99": latency, "traffic": traffic}
    series = {name: tuple((at, value * source.uniform(0.9, 1.1)) for at in times) for name, value in known.items()}
    return records.Period(
        number=number,
        arm=arm,
        started=moment(start),
        counted_from=moment(start + 60),
        ended=moment(start + PERIOD),
        complete=not is_cut,
        reason=reason if is_cut else None,
        metrics={} if is_cut else {name: records.Reading(value, 16, 16, None) for name, value in known.items()},
        series={} if is_cut else series,
        events=(records.Event(moment(start), "switched", arm),),
        block=0,
    )


def page(path, **options):
    """Write such a trial and its page; return the page's path."""
    files, trial, periods, ends, looks = followed(path, **options)
    target = files.path / "index.html"
    target.write_text(trial_page.render(trial, periods, ends, looks), encoding="utf-8")
    return target


def digest(files):
    """The digest of a trial's design, as the task that wrote it returned it."""
    return hashlib.sha256((files.path / "trial.json").read_bytes()).hexdigest()
