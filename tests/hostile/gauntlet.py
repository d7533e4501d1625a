# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many compromised hosts in few runs: all at once beside the honest ones, and each alone where that did harm,
to name the one that did it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import typing as t

import arena
import judge
import recorded
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import FEW_HOSTS

# A host that is evaluated waits most of the time; the others keep the controller busy.
FORKS = {"eval": 25, "eval of a sample": 10}
# Where most of many hosts do harm, naming each of them would take hours.
MAX_RUNS = 24


@dataclasses.dataclass
class Cost:
    """What a trial took: answers that were not the real ones,
    and the most of any of its runs beyond the honest hosts alone.
    """

    answers: int = 0
    memory: int = 0
    seconds: float = 0.0
    runs: int = 0


class Gauntlet:
    """Runs of one session.

    Args:
        directory: of the runs, an empty one. What did harm is left there, with what was printed and each host's
            answers.
    """

    def __init__(self, directory: pathlib.Path, recordings: recorded.Recordings):
        self.directory = directory
        self.recordings = recordings
        self._baselines: dict[t.Any, arena.Run] = {}
        self._number = 0

    def faults(
        self, play: arena.Play, hosts: t.Sequence[arena.Host], time_limit: float = 300
    ) -> tuple[dict[str, list[str]], Cost]:
        """What each of the hosts did to a play, by its name, and what it cost;
        those that harmed nobody are left out.
        """
        cost = Cost()
        if len(hosts) > play.forks:
            play = dataclasses.replace(play, forks=FORKS.get(play.name, play.forks))
        return self._distinguished(play, hosts, time_limit, cost), cost

    def _distinguished(self, play, hosts, time_limit, cost):
        found = self._try(play, hosts, time_limit, cost)
        if not found:
            return {}
        if len(hosts) == 1 or cost.runs >= MAX_RUNS:
            return {" or ".join(host.name for host in hosts): found}
        # Halves first: a few hosts among many are found in a few runs.
        middle = len(hosts) // 2
        halves = [self._distinguished(play, half, time_limit, cost) for half in (hosts[:middle], hosts[middle:])]
        return {**halves[0], **halves[1]} or {" with ".join(host.name for host in hosts): found}

    def _try(self, play, hosts, time_limit, cost):
        baseline = self.baseline(play, len(hosts))
        run = self._play(play, hosts, baseline, time_limit)
        # What was not tried has harmed nobody.
        assert run.delivered or not any(host.answers for host in hosts), (
            f"no answer reached the controller: {run.text()[-2000:]}"
        )
        found = judge.faults(run, baseline)
        cost.runs += 1
        cost.answers = max(cost.answers, run.delivered)
        cost.memory = max(cost.memory, run.memory - baseline.memory)
        cost.seconds = max(cost.seconds, run.seconds - baseline.seconds)
        if not found:
            shutil.rmtree(run.directory)
        return found

    def baseline(self, play: arena.Play, others: int = 1) -> arena.Run:
        """The play with the honest hosts alone; beside further honest ones where others are many,
        since each host then gets fewer lines.
        """
        many = play.playbook == recorded.EVALUATION.playbook and others + len(arena.HONEST) > FEW_HOSTS
        if (play.name, many) not in self._baselines:
            further = [arena.Host(f"further{number}") for number in range(FEW_HOSTS)] if many else ()
            run = self._play(play, further, None, 600)
            assert all(run.logs[name] for name in arena.HONEST), (
                f"the honest hosts were not asked: {run.text()[-2000:]}"
            )
            self._baselines[play.name, many] = run
        return self._baselines[play.name, many]

    def _play(self, play, hosts, baseline, time_limit):
        self._number += 1
        honest = [arena.Host(name) for name in arena.HONEST]
        # What is done once for all is done with the variables of the first host. Of a rollout the honest ones come
        # first: it stops where one fails. So they do among honest ones only: a sample takes the first of a class.
        order = (
            [*honest, *hosts] if baseline is None or play.playbook == recorded.ENFORCE.playbook else [*hosts, *honest]
        )
        return arena.play(
            self.directory / f"{self._number:04d}-{play.name.replace(' ', '-')}",
            self.recordings.folder(play),
            play,
            order,
            baseline,
            time_limit,
        )
