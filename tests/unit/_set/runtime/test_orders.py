# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first state is never lost: random orders of changes, confirmations, rollbacks, reboots and other people's
changes, each with a fault at any write, on a fake kernel.

Scenario smt_orders plays such orders on a guest.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from unittest import mock

import night
import orders
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    frame as smt_frame,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from fake_host import Host
from fake_kernel import CPUS, Killed
from faults import Faults, Watchdog

ORDERS = night.number(30, 20_000)
STEPS = 7


class FakeOrderedHost(orders.OrderedHost):
    """A host with a fake kernel, in this process."""

    def __init__(self):
        shared = pathlib.Path("/dev/shm")
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None))
        self.fs = host_files.HostFs(str(self.directory))
        self.host, self.boots = Host(self.directory), 0
        self.faults = Watchdog.faults = self.host.faults = Faults()

    def end(self):
        shutil.rmtree(self.directory)

    def seen(self):
        state = self.directory / "var/lib/threadwise-smt"
        return orders.Seen(
            cpu=smt_state.read(files=self.host),
            files={
                path: self.fs.read(path) if ".wants" not in path else self.fs.status(path) is not None
                for path in persistence.PATHS
            },
            saved=self.host.saved(),
            pending=self.host.pending(),
            left=frozenset(path.name for path in state.glob("[!.]*")),
            half=tuple(map(str, self.directory.glob("**/.*"))),
        )

    def ask(self, request, fault):
        self.host.status = {"systemd-run": 1} if fault and fault[0] == "no systemd-run" else {}
        self._plan(fault)
        Watchdog.is_disarmed = False
        try:
            with self.faults.installed():
                return orders.Answer(result=self.host.ask(**request))
        except HostError as error:
            return orders.Answer(refused=str(error))
        except Killed:
            return orders.Answer(was_done=Watchdog.is_disarmed)
        finally:
            self.faults.over()

    def _plan(self, fault):
        if fault and fault[0] in ("killed", "full"):
            self.faults.plan(*fault)

    def roll_back(self, fault):
        self._plan(fault)
        with self.faults.installed():
            with contextlib.suppress(Killed):
                self.host.roll_back()
            if self.faults.is_dead:
                self.faults.another_process()
                if self.host.pending():
                    self.host.roll_back()
        self.faults.over()
        self.host.is_waiting = False

    def switch(self, cpu, up):
        with contextlib.suppress(OSError):
            self.host.write(f"{CPUS}/cpu{cpu}/online", str(int(up)))

    def reboot(self):
        lines = "\n".join(
            filter(None, (self.fs.read(path) for path in (persistence.TMPFILES_PATH, persistence.UNIT_PATH)))
        )
        shutil.rmtree(self.directory / "sys")
        self.host = Host(self.directory)
        self.host.faults = self.faults
        self.boots += 1
        self.host.boot(f"boot {self.boots}")
        for line in lines.splitlines():
            words = line.replace("'", "").split()
            with contextlib.suppress(OSError):
                if words and words[0] == "w":
                    self.host.write(words[1].lstrip("/"), words[-1])
                elif words and words[0].startswith("ExecStart="):
                    self.host.write(words[-1].lstrip("/"), words[words.index("echo") + 1])

    def frame(self):
        return json.loads(json.dumps(smt_frame.present(self.host, self.fs)))


@pytest.fixture(name="in_process", autouse=True)
def without_processes():
    with (
        mock.patch.object(smt_change.watchdog, "Watchdog", Watchdog),
        mock.patch.object(archive, "build", return_value=b"the program"),
    ):
        yield


class OnFakeKernel(orders.Order):
    """Orders on hosts with a fake kernel."""

    make = FakeOrderedHost


def test_random_orders():
    orders.play(OnFakeKernel, ORDERS, STEPS)


def test_without_room_for_another_the_snapshot_of_an_earlier_boot_stays_valid():
    order = OnFakeKernel()
    try:
        order.change(fault=None, name="off", persist="tmpfiles", waits=False)
        order.reboot()
        order.change(fault=("full", 0), name="part", persist="none", waits=False)
        order.nothing_is_lost()
    finally:
        order.teardown()


@pytest.mark.night(after=3)
@pytest.mark.parametrize("number", [2, 5, 8, 1, 3, 4, 6, 7, 9, 10, 11])
def test_a_rollback_that_is_killed_at_a_write_leaves_nothing_half_written(number):
    order = OnFakeKernel()
    try:
        order.change(fault=None, name="off", persist="none", waits=True)
        order.time_is_over(fault=("killed", number))
        order.nothing_is_lost()
    finally:
        order.teardown()
