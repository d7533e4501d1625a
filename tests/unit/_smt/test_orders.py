# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first state is never lost: random orders of changes, confirmations, rollbacks, reboots and other people's
changes, each with a fault at any write.

The model knows three things of a host: its first state, the state before a change that is not confirmed, and what it is
to be after a boot. After each step the host is held against it. ``ORDERS`` says how many orders are tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from unittest import mock

import hypothesis
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    change as smt_change,
    frame as smt_frame,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._smt.at_boot import persistence
from fake_host import Host
from fake_kernel import CPUS, Killed
from faults import Faults, Watchdog
from hypothesis import stateful, strategies

ORDERS = int(os.environ.get("ORDERS", "150"))
STEPS = 7
# What may be left on a host that was never changed, or is back in its first state.
LEFT = {"topology.json", "seen-cores.json", "watchdog.log"}
CHANGES = {
    "off": {"state": "disabled"},
    "on": {"state": "enabled"},
    "two": {"threads": 2},
    "part": {"state": "disabled", "cores": {"cpus": "4-7"}},
    "one by one": {"state": "disabled", "method": "cpu_online"},
    "restored": {"state": "restored"},
}
FAULTS = strategies.one_of(
    strategies.none(),
    strategies.tuples(strategies.just("killed"), strategies.integers(0, 45)),
    strategies.tuples(strategies.just("full"), strategies.integers(0, 45)),
    strategies.tuples(strategies.just("no systemd-run"), strategies.just(0)),
)


class Machine(stateful.RuleBasedStateMachine):
    """A host, and what the model knows of it."""

    def __init__(self):
        super().__init__()
        shared = pathlib.Path("/dev/shm")
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None))
        self.host, self.boots = Host(self.directory), 0
        self.faults = Watchdog.faults = self.host.faults = Faults()
        self.first = None  # CPUs online before the first change
        self.before = None  # (CPUs online, first state, what is asked) before a change that is not confirmed
        self.frame = None

    def teardown(self):
        shutil.rmtree(self.directory)

    # What is seen of the host -----------------------------------------------------------------------------------------
    def online(self):
        return smt_state.read(files=self.host)["online"]

    def files(self):
        fs = host_files.HostFs(str(self.directory))
        return {
            path: fs.read(path) if ".wants" not in path else fs.status(path) is not None for path in persistence.PATHS
        }

    def seen(self):
        """All that a change may change, but for when, and by whom."""
        pending, saved = self.host.pending(), self.host.saved()
        return {
            "cpu": smt_state.read(files=self.host),
            "files": self.files(),
            "first": saved and saved["cpu"],
            "pending": pending and (pending["cpu"], pending["snapshot"] and pending["snapshot"]["cpu"]),
        }

    @stateful.invariant()
    def nothing_is_lost(self):
        saved, pending = self.host.saved(), self.host.pending()
        assert (saved and saved["cpu"]["online"]) == self.first
        assert (pending and pending["cpu"]["online"]) == (self.before and self.before[0])
        state = self.directory / "var/lib/threadwise-smt"
        if self.first is None and self.before is None and self.boots == 0 and state.exists():
            assert {path.name for path in state.iterdir() if path.name[0] != "."} <= LEFT | {
                "rolled-back.json",
                "rollback.pyz",
            }, sorted(state.iterdir())
        # What a killed process leaves half written, the next one removes.
        assert self.was_killed or [*self.directory.glob("**/.*")] == []

    was_killed = False

    # What happens -----------------------------------------------------------------------------------------------------
    def ask(self, fault, **request):
        """Return whether the request was carried out. Whatever comes, it was or it was not: nothing in between."""
        before = self.seen()
        self.host.status = {"systemd-run": 1} if fault and fault[0] == "no systemd-run" else {}
        if fault and fault[0] in ("killed", "full"):
            self.faults.plan(*fault)
        Watchdog.is_disarmed, refused = False, None
        try:
            with self.faults.installed():
                result = self.host.ask(**request)
        except HostError as error:
            refused = error
        except Killed:
            self.faults.over()
            self.was_killed = True
            after = self.seen()
            ended = before["pending"] is not None and after["pending"] is None
            if Watchdog.is_disarmed or ended:
                # It died when all was done but what tidies up.
                return {"rollback_pending": after["pending"] is not None, "rollback_ended": ended}
            assert after == before
            return None
        self.faults.over()
        if refused is not None:
            assert fault or request.get("confirm"), refused
            assert self.seen() == before, f"{refused}, and it was not undone"
            return None
        self.was_killed = self.was_killed and not result["changed"]
        return result

    def follow(self, asked, result, was_online, had_first):
        """What the model knows after a change."""
        if result is None:
            return
        now = self.online()
        if result["rollback_pending"]:
            if self.before is None:
                self.before = (was_online, had_first, asked)
            self.before = (*self.before[:2], asked)
            self.first = had_first if had_first is not None else was_online if now != was_online else None
        else:
            self.before = None
            moved = now != was_online
            self.first = had_first if had_first is not None else was_online if moved else None
            if (asked["state"] == "restored" if "state" in asked else False) or (
                self.first == now and (moved or result.get("rollback_ended"))
            ):
                self.first = None

    @stateful.rule(
        name=strategies.sampled_from(sorted(CHANGES)),
        waits=strategies.booleans(),
        persist=strategies.sampled_from(["none", "none", "tmpfiles", "systemd"]),
        fault=FAULTS,
    )
    def change(self, name, waits, persist, fault):
        asked = {**CHANGES[name], "persist": persist}
        was_online, had_first = self.online(), self.first
        result = self.ask(fault, **asked, rollback_after=60 if waits else None)
        if result and not fault:
            if name == "restored":
                assert self.online() == (had_first or was_online)
            elif name in ("off", "one by one"):
                assert all(len({first, first + 1}.intersection(self.online())) <= 1 for first in range(0, 8, 2))
            assert result["rollback_pending"] or (
                any(self.files().values()) == (persist != "none" and name != "restored")
            )
        self.follow(asked, result, was_online, had_first)

    @stateful.precondition(lambda self: self.before is not None)
    @stateful.rule(fault=FAULTS)
    def confirm(self, fault):
        was_online, had_first = self.online(), self.first
        result = self.ask(fault, **self.before[2], confirm=True)
        if result is None:
            assert self.host.pending() is not None
            return
        self.follow(self.before[2], {**result, "rollback_ended": True}, was_online, had_first)

    @stateful.precondition(lambda self: self.before is not None)
    @stateful.rule(fault=FAULTS)
    def time_is_over(self, fault):
        """Nothing that goes wrong keeps the host from going back; a service that is killed is started again."""
        online, first, _asked = self.before
        if fault and fault[0] in ("killed", "full"):
            self.faults.plan(*fault)
        with self.faults.installed():
            with contextlib.suppress(Killed):
                self.host.roll_back()
            if self.faults.is_dead:
                self.faults.another_process()
                if self.host.pending():
                    self.host.roll_back()
        assert self.online() == online, "the disk was full" if self.faults.is_full else ""
        self.faults.over()
        self.host.is_waiting = False
        self.first, self.before = first, None

    @stateful.rule(cpu=strategies.integers(1, 7), up=strategies.booleans())
    def somebody_else(self, cpu, up):
        """Whatever others do, what this collection has saved stays."""
        with contextlib.suppress(OSError):
            self.host.write(f"{CPUS}/cpu{cpu}/online", str(int(up)))

    @stateful.rule()
    def reboot(self):
        fs = host_files.HostFs(str(self.directory))
        is_kept = persistence.is_kept(fs)
        lines = "\n".join(filter(None, (fs.read(path) for path in (persistence.TMPFILES_PATH, persistence.UNIT_PATH))))
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
        self.before, self.frame = None, None
        if not is_kept:
            self.first = None

    @stateful.rule()
    def frame_is_saved(self):
        """As a rollout does before it changes a host."""
        self.frame = (
            json.loads(json.dumps(smt_frame.present(self.host, host_files.HostFs(str(self.directory))))),
            self.first,
            self.before is None,
        )

    @stateful.precondition(lambda self: self.frame is not None and self.frame[2] and self.before is None)
    @stateful.rule(fault=FAULTS)
    def back_to_the_frame(self, fault):
        """As the rollback of a rollout does, whatever was done since: the first state is that of the frame."""
        (frame, first, _confirmed), was_online, had_first = self.frame, self.online(), self.first
        result = self.ask(fault, state="previous", frame=frame)
        if result is None:
            return
        assert self.online() == frame["cpu"]["online"]
        assert {path: text for path, text in frame["files"].items() if text is not None and ".wants" not in path} == {
            path: host_files.HostFs(str(self.directory)).read(path)
            for path, text in self.files().items()
            if text and ".wants" not in path
        }
        self.first = None if first is None else had_first if had_first is not None else first
        if self.first == self.online() and was_online != self.online():
            self.first = None
        self.before = None


@pytest.fixture(name="in_process", autouse=True)
def without_processes():
    with (
        mock.patch.object(smt_change.watchdog, "Watchdog", Watchdog),
        mock.patch.object(archive, "build", return_value=b"the program"),
    ):
        yield


@pytest.mark.usefixtures("in_process")
def test_random_orders():
    settings = hypothesis.settings(
        max_examples=ORDERS,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )
    stateful.run_state_machine_as_test(Machine, settings=settings)
