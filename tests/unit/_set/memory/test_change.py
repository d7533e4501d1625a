# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of a memory policy as a transaction: all of it, or nothing, and back to the last file; also as data."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal

import answer_maker
import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    change as memory_change,
    frame as memory_frame,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.errors import MemoryPolicyError
from fake_kernel import Killed
from fake_memory import VM, MemoryHost
from faults import Faults
from memory_tree import put

OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
KEPT = "var/lib/threadwise-smt/memory.json"
DROP_IN = "etc/systemd/system/{}.service.d/zz-threadwise-smt-memory.conf"
AMOUNT = {"overcommit": "strict", "overcommit_ratio": 80}
STRICT = {**AMOUNT, "on_oom": "panic", "panic_reboot_after": "10", "protect": ["db"]}
HEURISTIC = {"overcommit": "heuristic", "protect": ["web"]}
RESTORED = {"state": "restored"}
# In KiB, so that restoring has to choose the right one of KiB and ratio.
OWN = {"overcommit_memory": 1, "overcommit_ratio": 0, "overcommit_kbytes": 500004}
CALLS = {
    "first": ([], STRICT),
    "other": ([STRICT], HEURISTIC),
    "restored": ([STRICT], RESTORED),
    "same": ([STRICT], STRICT),
    "a part": ([STRICT], AMOUNT),
    "never changed": ([], RESTORED),
    "services only": ([STRICT], {"protect": ["web"]}),
}
AS_BEFORE = "Everything is as it was before"


@pytest.fixture(name="host")
def _host(tmp_path, monkeypatch):
    return MemoryHost(tmp_path / "host", monkeypatch, **OWN)


def scores(host):
    return [int(host.read(f"proc/{pid}/oom_score_adj")) for pid in (10, 11, 20)]


def prepared(host, name):
    """Do what comes before a call of CALLS; return the call, and all files before it."""
    earlier, call = CALLS[name]
    for one in earlier:
        host.ask(**one)
    host.effects.clear()
    return call, host.everything()


def refusal(host, call):
    with pytest.raises(memory_change.ERRORS) as caught:
        host.ask(**call)
    return str(caught.value)


def test_a_policy_is_in_force_now_and_at_boot_and_no_step_is_worse_than_the_end(host):
    result = host.ask(**STRICT)
    values = [f"{VM}overcommit_ratio = 80", f"{VM}overcommit_memory = 2"]
    values += ["proc/sys/kernel/panic = 10", f"{VM}panic_on_oom = 1"]
    assert host.effects == [
        *(f"write {path}" for path in (KEPT, OURS, DROP_IN.format("db"))),
        *("daemon-reload", *values, "proc/11/oom_score_adj = -900", "proc/10/oom_score_adj = -900"),
    ]
    assert host.read(OURS) == "vm.overcommit_ratio=80\nvm.overcommit_memory=2\nkernel.panic=10\nvm.panic_on_oom=1\n"
    assert host.read(DROP_IN.format("db")).endswith("[Service]\nOOMScoreAdjust=-900\n")
    assert scores(host) == [-900, -900, 0] and json.loads(host.read(KEPT))["units"] == {"db.service": 100}
    assert [result[one] for one in ("changed", "protected", "released", "warnings")] == [True, ["db.service"], [], []]
    names = ("overcommit", "overcommit_ratio", "overcommit_kbytes", "on_oom", "panic_reboot_after")
    assert [result["before"][name] for name in names] == ["always", 0, 500004, "kill", 0]
    assert [result["after"][name] for name in names] == ["strict", 80, 0, "panic", 10]
    assert result["after"]["commit_limit_bytes"] == 563268 * 1024


@pytest.mark.parametrize("name", CALLS)
def test_check_mode_says_what_a_call_does_which_crosses_the_border_and_is_done_once(host, name):
    call, before = prepared(host, name)
    expected = host.ask(**call, check=True)
    assert (host.everything(), host.effects) == (before, [])
    first = host.ask(**call)
    assert first == expected and first["changed"] == bool(host.effects) == bool(first["diff"])
    after = host.everything()
    host.effects.clear()
    second = host.ask(**call)
    assert [second[one] for one in ("changed", "diff", "released")] == [False, [], []]
    assert (host.effects, host.everything()) == ([], after)
    assert second["after"] == second["before"] == first["after"]
    warnings = [{"msg": warning} for warning in first.pop("warnings")]
    assert answer_maker.accepted("smt_memory", json.dumps({**first, "warnings": warnings, "invocation": {}})) == first


def test_the_diff_tells_each_part(host):
    found = {one["before_header"]: (one["before"], one["after"]) for one in host.ask(**STRICT, check=True)["diff"]}
    files = {str(host.root / KEPT), "/" + OURS, "/" + DROP_IN.format("db")}
    assert set(found) == {"/proc/sys", "OOM scores of processes", *files}
    assert ["vm.overcommit_memory = 1\n" in text for text in found["/proc/sys"]] == [True, False]
    assert found["OOM scores of processes"][0] == "db.service, process 10: 100\ndb.service, process 11: 100\n"


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("name", ["first", "other", "restored"])
def test_a_call_that_fails_at_any_step_has_changed_nothing(host, name, number):
    call, before = prepared(host, name)
    # The last one is systemctl show, which is asked again on the way.
    host.fails = lambda effect: effect.startswith("show") == (number == 10) and number in (10, len(host.effects) - 1)
    assert AS_BEFORE in refusal(host, call) and host.everything() == before
    host.fails = lambda _effect: False
    host.effects.clear()
    assert host.ask(**call)["changed"] and len(host.effects) == 10, "each effect has to fail once"


def test_an_end_by_force_is_undone_too_and_a_drop_in_with_other_text_comes_back(host):
    put(host.root, DROP_IN.format("db"), "[Service]\nOOMScoreAdjust=-5\n")
    before, kernel = host.everything(), host._kernel
    host._kernel = lambda path, text: kernel(path, text) if text != "2" else signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        host.ask(**STRICT)
    assert host.everything() == before


def test_a_value_that_the_kernel_swallows_or_another_program_changes_fails_and_is_undone(host):
    before, kernel = host.everything(), host._kernel
    host._kernel = lambda path, text: None if path.endswith("overcommit_memory") and text == "2" else kernel(path, text)
    said = refusal(host, STRICT)
    assert "overcommit_memory reads 1 after 2" in said and said.endswith(AS_BEFORE) and host.everything() == before

    def interfere(path, text):
        kernel(path, text)
        if path.endswith("panic_on_oom"):
            put(host.root, VM + "overcommit_memory", "0\n")

    host._kernel = interfere
    assert "vm.overcommit_memory reads 0 instead of 2" in refusal(host, STRICT)


def test_what_cannot_be_undone_is_named_and_can_be_restored_later(host, monkeypatch):
    before, unlink = host.everything(), os.unlink

    def read_only(path, **how):
        if str(path).endswith(OURS):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        unlink(path, **how)

    monkeypatch.setattr(os, "unlink", read_only)
    host.fails = lambda effect: effect in (VM + "panic_on_oom = 1", VM + "overcommit_memory = 1")
    said, _completely, left = refusal(host, STRICT).partition("could not be undone completely: ")
    assert "panic_on_oom" in said and "vm.overcommit_memory reads 2 instead of 1" in left and "Read-only" in left
    assert AS_BEFORE not in said + left and "Nothing was changed" not in said + left
    assert "db" not in left and "kernel.panic" not in left and not (host.root / DROP_IN.format("db")).exists()
    assert scores(host) == [100, 100, 0] and json.loads(host.read(KEPT))["sysctls"]["vm.overcommit_memory"] == 1
    host.fails = lambda _effect: False
    monkeypatch.setattr(os, "unlink", unlink)
    host.ask(**RESTORED)
    assert host.everything() == before


def test_a_failed_restore_says_what_is_still_different(host):
    host.ask(**STRICT)
    host.fails = lambda effect: effect == VM + "overcommit_memory = 1"
    said, _still, left = refusal(host, RESTORED).partition("Still different from before the first change: ")
    parts = ("vm.overcommit_memory reads 2 instead of 1", "kernel.panic reads 10", OURS, DROP_IN.format("db"))
    assert AS_BEFORE in said and [part in left for part in parts] == [True] * 4 and scores(host) == [-900, -900, 0]


@pytest.mark.parametrize("left", range(2, 14, night.number(4, 1)))
@pytest.mark.parametrize("name", ["first", "other", "restored"])
def test_a_disk_that_is_full_from_any_write_on_keeps_nothing_from_coming_back(host, name, left):
    call, before = prepared(host, name)
    full = Faults()
    full.plan("full", left)
    # What comes back must not need the room that its first version gave up.
    host.fails = lambda effect: effect.startswith("proc/sys")
    with full.installed():
        said = refusal(host, call)
    assert (AS_BEFORE in said or "Nothing was changed" in said) and host.everything() == before


def test_a_call_that_was_killed_leaves_nothing_that_the_next_one_does_not_take_away(host):
    before = host.everything()
    killed = Faults()
    kernel = host._kernel

    def whole(path, text):
        """A kernel does not stop in the middle of a write."""
        if killed.is_dead:
            raise Killed
        with killed.paused():
            kernel(path, text)

    host._kernel = whole
    for left in range(0, 40, night.number(4, 1)):
        killed.plan("killed", left)
        with killed.installed(), contextlib.suppress(Killed):
            host.ask(**STRICT)
        killed.another_process()
        host.ask(**STRICT)
        host.ask(**RESTORED)
        assert host.everything() == before, left


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"on_oom": "panic"}, "hang until someone resets it"),
        ({**STRICT, "protect": ["db", "nosuch"]}, "no service nosuch.service"),
        (
            {**STRICT, "overcommit_ratio": 1},
            "nothing was changed, because the host would not survive the policy: would",
        ),
        ({"protect": ["../x"]}, "is not a valid name"),
    ],
)
def test_a_refused_policy_has_changed_nothing(host, call, said):
    before = host.everything()
    assert said in refusal(host, call) and said in refusal(host, {**call, "check": True})
    assert (host.everything(), host.effects) == (before, [])


def test_settings_lines_and_services_that_are_not_named_stay(host):
    host.ask(on_oom="panic", panic_reboot_after="10", protect=["db"])
    put(host.root, OURS, "# mine\nkernel.sysrq = 1\n" + host.read(OURS) + "vm.overcommit_kbytes=7\n")
    assert host.ask(**AMOUNT)["protected"] == ["db.service"]
    ours = "kernel.panic=10\nvm.panic_on_oom=1\nvm.overcommit_ratio=80\nvm.overcommit_memory=2\n"
    assert host.read(OURS) == f"# mine\nkernel.sysrq = 1\n{ours}" and host.read(VM + "panic_on_oom") == "1\n"
    assert host.ask(protect=[])["released"] == ["db.service"] and scores(host) == [100, 100, 0]


@pytest.mark.parametrize(
    ("path", "make"),
    [
        *((path, make) for path in (OURS, DROP_IN.format("db")) for make in (os.mkfifo, os.mkdir)),
        (OURS, lambda path: path.symlink_to("other")),
        (OURS, lambda path: path.write_bytes(b"vm.overcommit_memory=\xff\n")),
        (KEPT, lambda path: path.write_bytes(b"{")),
    ],
)
def test_a_file_that_could_not_be_put_back_is_refused_with_the_way_out(host, path, make):
    for name in (OURS, KEPT, DROP_IN.format("db")):
        (host.root / name).parent.mkdir(parents=True, exist_ok=True)
    make(host.root / path)
    said = [refusal(host, call) for call in (STRICT, RESTORED)]
    assert all(path in one and "emove it" in one for one in said), said
    assert host.effects == []


def test_our_file_without_a_snapshot_is_not_removed(host):
    put(host.root, OURS, "vm.overcommit_memory=2\n")
    assert KEPT in refusal(host, RESTORED) and (host.root / OURS).exists()


def test_only_root_may_ask(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    request = memory_change.Request("present", {"margin": 10}, None, True)
    with pytest.raises(MemoryPolicyError, match="use become"):
        memory_change.MemoryChange(request, lambda argv: (1, "", "")).run()


def frame(host):
    """The present policy, as it comes back from a file."""
    return memory_frame.checked(json.loads(json.dumps(memory_frame.present(HostFs(str(host.root))))))


def put_back(host, before, check=False):
    request = memory_change.Request(memory_change.PREVIOUS, {"margin": 0}, None, check, before)
    return memory_change.MemoryChange(request, host.run_command, str(host.root)).run()


@pytest.mark.parametrize(
    "earlier",
    [[], [STRICT], [STRICT, HEURISTIC], [{"overcommit": "strict", "overcommit_kbytes": 600000}], [{"protect": ["db"]}]],
)
@pytest.mark.parametrize("wave", [[HEURISTIC], [HEURISTIC, STRICT], [RESTORED], [RESTORED, HEURISTIC]])
def test_a_policy_is_put_back_byte_for_byte_and_the_first_one_after_it(host, earlier, wave):
    first = host.everything()
    for call in earlier:
        host.ask(**call)
    before, saved = host.everything(), frame(host)
    for call in wave:
        host.ask(**call)
    changed = host.everything() != before
    assert [put_back(host, saved, check)["changed"] for check in (True, False)] == [changed] * 2
    assert host.everything() == before
    assert put_back(host, saved)["changed"] is False, "once is enough"
    host.ask(state="restored")
    assert host.everything() == first


def test_what_the_collection_has_not_changed_stays_and_a_service_that_is_gone_keeps_nothing_back(host):
    saved = frame(host)
    host.ask(**STRICT)
    second = frame(host)
    put(host.root, VM + "nr_hugepages", "512\n")
    put_back(host, saved)
    assert (host.read(VM + "nr_hugepages"), host.read(VM + "overcommit_memory")) == ("512\n", "1\n")
    host.ask(**STRICT)
    host.ask(overcommit="heuristic")
    del host.systemd.services["db"]
    put_back(host, second)
    assert host.read(VM + "overcommit_memory") == "2\n"


@pytest.mark.parametrize(
    "damage",
    [{"sysctls": {"kernel.core_pattern": 1}}, {"text": 5}, {"drop_ins": {"../x.service": ""}}, {"snapshot": {}}],
)
def test_a_frame_of_other_things_is_refused(host, damage):
    with pytest.raises((ValueError, TypeError, KeyError)):
        memory_frame.checked({**frame(host), **damage})
