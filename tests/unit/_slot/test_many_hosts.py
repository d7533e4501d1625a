# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Eight hosts that pull and two that controllers reboot, of one group, whose runs are killed at any moment: never are
two down, and nothing is taken from one that is.
"""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import rebooting
from fleetlock_server import FleetLock

NAMES = [*(f"pull{number}" for number in range(8)), "push1", "push2"]
KILLS = 20
SUPPORT = pathlib.Path(rebooting.__file__).parent


class Hosts:
    """The hosts, and the processes that are at work on them."""

    def __init__(self, place, server):
        self.place, self.server, self.processes = place, server, {}
        for name in NAMES:
            path = place / name / rebooting.BOOT
            path.parent.mkdir(parents=True)
            path.write_text("1\n")
            (place / name / "first_boot").write_text("1\n")

    def start(self, name):
        command = [sys.executable, SUPPORT / "rebooting.py", self.place / name, self.server.url, name, "db"]
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @property
    def left(self):
        return [name for name in NAMES if not (self.place / name / "done").exists()]

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("slots", "kills"),
    [(1, 8), pytest.param(1, KILLS, marks=pytest.mark.night), pytest.param(2, KILLS, marks=pytest.mark.night)],
)
def test_never_are_more_down_than_there_are_slots(tmp_path, slots, kills):
    chance = random.Random(slots)
    with FleetLock(slots).running() as server:
        hosts = Hosts(tmp_path, server)
        try:
            for name in NAMES:
                hosts.start(name)
            killed = 0
            while left := hosts.left:
                time.sleep(chance.uniform(0.05, 0.4))
                name = chance.choice(left)
                process = hosts.processes[name]
                if process.poll() is not None:
                    assert process.returncode in (0, -signal.SIGKILL), process.communicate()[0]
                    hosts.start(name)
                elif killed < kills and server.asked:
                    process.kill()
                    killed += 1
        finally:
            hosts.end()
        assert server.faults == [] and server.boots >= len(NAMES) and killed > 5
        assert server.most_down <= slots and server.holders == {"db": set()}
