# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tree of a host that is booted into other arguments for a while."""

import pathlib

import boot_maker
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change, entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import (
    change as visit,
    program,
    record,
    units,
)

BOOT_ID = "proc/sys/kernel/random/boot_id"
MAX_WAITS = 200
NOSMT = change.Request("disabled", None, False, False)
UNIT_FILE = f"etc/systemd/system/{record.UNIT}.service"


class VisitedHost:
    """The host."""

    def __init__(self, root: pathlib.Path, **settings: str) -> None:
        self.root = boot_maker.grub_tree(root, **settings)
        self.fs = host_files.HostFs(str(root))
        self.boots, self.calls, self.fails = 0, [], {}
        self.is_active = self.is_masked = False
        # kexec(8) and the like: what boots does not read grub.cfg.
        self.keeps_arguments = False
        (root / "run/systemd/system").mkdir(parents=True)
        self.boot()

    def boot(self) -> None:
        """Boot with the arguments of the first entry."""
        self.boots += 1
        arguments = entries.read_grub_cfg(self.fs, "boot/grub/grub.cfg")[0].arguments
        cmdline = (self.root / "proc/cmdline").read_text().strip() if self.keeps_arguments else " ".join(arguments)
        is_off = any(one.split("=")[0] == "nosmt" or one == "mitigations=auto,nosmt" for one in cmdline.split())
        boot_maker.running(self.root, cmdline, *(("0,2,4,6", "adjacent", "off", "0") if is_off else ()))
        boot_maker.write(self.root, BOOT_ID, f"{self.boots:08d}-0000-0000-0000-000000000000\n")
        for note in (self.root / "run").glob("threadwise-smt/*.json"):
            note.unlink()

    def systemctl(self, argv: list[str], seconds: float = 60) -> tuple[int, str, str]:
        """What runs in the place of processes.run."""
        words = [word for word in argv if not word.startswith(("SYSTEMCTL_", "-")) and word not in ("env", "systemctl")]
        self.calls.append(" ".join(words))
        if words[0] == "is-enabled":
            return 1, "masked\n" if self.is_masked else "static\n", ""
        if words[0] in self.fails:
            return 1, "", self.fails[words[0]]
        if words[0] in ("restart", "stop"):
            self.is_active = words[0] == "restart"
        return (0, "active\n", "") if words[0] != "is-active" or self.is_active else (3, "inactive\n", "")

    @property
    def has_visit(self) -> tuple[bool, bool]:
        """Whether its unit and its program are there."""
        return (self.root / UNIT_FILE).exists(), (self.root / record.PROGRAM).exists()

    @property
    def arguments(self) -> tuple[str, ...]:
        """What its next boot has of interest."""
        found = entries.read_grub_cfg(self.fs, "boot/grub/grub.cfg")[0].arguments
        return tuple(one for one in found if one.split("=")[0] in ("nosmt", "maxcpus", "mitigations"))


class EndedError(BaseException):
    """The process ended with its boot."""


class Time:
    """The clock of the program, and what happens while it waits: (moment, what is called)."""

    def __init__(self, *events):
        self.now, self.events, self.waits = 0.0, list(events), 0

    def wait(self, seconds):
        self.waits += 1
        assert self.waits < MAX_WAITS, "it does not end"
        end = self.now + seconds
        if self.events and self.events[0][0] <= end:
            moment, call = self.events.pop(0)
            self.now = max(self.now, moment)
            return call() if callable(call) else call
        self.now = end
        return None


class Booted:
    """A host, whose program is started anew by each boot."""

    def __init__(self, place, monkeypatch, request=NOSMT, is_booted=True, slot=None, **settings):
        self.host = VisitedHost(place, **settings)
        monkeypatch.setattr(units.processes, "run", self.run)
        # A change waits for the lock; here nobody gives it back while it waits.
        monkeypatch.setattr(change.locks, "CHANGE_SECONDS", 0.0)
        visit.begin(self.host.fs, request, 600, "the trial t", slot)
        if is_booted:
            self.host.boot()
        self.reboots = 0

    def run(self, argv, seconds=60):
        answer = self.host.systemctl(argv)
        if answer[0] == 0 and self.host.calls[-1] in ("reboot", "start reboot.target"):
            self.reboots += 1
            raise EndedError
        return answer

    def follow(self, time):
        """Run the program, over boots, until it has ended."""
        while True:
            try:
                return program.Program(self.host.fs, record.load(self.host.fs), time.wait, lambda: time.now).run()
            except EndedError:
                self.host.boot()

    def said(self):
        log = self.host.root / program.LOG
        return log.read_text() if log.exists() else ""

    def assert_back(self, reboots=1):
        assert self.host.arguments == () and "nosmt" not in (self.host.root / "proc/cmdline").read_text()
        assert self.host.has_visit == (False, False) and self.reboots == reboots
        assert "back: neither" in self.said()
