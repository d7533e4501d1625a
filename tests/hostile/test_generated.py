# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers made from a seed, of many hosts at once beside two honest ones: none harms anybody else.

HOSTILE_SEED says which ones; a failure names the seed of the host that did
it.
"""

from __future__ import annotations

import os

import arena
import gauntlet
import mutate
import night
import pytest
import recorded

SEED = os.environ.get("HOSTILE_SEED", "1")
ANSWERS = night.number(40, 3000)
# How much of all is for which playbook: those that ask a host more often cost more.
SHARES = {"survey": 0.4, "compliance": 0.3, "enforce": 0.15, "eval": 0.15}
# Hosts of one run; and of so many one tells megabytes.
MAX_HOSTS = 100
LARGE_EACH = 40
# What a role asks by modules that come with Ansible goes through nothing of ours.
NOT_OURS = ("file", "sysctl")
PLAYS = {play.name: play for play in recorded.PLAYS}


def batches(name):
    """(first number, hosts) of each run of a playbook."""
    wanted = round(ANSWERS * SHARES[name])
    return [(first, min(MAX_HOSTS, wanted - first)) for first in range(0, wanted, MAX_HOSTS)]


def host(recordings, play, number):
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
            answers[nth] = source.answer(recordings.answer(play, key), large=number % LARGE_EACH == LARGE_EACH - 1)
    return arena.Host(f"seed-{seed}", answers)


@pytest.fixture(scope="session", name="runs")
def _runs(tmp_path_factory, recordings):
    return gauntlet.Gauntlet(tmp_path_factory.mktemp("generated"), recordings)


@pytest.mark.parametrize(("name", "first", "count"), [(name, *batch) for name in SHARES for batch in batches(name)])
def test_generated_answers_harm_nobody_else(name, first, count, runs, recordings, figure):
    hosts = [host(recordings, PLAYS[name], number) for number in range(first, first + count)]
    reported, cost = runs.faults(PLAYS[name], hosts, time_limit=1200)
    figure(f"generated, {name}", first, cost)
    assert not reported, "\n".join(f"{one}: {line}" for one, lines in reported.items() for line in lines)
