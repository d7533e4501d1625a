# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each attack that has a name, beside two honest hosts: it harms nobody but the host that tries it."""

from __future__ import annotations

import functools

import arena
import gauntlet
import named
import night
import one_run
import pytest

# Alone is how it was asked for; together is how all are tried in a minute, and alone again where that did harm.
TOGETHER = not night.NIGHT


def group(one):
    """Cases that are tried in one run."""
    return one.name if one.alone or not TOGETHER else one.play.name


GROUPS = {}
for _case in named.CASES:
    GROUPS.setdefault(group(_case), []).append(_case)


@pytest.fixture(scope="session", name="found")
def _found(tmp_path_factory, recordings):
    """What the cases of a group did: {host: case}, what hosts did by their names, the cost."""

    @functools.cache
    def faults(name):
        hosts = {f"third{number}": one for number, one in enumerate(GROUPS[name])}

        def tried(directory):
            runs = gauntlet.Gauntlet(directory, recordings)
            return runs.faults(
                GROUPS[name][0].play, [arena.Host(host, one.answers(recordings)) for host, one in hosts.items()]
            )

        return hosts, *one_run.once(tmp_path_factory, f"named {name}", tried)

    return faults


@pytest.mark.parametrize("one", named.CASES, ids=str)
def test_it_harms_nobody_but_itself(one, found, figure):
    hosts, reported, cost = found(group(one))
    figure(f"named, {one.play.name}", group(one), cost)
    mine = next(host for host, that in hosts.items() if that is one)
    # Several that could not be distinguished are named together.
    wrong = [f"{names}: {line}" for names, lines in reported.items() if mine in names.split() for line in lines]
    assert not wrong, f"{one.name} (row {one.row}):\n" + "\n".join(wrong)
