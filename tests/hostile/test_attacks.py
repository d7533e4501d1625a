# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compromised hosts beside two honest ones, many in one run, and fewer where that did harm."""

import dataclasses
import functools
import os
import shutil

import arena
import judge
import mutate
import named
import night
import pytest
import recorded
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import FEW_HOSTS

# A host that is evaluated waits most of the time; the others keep the controller busy.
FORKS = {"eval": 25, "eval of a sample": 10}
# Where most of many hosts do harm, naming each of them would take hours.
MAX_RUNS = 24
SEED = os.environ.get("HOSTILE_SEED", "1")
# How many generated answers are for which playbook at night: those that ask a host more often cost more.
ANSWERS = {"survey": 1200, "compliance": 900, "enforce": 450, "eval": 450}
# Hosts of one run.
MAX_HOSTS = 100
# What a role asks by modules that come with Ansible goes through nothing of ours.
NOT_OURS = ("file", "sysctl")
PLAYS = {play.name: play for play in recorded.PLAYS}


class Gauntlet:
    """Runs of one test."""

    def __init__(self, directory, recordings):
        self.directory, self.recordings, self.runs = directory, recordings, 0
        self.baseline = functools.cache(self._baseline)

    def faults(self, play, hosts, time_limit=300):
        """What each of the hosts did to a play, by its name; those that harmed nobody are left out."""
        if len(hosts) > play.forks:
            play = dataclasses.replace(play, forks=FORKS.get(play.name, play.forks))
        found = self._try(play, hosts, time_limit)
        if not found:
            return {}
        if len(hosts) == 1 or self.runs >= MAX_RUNS:
            return {" or ".join(host.name for host in hosts): found}
        # Halves first: a few hosts among many are found in a few runs.
        middle = len(hosts) // 2
        halves = [self.faults(play, half, time_limit) for half in (hosts[:middle], hosts[middle:])]
        return {**halves[0], **halves[1]} or {" with ".join(host.name for host in hosts): found}

    def _try(self, play, hosts, time_limit):
        many = play.playbook == recorded.EVALUATION.playbook and len(hosts) + len(arena.HONEST) > FEW_HOSTS
        baseline = self.baseline(play.name, many)
        run = self._play(play, hosts, baseline, time_limit)
        # What was not tried has harmed nobody.
        delivered = sum(one.split(" ")[1] == "mutants" for lines in run.logs.values() for one in lines)
        assert delivered, f"no answer reached the controller: {run.text()[-2000:]}"
        found = judge.faults(run, baseline)
        if not found:
            shutil.rmtree(run.directory)
        return found

    def _baseline(self, name, many):
        """The play with the honest hosts alone; beside further honest ones where others are many."""
        further = [arena.Host(f"further{number}") for number in range(FEW_HOSTS)] if many else ()
        run = self._play({**PLAYS, named.SAMPLE.name: named.SAMPLE}[name], further, None, 600)
        assert all(run.logs[host] for host in arena.HONEST), f"the honest hosts were not asked: {run.text()[-2000:]}"
        return run

    def _play(self, play, hosts, baseline, time_limit):
        self.runs += 1
        honest = [arena.Host(name) for name in arena.HONEST]
        # What is done once for all is done with the variables of the first host. The honest ones come first where a
        # rollout stops at who fails, and where a sample takes the first of a class.
        honest_first = baseline is None or play.playbook == recorded.ENFORCE.playbook
        order = [*honest, *hosts] if honest_first else [*hosts, *honest]
        place = self.directory / f"{self.runs:04d}-{play.name.replace(' ', '-')}"
        return arena.play(place, self.recordings.folder(play), play, order, baseline, time_limit)


def by_day():
    """All of a play in one run; of a survey the first ones, which go the same way as those of a check."""
    for play, most in ((recorded.SURVEY, 8), (recorded.COMPLIANCE, None)):
        of_play = [one for one in named.CASES if one.play is play and not one.alone and not one.large]
        yield pytest.param(of_play[:most], id=play.name)


@pytest.mark.parametrize(
    "cases", [*by_day(), *(pytest.param([one], id=str(one), marks=pytest.mark.night) for one in named.CASES)]
)
def test_an_attack_harms_nobody_but_the_host_that_tries_it(cases, tmp_path, recordings):
    hosts = [arena.Host(f"third{number}", one.answers(recordings)) for number, one in enumerate(cases)]
    reported = Gauntlet(tmp_path, recordings).faults(cases[0].play, hosts)
    # Several that could not be distinguished are named together.
    tried = {f"third{number}": one.name for number, one in enumerate(cases)}
    wrong = {"; ".join(tried.get(name, name) for name in names.split()): lines for names, lines in reported.items()}
    assert not wrong, "\n".join(f"{names}: {line}" for names, lines in wrong.items() for line in lines)


def generated(recordings, play, number):
    """The host of a number: it answers one call in another way, or several."""
    seed = f"{SEED}-{play.name}-{number}"
    source = mutate.Mutator(seed)
    keys = recordings.keys(play)
    answers = {}
    for place in source.some([place for place, key in enumerate(keys) if key not in NOT_OURS]):
        key = keys[place]
        # The one of several calls, where a module is asked again.
        nth = f"{key}.{keys[: place + 1].count(key)}" if keys.count(key) > 1 else key
        if key == "look":
            answers["look.1"] = source.text_answer(recordings.text(play, key))
        else:
            answers[nth] = source.answer(recordings.answer(play, key))
    return arena.Host(f"seed-{seed}", answers)


BATCHES = [(name, first) for name, count in ANSWERS.items() for first in range(0, count, MAX_HOSTS)]


@pytest.mark.parametrize(
    ("name", "first"),
    [pytest.param(*one, marks=() if one == ("compliance", 0) else pytest.mark.night) for one in BATCHES],
)
def test_generated_answers_harm_nobody_else(name, first, tmp_path, recordings):
    numbers = range(first, first + night.number(5, min(MAX_HOSTS, ANSWERS[name] - first)))
    hosts = [generated(recordings, PLAYS[name], number) for number in numbers]
    reported = Gauntlet(tmp_path, recordings).faults(PLAYS[name], hosts, time_limit=1200)
    assert not reported, "\n".join(f"{one}: {line}" for one, lines in reported.items() for line in lines)
