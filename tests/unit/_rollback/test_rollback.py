# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host saves before a policy changes it, and puts back: all parts, in whatever form they are,
whoever asks and however often.
"""

from __future__ import annotations

import json
import os
import stat

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._rollback import change as rollback_change, record
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers
from fake_memory import VM, MemoryHost

FILE = record.FILE.path
BOTH = ("configured", "memory")
OWN = {"10-own.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet nosmt=force maxcpus=4"\n'}


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
        answers.accept("smt_rollback", json.dumps(result))
        return result

    def boot_args(self, smt):
        boot_change.run(self.fs, boot_change.Request(smt, None, False, False), "x86_64", "6.1.0-13-amd64")

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
    before = host.everything()
    for since in (None, "2026-01-02T03:04:05Z"):
        with pytest.raises(
            rollback_change.RollbackError, match=r"another rollout has begun .*: wait until it has ended"
        ):
            host.rollback("saved", BOTH, rollout=True, interrupted_since=since, check=check)
    assert host.everything() == before
    assert host.rollback("saved", BOTH, rollout=True, check=check)["back_to"]


def test_what_is_saved_is_put_back_and_said(host):
    before = host.all_but_saved()
    saved = host.rollback("saved", BOTH, rollout=True)
    words = (
        "boot arguments nosmt=force maxcpus=4, vm.overcommit_memory 2, vm.panic_on_oom 0, db.service spared by the OOM"
        " killer"
    )
    assert (saved["changed"], saved["back_to"]) == (True, words)
    host.wave()
    assert host.all_but_saved() != before
    assert host.rollback("back", check=True)["changed"] is True
    back = host.rollback("back")
    assert (back["changed"], back["back_to"], back["not_back"], back["reboot_required"]) == (
        True,
        saved["back_to"],
        [],
        False,
    )
    assert host.all_but_saved() == before and {one["before_header"] for one in back["diff"]} >= {"/proc/sys"}
    assert host.rollback("back")["changed"] is False
    assert [
        host.rollback("confirmed", check=True)["changed"],
        host.rollback("confirmed")["changed"],
        host.rollback("confirmed")["changed"],
    ] == [
        True,
        True,
        False,
    ]
    assert host.all_but_saved() == before and not (host.root / FILE).exists()


def test_without_anything_saved_nothing_is_put_back(host):
    before = host.everything()
    assert host.rollback("back") == {
        "changed": False,
        "back_to": None,
        "not_back": [],
        "reboot_required": False,
        "diff": [],
    }
    assert host.everything() == before


def test_the_file_is_for_root_alone_and_comes_before_the_change(host):
    host.effects.clear()
    host.rollback("saved", BOTH)
    assert stat.S_IMODE((host.root / FILE).stat().st_mode) == 0o600 and host.effects == ["write " + FILE]


def test_check_mode_says_the_same_and_writes_nothing(host):
    before = host.everything()
    assert host.rollback("saved", BOTH, check=True)["back_to"].startswith(
        "boot arguments nosmt=force maxcpus=4, vm.overcommit_memory 2"
    )
    assert host.everything() == before
    (host.root / "boot/grub/grub.cfg").unlink()
    for check in (True, False):
        with pytest.raises(
            rollback_change.RollbackError,
            match="the state before the change cannot be saved, and nothing was changed: ",
        ):
            host.rollback("saved", BOTH, check=check)


def test_where_it_cannot_be_written_the_error_says_that_nothing_was_changed(host):
    host.fails = lambda effect: effect == "write " + FILE
    with pytest.raises(
        rollback_change.RollbackError, match=r"cannot be saved, and nothing was changed: .*No space left on device"
    ):
        host.rollback("saved", BOTH)


def test_each_wave_goes_back_to_the_state_before_it(host):
    host.rollback("saved", BOTH, rollout=True)
    host.wave()
    host.rollback("confirmed")
    before = host.all_but_saved()
    host.rollback("saved", BOTH, rollout=True)
    host.boot_args("forced_off")
    host.ask(overcommit="strict", overcommit_ratio=70, protect=[])
    host.rollback("back")
    assert host.all_but_saved() == before


def test_what_an_interrupted_rollout_saved_is_older_and_stays(host):
    before = host.all_but_saved()
    first = host.rollback("saved", ["memory"], rollout=True)
    host.ask(overcommit="always")
    # The next rollout has another policy, and a play of its own calls the role in between.
    host.rollback("saved", ["memory"])
    second = host.rollback("saved", BOTH, reboot=True, rollout=True)
    assert (first["changed"], second["changed"], second["back_to"]) == (
        True,
        True,
        "boot arguments nosmt=force maxcpus=4, " + first["back_to"],
    )
    host.wave()
    host.rollback("back")
    assert host.all_but_saved() == before
    assert record.pending(host.fs) == {"since": json.loads(host.read(FILE))["saved_at"], "back_to": second["back_to"]}


def test_without_a_rollout_the_last_change_counts_and_nobody_waits_for_it(host):
    host.rollback("saved", ["memory"])
    host.ask(overcommit="always")
    before = host.all_but_saved()
    host.rollback("saved", ["memory"])
    assert record.pending(host.fs) is None and host.fs.problems == []
    host.ask(overcommit="heuristic")
    host.rollback("back")
    assert host.all_but_saved() == before


def test_a_part_that_cannot_be_put_back_does_not_keep_the_others(host):
    host.rollback("saved", BOTH, rollout=True)
    host.wave()
    boot_maker.write(host.root, "mkconfig-fails", "")
    with pytest.raises(
        rollback_change.RollbackError, match=r"^not all is back as it was \(.*\): boot arguments: .*grub-probe: error"
    ) as caught:
        host.rollback("back")
    assert "vm." not in str(caught.value).partition("): ")[2] and host.read(VM + "overcommit_memory") == "2\n"
    assert (host.root / FILE).exists(), "what is saved is still needed"
    (host.root / "mkconfig-fails").unlink()
    assert host.rollback("back")["changed"] is True


def test_a_change_that_took_a_reboot_takes_one_back_and_the_rest_waits_for_it(host):
    boot_maker.write(host.root, "proc/cmdline", "root=UUID=1 ro nosmt=force maxcpus=4\n")
    host.rollback("saved", BOTH, reboot=True, rollout=True)
    host.wave()
    boot_maker.write(host.root, "proc/cmdline", "root=UUID=1 ro\n")
    assert host.rollback("back", reboot_ok=True)["reboot_required"] is True
    assert host.read(VM + "overcommit_memory") == "1\n", "the reboot would end what is set before it"
    boot_maker.write(host.root, "proc/cmdline", "root=UUID=1 ro nosmt=force maxcpus=4\n")
    assert (
        host.rollback("back", reboot_ok=True)["reboot_required"] is False
        and host.read(VM + "overcommit_memory") == "2\n"
    )


def test_without_a_reboot_all_is_put_back_that_can_be(host):
    boot_maker.write(host.root, "proc/cmdline", "root=UUID=1 ro nosmt=force\n")
    host.rollback("saved", BOTH, reboot=True)
    host.wave()
    boot_maker.write(host.root, "proc/cmdline", "root=UUID=1 ro\n")
    assert host.rollback("back")["reboot_required"] is True and host.read(VM + "overcommit_memory") == "2\n"


def test_a_change_that_took_no_reboot_asks_for_none(host):
    host.rollback("saved", BOTH)
    host.wave()
    boot_maker.write(host.root, "proc/cmdline", "root=UUID=1 ro nosmt\n")
    assert host.rollback("back", reboot_ok=True)["reboot_required"] is False


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 100_000, "{}", '{"schema": "threadwise.smt/rollout-rollback", "schema_version": 1}'],
)
def test_a_damaged_file_is_refused_by_each_request_and_shown_by_facts(host, text):
    host.rollback("saved", BOTH, rollout=True)
    (host.root / FILE).write_text(text)
    before = host.everything()
    for state in ("saved", "back"):
        with pytest.raises(state_file.StateFileError, match=FILE):
            host.rollback(state, BOTH)
    assert host.everything() == before
    assert record.pending(host.fs) == {"since": None, "back_to": None} and FILE in host.fs.problems[0]


def test_a_file_that_others_may_write_is_ignored(host, monkeypatch):
    host.rollback("saved", BOTH, rollout=True)
    monkeypatch.setattr(host_files.HostFs, "is_host", True)
    os.chmod(host.root / FILE, 0o666)
    assert (
        record.pending(host.fs) == {"since": None, "back_to": None}
        and "is not owned by root, or" in host.fs.problems[0]
    )


def test_it_is_written_durably(host, monkeypatch):
    flushed = []
    sync = durable.sync
    monkeypatch.setattr(
        durable, "sync", lambda found: (flushed.append(os.readlink(f"/proc/self/fd/{found}")), sync(found))[1]
    )
    host.rollback("saved", BOTH)
    assert str(host.root / "var/lib/threadwise-smt") in flushed
