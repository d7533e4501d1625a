# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random orders of changes, confirmations, rollbacks, reboots and other people's changes on a real kernel, each with a
fault at any write. ``ORDERS`` says how many are tried.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import hypothesis
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tests/unit/support"))
import orders

NAME = "smt-orders"
INVENTORY = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory" / f"{NAME}.yml"
CPUS = "/sys/devices/system/cpu"
SERVICE = "threadwise-smt-rollback.service"
ORDERS = int(os.environ.get("ORDERS", "60"))
STEPS = 7
TIME_LIMIT = 600
# Characters of the console that an error has.
END_OF_CONSOLE = 4000


def console():
    lab = pathlib.Path(__file__).parents[3] / "tools/lab/lab.py"
    return subprocess.run(
        [sys.executable, lab, "console", "--name", NAME], capture_output=True, text=True, check=False
    ).stdout


class Guest(orders.OrderedHost):
    """The guest, with a process in it that carries out one step after the other."""

    def __init__(self):
        about = yaml.safe_load(INVENTORY.read_text(encoding="utf-8"))["lab"]["hosts"][NAME]
        self.ssh = [
            "ssh",
            *("-p", str(about["ansible_port"])),
            *("-i", about["ansible_ssh_private_key_file"]),
            *shlex.split(about["ansible_ssh_common_args"]),
            f"{about['ansible_user']}@{about['ansible_host']}",
        ]
        self.shown = None
        self._connect()
        self._step("wipe")

    def _connect(self):
        self.process = subprocess.Popen(
            [*self.ssh, "python3 /root/ordered.pyz"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _step(self, *step):
        self.shown = None
        self.process.stdin.write(json.dumps(step) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def _run(self, command):
        self.shown = None
        return subprocess.run(
            [*self.ssh, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def end(self):
        # A guest that did not come back is the error, not that it cannot be asked any more.
        if self.process.poll() is not None:
            return
        self._step("wipe")
        self.process.stdin.close()
        self.process.wait(TIME_LIMIT)

    def seen(self):
        if self.shown is None:
            shown = self._step("seen")
            self.shown = orders.Seen(**{**shown, "left": frozenset(shown["left"]), "half": tuple(shown["half"])})
        return self.shown

    def ask(self, request, fault):
        answer = self._step("ask", request, fault)
        if "ended_by" in answer:
            assert answer["ended_by"] == signal.SIGKILL, "the program failed; its error is above"
            return orders.Answer(was_done=answer["was_done"])
        return orders.Answer(**answer)

    def roll_back(self, fault):
        signals = ["USR1", "KILL", "USR1"] if fault and fault[0] == "killed" else ["USR1"]
        end = time.monotonic() + TIME_LIMIT
        while self.seen().pending:
            assert time.monotonic() < end, self._run(f"systemctl status {SERVICE}").stdout
            for name in signals:
                self._run(f"systemctl kill --kill-who=main --signal={name} {SERVICE}")
            signals = ["USR1"]

    def switch(self, cpu, up):
        self._run(f"echo {int(up)} >{CPUS}/cpu{cpu}/online")

    def reboot(self):
        boot = "cat /proc/sys/kernel/random/boot_id"
        known = self._run(boot).stdout
        self._run("systemctl reboot")
        self.process.stdin.close()
        self.process.wait(TIME_LIMIT)
        end = time.monotonic() + TIME_LIMIT
        while self._run(f"systemctl is-system-running --wait >/dev/null; {boot}").stdout in ("", known):
            assert time.monotonic() < end, (
                f"the guest did not boot; its console ends with:\n{console()[-END_OF_CONSOLE:]}"
            )
            time.sleep(1)
        self._connect()

    def frame(self):
        return self._step("frame")


class OnGuest(orders.Order):
    """Orders on the guest."""

    make = Guest


def test_random_orders():
    # What is shorter than an order that failed is sought on a fake kernel.
    orders.play(OnGuest, ORDERS, STEPS, database=None, phases=[hypothesis.Phase.generate])
