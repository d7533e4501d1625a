# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host saves before a policy changes it, and puts back: all parts, in whatever form they are."""

from __future__ import annotations

import json
import os
import stat

import answer_maker
import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    durable,
    files as host_files,
    kernel_files,
    state_file,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import change as rollback_change, record
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from fake_host import Host
from fake_memory import VM, MemoryHost

FILE = record.FILE.path
BOTH = ("configured", "memory")
OWN = {"10-own.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet nosmt=force maxcpus=4"\n'}
OF_BOOT = "boot arguments nosmt=force maxcpus=4"
WORDS = f"{OF_BOOT}, vm.overcommit_memory 2, vm.panic_on_oom 0, db.service spared by the OOM killer"


class PolicyHost(MemoryHost):
    """A host with a boot loader and a memory policy."""

    def __init__(self, root, monkeypatch):
        boot_maker.grub_tree(root, drop_ins=OWN)
        super().__init__(root, monkeypatch, overcommit_memory=0, overcommit_ratio=50)
        self.fs = host_files.HostFs(str(root))

    def rollback(self, state, parts=(), **options):
        if state == "saved":
            options = {"interrupted_since": (record.pending(self.fs) or {}).get("since"), **options}
        request = rollback_change.Request(state, parts, **options)
        result = rollback_change.Rollback(request, self.run_command, str(self.root)).run()
        answer_maker.accepted("smt_rollback", json.dumps(result))
        return result

    def refusal(self, state, parts=(), **options):
        before = self.everything()
        with pytest.raises(rollback_change.RollbackError) as caught:
            self.rollback(state, parts, **options)
        assert state == "back" or self.everything() == before
        return str(caught.value)

    def boot_args(self, smt):
        boot_change.run(self.fs, boot_change.Request(smt, None, False, False), "x86_64", "6.1.0-13-amd64")

    def booted(self, *arguments):
        boot_maker.write(self.root, "proc/cmdline", " ".join(["root=UUID=1 ro", *arguments]) + "\n")

    def wave(self):
        self.boot_args("enabled")
        self.ask(overcommit="always", protect=["web"])

    def all_but_saved(self):
        left_out = (FILE, "var/lib/threadwise-smt/topology.json")
        return {path: content for path, content in self.everything().items() if path not in left_out}


@pytest.fixture(name="host")
def _host(tmp_path, monkeypatch):
    host = PolicyHost(tmp_path / "host", monkeypatch)
    host.ask(overcommit="strict", overcommit_ratio=80, protect=["db"])
    return host


@pytest.mark.parametrize("check", [False, True])
def test_what_another_rollout_has_saved_since_the_host_was_judged_is_refused(host, check):
    """Two controllers enforce one policy: who comes second would put back what the first has changed."""
    host.rollback("saved", BOTH, rollout=True)
    for since in (None, "2026-01-02T03:04:05Z"):
        said = host.refusal("saved", BOTH, rollout=True, interrupted_since=since, check=check)
        assert said.startswith("another rollout has begun to change this host, at ")
    assert host.rollback("saved", BOTH, rollout=True, check=check)["back_to"]


def test_what_is_saved_for_root_alone_is_put_back_and_said_in_each_wave(host, monkeypatch):
    flushed, sync = [], durable.sync
    name = "/proc/self/fd/{}".format
    monkeypatch.setattr(durable, "sync", lambda found: (flushed.append(os.readlink(name(found))), sync(found))[1])
    before = host.all_but_saved()
    assert host.rollback("saved", BOTH, rollout=True, check=True)["back_to"] == WORDS
    assert host.all_but_saved() == before and not (host.root / FILE).exists()
    assert host.rollback("back")["changed"] is False and host.all_but_saved() == before
    host.effects.clear()
    saved = host.rollback("saved", BOTH, rollout=True)
    assert (saved["changed"], saved["back_to"], host.effects) == (True, WORDS, ["write " + FILE])
    assert (
        str(host.root / FILE).rpartition("/")[0] in flushed and stat.S_IMODE((host.root / FILE).stat().st_mode) == 0o600
    )
    host.wave()
    assert host.all_but_saved() != before and host.rollback("back", check=True)["changed"] is True
    back = host.rollback("back")
    assert host.all_but_saved() == before and {one["before_header"] for one in back["diff"]} >= {"/proc/sys"}
    fields = ("changed", "back_to", "not_back", "reboot_required")
    assert [back[name] for name in fields] == [True, WORDS, [], False]
    assert host.rollback("back")["changed"] is False
    confirmed = [host.rollback("confirmed", check=check)["changed"] for check in (True, False, False)]
    assert confirmed == [True, True, False] and not (host.root / FILE).exists()
    host.wave()
    before = host.all_but_saved()
    host.rollback("saved", BOTH, rollout=True)
    host.boot_args("forced_off")
    host.ask(overcommit="strict", overcommit_ratio=70, protect=[])
    host.rollback("back")
    assert host.all_but_saved() == before


def test_what_cannot_be_saved_is_no_change(host):
    host.fails = lambda effect: effect == "write " + FILE
    said = host.refusal("saved", BOTH)
    assert said.startswith("the state before the change cannot be saved, and nothing was changed: ") and "space" in said
    (host.root / "boot/grub/grub.cfg").unlink()
    assert "grub.cfg" in host.refusal("saved", BOTH, check=True)


def test_what_an_interrupted_rollout_saved_is_older_and_stays_and_without_one_the_last_change_counts(host):
    before = host.all_but_saved()
    host.rollback("saved", ["memory"])
    host.ask(overcommit="always")
    changed = host.all_but_saved()
    host.rollback("saved", ["memory"])
    assert record.pending(host.fs) is None and host.fs.problems == []
    host.ask(overcommit="heuristic")
    host.rollback("back")
    assert host.all_but_saved() == changed != before
    (host.root / FILE).unlink()
    host.ask(overcommit="strict", overcommit_ratio=80, protect=["db"])
    before = host.all_but_saved()
    first = host.rollback("saved", ["memory"], rollout=True)
    host.ask(overcommit="always")
    # The next rollout has another policy, and a play of its own calls the role in between.
    host.rollback("saved", ["memory"])
    second = host.rollback("saved", BOTH, reboot=True, rollout=True)
    assert (first["changed"], second["changed"]) == (True, True)
    assert second["back_to"] == f"{OF_BOOT}, {first['back_to']}"
    host.wave()
    host.rollback("back")
    assert host.all_but_saved() == before
    assert record.pending(host.fs) == {"since": json.loads(host.read(FILE))["saved_at"], "back_to": second["back_to"]}


@pytest.mark.parametrize(
    ("reboot", "reboot_ok", "required", "overcommit"),
    # The rest waits for a reboot, which would end what is set before it, or is put back without one.
    [(True, True, True, "1\n"), (True, False, True, "2\n"), (False, True, False, "2\n")],
)
def test_a_change_that_took_a_reboot_takes_one_back(host, reboot, reboot_ok, required, overcommit):
    host.booted("nosmt=force", "maxcpus=4")
    host.rollback("saved", BOTH, reboot=reboot, rollout=True)
    host.wave()
    host.booted()
    assert host.rollback("back", reboot_ok=reboot_ok)["reboot_required"] is required
    assert host.read(VM + "overcommit_memory") == overcommit
    host.booted("nosmt=force", "maxcpus=4")
    assert host.rollback("back", reboot_ok=True)["reboot_required"] is False
    assert host.read(VM + "overcommit_memory") == "2\n"


def test_a_damaged_file_is_refused_by_each_request_and_shown_by_facts(host, monkeypatch):
    host.rollback("saved", BOTH, rollout=True)
    good = host.read(FILE)
    for text in ("", "{", "[" * 100_000, "{}", '{"schema": "threadwise.smt/rollout-rollback", "schema_version": 1}'):
        (host.root / FILE).write_text(text)
        before = host.everything()
        for state in ("saved", "back"):
            with pytest.raises(state_file.StateFileError, match=FILE):
                host.rollback(state, BOTH)
        assert host.everything() == before
        assert record.pending(host.fs) == {"since": None, "back_to": None} and FILE in host.fs.problems[-1]
    # Nor is one used that others may write.
    (host.root / FILE).write_text(good)
    monkeypatch.setattr(host_files.HostFs, "is_host", True)
    os.chmod(host.root / FILE, 0o666)
    assert record.pending(host.fs) == {"since": None, "back_to": None} and "owned by root" in host.fs.problems[-1]


PART = {"state": "disabled", "cores": {"cpus": "4-7"}}


@pytest.fixture(name="running")
def _running_host(tmp_path, monkeypatch):
    running = Host(tmp_path)
    monkeypatch.setattr(kernel_files, "KernelFiles", lambda _sysroot: running)
    return running


def rollback_running(running, state, **options):
    request = rollback_change.Request(state, ("running",) if state == "saved" else (), **options)
    return rollback_change.Rollback(request, running.run_command, running.sysroot).run()


def state(running):
    """The CPUs and what keeps them over boots, byte for byte."""
    fs = host_files.HostFs(running.sysroot)
    return smt_state.read(files=running), {path: fs.read(path) for path in persistence.PATHS}


def one_by_one(running):
    for cpu in (3, 6):
        running.write(f"sys/devices/system/cpu/cpu{cpu}/online", "0")


EARLIER = {
    "nothing": lambda running: None,
    "part, kept": lambda running: running.ask(**PART, persist="tmpfiles"),
    "off, kept": lambda running: running.ask("disabled", persist="systemd"),
    "off, from a part": lambda running: (running.ask(**PART), running.ask("disabled")),
    "one by one": one_by_one,
    "one by one, then a part": lambda running: (one_by_one(running), running.ask(**PART)),
}
WAVES = {
    "disabled": {"state": "disabled"},
    "enabled": {"state": "enabled"},
    "another part, kept": {"state": "disabled", "cores": {"cpus": "0-1"}, "persist": "systemd"},
    "restored": {"state": "restored"},
}


@pytest.mark.night(after=3)
@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("earlier", EARLIER)
def test_each_form_is_put_back_and_the_first_state_after_it(running, earlier, wave):
    EARLIER["one by one" if earlier.startswith("one by one") else "nothing"](running)
    first = state(running)
    EARLIER[earlier](running)
    before = state(running)
    rollback_running(running, "saved", rollout=True)
    running.ask(**WAVES[wave])
    changed = state(running) != before
    assert rollback_running(running, "back", check=True)["changed"] >= changed
    result = rollback_running(running, "back")
    assert state(running) == before and result["changed"] >= changed
    assert rollback_running(running, "back")["changed"] is False, "once is enough"
    rollback_running(running, "confirmed")
    running.ask("restored")
    assert state(running) == first


def test_it_says_what_it_goes_back_to_also_after_a_boot_of_its_own(running):
    EARLIER["part, kept"](running)
    before, words = state(running), "CPUs 0-4,6 online, kept over boots"
    assert rollback_running(running, "saved", rollout=True)["back_to"] == words
    running.ask("enabled")
    running.boot("second")
    back = rollback_running(running, "back")
    assert (back["changed"], back["back_to"]) == (True, words) and state(running)[0] == before[0]
    assert record.pending(host_files.HostFs(running.sysroot))["back_to"] == words


def test_what_was_bound_since_is_a_warning_and_does_not_keep_the_host_from_going_back(running):
    running.ask(**PART)
    before = state(running)
    rollback_running(running, "saved")
    running.ask("enabled")
    for folder in ("proc/5", "proc/5/task/5"):
        running.put(f"{folder}/stat", "5 (sleep) S 1 0 0 0 0 4194304" + " 0" * 12 + " 1000" + " 0" * 20)
        running.put(f"{folder}/status", "Name:\tsleep\nUid:\t0\t0\nCpus_allowed_list:\t7\n")
        running.put(f"{folder}/cgroup", "0::/system.slice/db.service")
        running.put(f"{folder}/loginuid", "4294967295")
    change = rollback_change.Rollback(rollback_change.Request("back"), running.run_command, running.sysroot)
    change.run()
    assert state(running) == before and "is pinned to 7 alone" in change.warnings[0]
