# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that pull and those that controllers reboot, of one group, whose runs are killed at any moment: never are more
down than there are slots, and nothing is taken from one that is.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import night
import pytest
import rebooting
from fleetlock_server import FleetLock

NAMES = [f"host{number}" for number in range(night.number(4, 10))]
KILLS = night.number(3, 20)


@pytest.mark.night(after=1)
@pytest.mark.parametrize("slots", [1, 2])
def test_never_are_more_down_than_there_are_slots(tmp_path, slots):
    chance, killed, processes = random.Random(slots), 0, {}
    with FleetLock(slots).running() as server:

        def start(name):
            command = [sys.executable, rebooting.__file__, tmp_path / name, server.url, name, "db"]
            processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        for name in NAMES:
            path = tmp_path / name / rebooting.BOOT
            path.parent.mkdir(parents=True)
            path.write_text("1\n")
            (tmp_path / name / "first_boot").write_text("1\n")
            start(name)
        try:
            while left := [name for name in NAMES if not (tmp_path / name / "done").exists()]:
                time.sleep(chance.uniform(0.05, 0.4))
                name = chance.choice(left)
                process = processes[name]
                if process.poll() is not None:
                    assert process.returncode in (0, -signal.SIGKILL), process.communicate()[0]
                    start(name)
                elif killed < KILLS and server.asked:
                    process.kill()
                    killed += 1
        finally:
            for process in processes.values():
                process.kill()
                process.communicate()
        assert server.faults == [] and server.boots >= len(NAMES) and killed
        assert server.most_down <= slots and server.holders == {"db": set()}
