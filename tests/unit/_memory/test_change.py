# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of a memory policy as a transaction: all of it, or nothing, and back to the last file."""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import change as memory_change
from ansible_collections.threadwise.smt.plugins.module_utils._memory.errors import MemoryPolicyError
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers
from fake_kernel import Killed
from fake_memory import VM, MemoryHost, process
from faults import Faults
from memory_tree import put

OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
KEPT = "var/lib/threadwise-smt/memory.json"
DROP_IN = "etc/systemd/system/{}.service.d/zz-threadwise-smt-memory.conf"
STRICT = {
    "overcommit": "strict",
    "overcommit_ratio": 80,
    "on_oom": "panic",
    "panic_reboot_after": "10",
    "protect": ["db"],
}
HEURISTIC = {"overcommit": "heuristic", "protect": ["web"]}
RESTORED = {"state": "restored"}
# In KiB, so that restoring has to choose the right one of KiB and ratio.
OWN = {"overcommit_memory": 1, "overcommit_ratio": 0, "overcommit_kbytes": 500004}


@pytest.fixture(name="host")
def _host(tmp_path, monkeypatch):
    return MemoryHost(tmp_path / "host", monkeypatch, **OWN)


def scores(host):
    return [int(host.read(f"proc/{pid}/oom_score_adj")) for pid in (10, 11, 20)]


def test_a_policy_is_in_force_now_and_at_boot(host):
    result = host.ask(**STRICT)
    assert [
        host.read(VM + name).strip()
        for name in ("overcommit_memory", "overcommit_ratio", "overcommit_kbytes", "panic_on_oom")
    ] == ["2", "80", "0", "1"]
    assert host.read("proc/sys/kernel/panic") == "10\n"
    assert host.read(OURS) == "vm.overcommit_ratio=80\nvm.overcommit_memory=2\nkernel.panic=10\nvm.panic_on_oom=1\n"
    assert host.read(DROP_IN.format("db")).endswith("[Service]\nOOMScoreAdjust=-900\n") and scores(host) == [
        -900,
        -900,
        0,
    ]
    assert json.loads(host.read(KEPT))["units"] == {"db.service": 100}
    assert result["changed"] and (result["protected"], result["released"], result["warnings"]) == (
        ["db.service"],
        [],
        [],
    )
    assert (result["before"]["overcommit"], result["before"]["overcommit_kbytes"]) == ("always", 500004)
    assert (result["after"]["overcommit"], result["after"]["overcommit_ratio"], result["after"]["on_oom"]) == (
        "strict",
        80,
        "panic",
    )
    assert result["after"]["commit_limit_bytes"] == 563268 * 1024 and result["after"]["panic_reboot_after"] == 10


def test_the_snapshot_comes_first_and_no_step_is_worse_than_the_end(host):
    host.ask(**STRICT)
    assert host.effects == [
        "write " + KEPT,
        "write " + OURS,
        "write " + DROP_IN.format("db"),
        "daemon-reload",
        VM + "overcommit_ratio = 80",
        VM + "overcommit_memory = 2",
        "proc/sys/kernel/panic = 10",
        VM + "panic_on_oom = 1",
        "proc/11/oom_score_adj = -900",
        "proc/10/oom_score_adj = -900",
    ]


def test_each_value_has_its_source(host):
    put(host.root, "etc/sysctl.d/50-own.conf", "vm.overcommit_memory=1\nkernel.panic=77\nvm.nr_hugepages=many\n")
    found = {one.pop("name"): one for one in host.ask(overcommit="strict", overcommit_ratio=80)["settings"]}
    ours = str(host.root / OURS)
    assert found["vm.overcommit_memory"] == {"value": 2, "at_boot": 2, "source": ours, "original": 1}
    assert found["vm.overcommit_ratio"] == {"value": 80, "at_boot": 80, "source": ours, "original": 0}
    assert found["vm.overcommit_kbytes"] == {"value": 0, "at_boot": 0, "source": ours, "original": 500004}
    own = str(host.root / "etc/sysctl.d/50-own.conf")
    assert found["kernel.panic"] == {
        "value": 0,
        "at_boot": 77,
        "source": own,
        "original": None,
    }, "set by hand since the boot"
    assert found["vm.nr_hugepages"] == {"value": 16, "at_boot": None, "source": own, "original": None}
    assert found["vm.panic_on_oom"] == {"value": 0, "at_boot": None, "source": None, "original": None}


@pytest.mark.parametrize(("reapply", "source"), [("1", "99-threadwise-smt-memory.conf"), ("0", "TuneD profile mine")])
def test_tuned_is_a_source_where_it_has_the_last_word(host, reapply, source):
    put(host.root, "etc/tuned/active_profile", "mine\n")
    put(host.root, "etc/tuned/mine/tuned.conf", "[sysctl]\nvm.overcommit_memory = 1\nkernel.panic = 5\n")
    put(host.root, "etc/tuned/tuned-main.conf", f"reapply_sysctl = {reapply}\n")
    result = host.ask(overcommit="strict", overcommit_ratio=80)
    found = {one["name"]: one for one in result["settings"]}
    assert found["vm.overcommit_memory"]["source"].endswith(source)
    assert (found["kernel.panic"]["source"], found["kernel.panic"]["at_boot"]) == ("TuneD profile mine", 5)
    assert any("TuneD profile mine" in warning for warning in result["warnings"]) == (reapply == "0")


CALLS = {
    "first": ([], STRICT),
    "other": ([STRICT], HEURISTIC),
    "same": ([STRICT], STRICT),
    "restored": ([STRICT], RESTORED),
    "restored twice": ([STRICT, RESTORED], RESTORED),
    "never changed": ([], RESTORED),
    "services only": ([STRICT], {"protect": ["web"]}),
    "nothing asked": ([STRICT], {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_check_mode_says_what_the_call_does_and_writes_nothing(host, name):
    earlier, call = CALLS[name]
    for one in earlier:
        host.ask(**one)
    before, reloads = host.everything(), host.systemd.reloads
    host.effects.clear()
    answer = host.ask(**call, check=True)
    assert (host.everything(), host.effects, host.systemd.reloads) == (before, [], reloads)
    assert host.ask(**call) == answer
    assert answer["changed"] == bool(host.effects) == bool(answer["diff"])


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_changes_nothing(host, name):
    earlier, call = CALLS[name]
    for one in earlier:
        host.ask(**one)
    first = host.ask(**call)
    before = host.everything()
    host.effects.clear()
    second = host.ask(**call)
    assert (second["changed"], second["diff"], second["released"], host.effects, host.everything()) == (
        False,
        [],
        [],
        [],
        before,
    )
    assert second["after"] == second["before"] == first["after"]


@pytest.mark.parametrize(
    "calls",
    [[STRICT], [HEURISTIC], [STRICT, HEURISTIC], [{"overcommit": "strict", "overcommit_kbytes": 600000}, STRICT]],
)
def test_restored_brings_back_each_file_as_it_was(host, calls):
    put(host.root, "etc/sysctl.d/50-own.conf", "vm.overcommit_memory=1\n")
    before = host.everything()
    for call in calls:
        host.ask(**call)
    result = host.ask(**RESTORED)
    assert host.everything() == before and result["changed"]
    assert not (host.root / DROP_IN.format("db")).parent.exists()
    assert result["after"]["overcommit"] == "always" and {one["original"] for one in result["settings"]} == {None}
    assert result["released"] == [] if calls == [{}] else result["protected"] == []


def test_the_diff_tells_each_part(host):
    answer = {one["before_header"]: (one["before"], one["after"]) for one in host.ask(**STRICT, check=True)["diff"]}
    assert set(answer) == {
        "/proc/sys",
        "OOM scores of processes",
        str(host.root / KEPT),
        "/" + OURS,
        "/" + DROP_IN.format("db"),
    }
    assert (
        "vm.overcommit_memory = 1\n" in answer["/proc/sys"][0]
        and "vm.overcommit_memory = 2\n" in answer["/proc/sys"][1]
    )
    assert answer["OOM scores of processes"][0] == "db.service, process 10: 100\ndb.service, process 11: 100\n"
    host.ask(**STRICT)
    answer = {one["before_header"]: (one["before"], one["after"]) for one in host.ask(**RESTORED, check=True)["diff"]}
    assert answer["/" + OURS][1] == "" and "process 10: -900" in answer["OOM scores of processes"][0]


# How many effects each of these calls has; each effect fails once.
EFFECTS = {"first": 10, "other": 10, "restored": 10}


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, count in EFFECTS.items() for number in range(count)]
)
def test_a_call_that_fails_at_any_step_has_changed_nothing(host, name, number):
    earlier, call = CALLS[name]
    for one in earlier:
        host.ask(**one)
    before = host.everything()
    host.effects.clear()
    host.fails = lambda effect: len(host.effects) == number + 1 and not effect.startswith("show")
    with pytest.raises(memory_change.ERRORS, match="Everything is as it was before") as caught:
        host.ask(**call)
    assert host.everything() == before, str(caught.value)
    host.fails = lambda _effect: False
    host.effects.clear()
    assert host.ask(**call)["changed"] and len(host.effects) == EFFECTS[name], "each effect has to fail once"


@pytest.mark.parametrize(
    ("name", "last"), [("first", "proc/10/oom_score_adj = -900"), ("restored", "proc/sys/kernel/panic = 0")]
)
def test_a_systemctl_that_fails_meanwhile_has_changed_nothing(host, name, last):
    earlier, call = CALLS[name]
    for one in earlier:
        host.ask(**one)
    before = host.everything()
    host.fails = lambda effect: effect == "show after " + last
    with pytest.raises(
        MemoryPolicyError, match=r"systemctl show failed .*the bus is gone\. Everything is as it was before"
    ):
        host.ask(**call)
    assert host.everything() == before


def test_an_interrupted_call_is_finished_by_the_next_one(host):
    host.ask(**STRICT)
    # As if it had been killed before systemd read the drop-in, and before the last value.
    put(host.root, "proc/10/oom_score_adj", "100\n")
    put(host.root, VM + "panic_on_oom", "0\n")
    host.systemd.loaded = {}
    result = host.ask(**STRICT)
    assert result["changed"] and result["warnings"] == [] and host.systemd.loaded == {"db": -900}
    assert scores(host) == [-900, -900, 0] and host.read(VM + "panic_on_oom") == "1\n"


def test_an_end_by_force_is_undone_too(host):
    before = host.everything()

    def end(effect):
        if effect == VM + "overcommit_memory = 2":
            raise KeyboardInterrupt
        return False

    host.fails = end
    with pytest.raises(KeyboardInterrupt):
        host.ask(**STRICT)
    assert host.everything() == before


def test_a_value_that_the_kernel_swallows_fails_and_is_undone(host):
    before = host.everything()
    kernel = host._kernel
    host._kernel = lambda path, text: None if path.endswith("overcommit_memory") and text == "2" else kernel(path, text)
    with pytest.raises(
        MemoryPolicyError,
        match=r"overcommit_memory reads 1 after 2 was written to it\. Everything is as it was before$",
    ):
        host.ask(**STRICT)
    assert host.everything() == before


def test_a_value_that_another_program_changes_meanwhile_fails(host):
    kernel = host._kernel

    def interfere(path, text):
        kernel(path, text)
        if path.endswith("panic_on_oom"):
            put(host.root, VM + "overcommit_memory", "0\n")

    host._kernel = interfere
    with pytest.raises(
        MemoryPolicyError,
        match=r"^vm.overcommit_memory reads 0 instead of 2, although the requested values were written\. ",
    ):
        host.ask(**STRICT)


def test_a_process_that_is_started_meanwhile_gets_the_score_of_its_service(host):
    def fork(effect):
        if effect == "proc/10/oom_score_adj = -900":
            process(host.root, 12, -900)
            return True
        return False

    host.fails = fork
    with pytest.raises(MemoryPolicyError, match="Everything is as it was before"):
        host.ask(**STRICT)
    assert scores(host) == [100, 100, 0] and host.read("proc/12/oom_score_adj") == "100\n"


def test_what_cannot_be_undone_is_named_and_can_be_restored_later(host):
    before = host.everything()
    host.fails = lambda effect: (
        effect
        in (
            VM + "panic_on_oom = 1",
            VM + "overcommit_memory = 1",
            "write " + DROP_IN.format("web"),
        )
    )
    with pytest.raises(MemoryPolicyError) as caught:
        host.ask(**STRICT)
    said = str(caught.value)
    assert "panic_on_oom: the kernel does not accept 1" in said and "vm.overcommit_memory reads 2 instead of 1" in said
    assert (
        "could not be undone completely" in said
        and "Everything is as it was" not in said
        and "Nothing was changed" not in said
    )
    assert "db" not in said.partition("completely")[2] and "kernel.panic" not in said, "the rest was undone"
    assert json.loads(host.read(KEPT))["sysctls"]["vm.overcommit_memory"] == 1
    host.fails = lambda _effect: False
    host.ask(**RESTORED)
    assert host.everything() == before


@pytest.mark.parametrize("left", range(2, 14))
@pytest.mark.parametrize("name", ["first", "other", "restored"])
def test_a_disk_that_is_full_from_any_write_on_keeps_nothing_from_coming_back(host, name, left):
    earlier, call = CALLS[name]
    for one in earlier:
        host.ask(**one)
    before = host.everything()
    full = Faults()
    full.plan("full", left)
    # What comes back must not need the room that its first version gave up.
    host.fails = lambda effect: effect.startswith("proc/sys")
    with full.installed(), pytest.raises(memory_change.ERRORS) as caught:
        host.ask(**call)
    said = str(caught.value)
    assert "Everything is as it was before" in said or "Nothing was changed" in said
    assert host.everything() == before


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
    for left in range(40):
        killed.plan("killed", left)
        with killed.installed(), contextlib.suppress(Killed):
            host.ask(**STRICT)
        killed.another_process()
        host.ask(**STRICT)
        host.ask(**RESTORED)
        assert host.everything() == before, left


def test_a_file_that_cannot_be_put_back_does_not_keep_the_others(host, monkeypatch):
    unlink = os.unlink

    def read_only(path, **how):
        if str(path).endswith(OURS):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        unlink(path, **how)

    monkeypatch.setattr(os, "unlink", read_only)
    host.fails = lambda effect: effect == VM + "panic_on_oom = 1"
    with pytest.raises(
        MemoryPolicyError,
        match=rf"could not be undone completely: .*{OURS}: Read-only file system; .*{OURS} is not as it was$",
    ):
        host.ask(**STRICT)
    assert not (host.root / DROP_IN.format("db")).exists() and scores(host) == [100, 100, 0]
    host.fails = lambda _effect: False
    monkeypatch.setattr(os, "unlink", unlink)
    assert host.ask(**RESTORED)["changed"] and not (host.root / OURS).exists()


def test_a_failed_restore_says_what_is_still_different(host):
    host.ask(**STRICT)
    host.fails = lambda effect: effect == VM + "overcommit_memory = 1"
    with pytest.raises(MemoryPolicyError) as caught:
        host.ask(**RESTORED)
    said = str(caught.value)
    assert "Everything is as it was before. Still different from before the first change: " in said
    for part in (
        "vm.overcommit_memory reads 2 instead of 1",
        f"{OURS} exists",
        DROP_IN.format("db") + " exists",
        "kernel.panic reads 10 instead of 0",
    ):
        assert part in said
    assert scores(host) == [-900, -900, 0]


def test_a_snapshot_that_cannot_be_written_is_the_error_and_not_the_end_of_the_change(host):
    host.ask(**STRICT)
    host.effects.clear()
    # The last step: what was released is taken out of the snapshot.
    host.fails = lambda effect: effect == "write " + KEPT and host.effects.count(effect) == 2
    with pytest.raises(
        MemoryPolicyError,
        match=r"memory.json cannot be written: No space left on device\. Everything is as it was before",
    ):
        host.ask(**HEURISTIC)
    assert scores(host) == [-900, -900, 0] and host.read(VM + "overcommit_memory") == "2\n"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"on_oom": "panic"}, "hang until someone resets it"),
        ({**STRICT, "protect": ["db", "nosuch"]}, r"no service nosuch\.service"),
        (
            {**STRICT, "overcommit_ratio": 1},
            r"nothing was changed, because the host would not survive the policy: would allow 7 MiB, but 24 MiB",
        ),
        ({"nr_hugepages": 10**6}, "huge pages would take another"),
        ({"protect": ["../x"]}, "is not a valid name"),
        ({"margin": -1}, "margin is -1"),
    ],
)
def test_a_refused_policy_has_changed_nothing(host, call, text):
    before = host.everything()
    for check in (True, False):
        with pytest.raises(MemoryPolicyError, match=text):
            host.ask(**call, check=check)
    assert (host.everything(), host.effects) == (before, [])


def test_a_strict_policy_is_not_restored_on_a_full_host(tmp_path, monkeypatch):
    host = MemoryHost(tmp_path / "host", monkeypatch, overcommit_memory=2, overcommit_ratio=5)
    host.ask(overcommit="heuristic")
    meminfo = host.read("proc/meminfo")
    put(host.root, "proc/meminfo", meminfo.replace("Committed_AS:      24188 kB", "Committed_AS:     500000 kB"))
    before = host.everything()
    text = (
        r"^nothing was restored, because the host would not survive the previous policy: would allow .* but 488 MiB are"
        r" already committed.*restore again$"
    )
    with pytest.raises(MemoryPolicyError, match=text):
        host.ask(**RESTORED)
    assert host.everything() == before
    put(host.root, "proc/meminfo", meminfo)
    assert host.ask(**RESTORED, margin=0)["after"]["overcommit"] == "strict"


def test_a_kernel_without_a_setting_is_refused(host):
    os.unlink(host.root / VM / "nr_hugepages")
    put(host.root, "proc/meminfo", host.read("proc/meminfo"))
    with pytest.raises(MemoryPolicyError, match=r"no vm.nr_hugepages: leave out"):
        host.ask(nr_hugepages=0)
    assert next(one for one in host.ask()["settings"] if one["name"] == "vm.nr_hugepages")["value"] is None


def test_settings_and_lines_that_are_not_named_stay(host):
    host.ask(on_oom="panic", panic_reboot_after="10", protect=["db"])
    put(host.root, OURS, "# mine\nkernel.sysrq = 1\n" + host.read(OURS) + "vm.overcommit_kbytes=7\n")
    assert host.ask(overcommit="strict", overcommit_ratio=80)["protected"] == ["db.service"], (
        "without the option services stay protected"
    )
    assert (
        host.read(OURS) == "# mine\nkernel.sysrq ="
        " 1\nkernel.panic=10\nvm.panic_on_oom=1\nvm.overcommit_ratio=80\nvm.overcommit_memory=2\n"
    )
    assert host.read(VM + "panic_on_oom") == "1\n"
    assert host.ask(protect=[])["released"] == ["db.service"] and scores(host) == [100, 100, 0]


def test_a_part_of_the_policy_that_is_in_force_changes_nothing(host):
    host.ask(**STRICT)
    result = host.ask(overcommit="strict", overcommit_ratio=80)
    assert (result["changed"], result["diff"]) == (False, [])


def test_a_file_of_ours_that_was_edited_is_written_again(host):
    host.ask(**STRICT)
    put(host.root, OURS, host.read(OURS).replace("vm.overcommit_memory=2", "vm.overcommit_memory=1"))
    result = host.ask(**STRICT)
    assert result["changed"] and [one["before_header"] for one in result["diff"]] == ["/" + OURS]
    assert "vm.overcommit_memory=2" in host.read(OURS)


def test_a_file_that_overrides_ours_is_a_warning_and_the_source(host):
    put(host.root, "etc/sysctl.d/zz.conf", "vm.overcommit_memory=0\n")
    result = host.ask(**STRICT)
    assert any(
        "zz.conf sets vm.overcommit_memory to 0 at boot and overrides" in warning for warning in result["warnings"]
    )
    assert next(one for one in result["settings"] if one["name"] == "vm.overcommit_memory")["source"].endswith(
        "zz.conf"
    )


def test_a_drop_in_that_overrides_ours_is_a_warning(host):
    show = host.systemd._show
    host.systemd._show = lambda name: show(name).replace("OOMScoreAdjust=-900", "OOMScoreAdjust=-5")
    assert [
        "another drop-in sets OOMScoreAdjust to -5" in warning for warning in host.ask(protect=["db"])["warnings"]
    ] == [True]


def hostile(kind, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (path.parent / "other").write_text("[Service]\n")
        path.symlink_to("other")
    elif kind == "no text":
        path.write_bytes(b"vm.overcommit_memory=\xff\n")
    else:
        path.write_bytes(b"x" * (2 << 20))


@pytest.mark.parametrize("kind", ["directory", "pipe", "link", "no text", "huge"])
@pytest.mark.parametrize("path", [OURS, DROP_IN.format("db")])
def test_a_file_that_could_not_be_put_back_is_refused_with_the_way_out(host, kind, path):
    hostile(kind, host.root / path)
    for call in (STRICT, RESTORED):
        with pytest.raises(
            MemoryPolicyError, match=r"is not a text file that can be read, and nothing was changed: remove it"
        ):
            host.ask(**call)
    assert host.effects == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"schema": "threadwise.smt/memory", "schema_version": 1, "sysctls": {"kernel.core_pattern": 1}, "units": {}}',
    ],
)
def test_a_damaged_snapshot_is_refused(host, text):
    put(host.root, KEPT, text)
    for call in (STRICT, RESTORED):
        with pytest.raises(MemoryPolicyError, match=r"memory.json cannot be used"):
            host.ask(**call)
    assert host.effects == []


def test_our_file_without_a_snapshot_is_not_removed(host):
    put(host.root, OURS, "vm.overcommit_memory=2\n")
    with pytest.raises(MemoryPolicyError, match=r"the values from before it are unknown"):
        host.ask(**RESTORED)


@pytest.mark.parametrize("name", ["a*.service.d", "a@.service.d", "..service.d"])
def test_directories_that_are_no_services_are_not_asked_about(host, name):
    put(host.root, f"etc/systemd/system/{name}/zz-threadwise-smt-memory.conf", "[Service]\n")
    assert host.ask(protect=[])["released"] == ([] if name[0] == "a" else ["..service"])


def test_a_drop_in_of_ours_with_other_text_is_put_back_when_the_change_fails(host):
    put(host.root, DROP_IN.format("db"), "[Service]\nOOMScoreAdjust=-5\n")
    before = host.everything()
    host.fails = lambda effect: effect == "daemon-reload" and host.effects.count(effect) == 1
    with pytest.raises(
        MemoryPolicyError, match=r"daemon-reload failed.*the bus is gone\. Everything is as it was before"
    ):
        host.ask(**STRICT)
    assert host.everything() == before


def test_one_change_at_a_time(host, monkeypatch):
    monkeypatch.setattr(locks, "CHANGE_SECONDS", 0)
    with locks.HostLock(str(host.root), "smt_eval"):
        with pytest.raises(locks.HostLockError, match="smt_eval"):
            host.ask(**STRICT)
        assert host.ask(**STRICT, check=True)["changed"]


def test_only_root_may_ask(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    request = memory_change.Request("present", {"margin": 10}, None, True)
    with pytest.raises(MemoryPolicyError, match="use become"):
        memory_change.MemoryChange(request, lambda argv: (1, "", "")).run()
    with pytest.raises(MemoryPolicyError, match="use become"):
        memory_change.protect_differences(HostFs("/"), lambda argv: (1, "", ""), ["db"])


def test_what_the_host_says_is_read_once(host, monkeypatch):
    host.ask(**STRICT)
    read, seen, asked = HostFs.read, collections.Counter(), []
    monkeypatch.setattr(HostFs, "read", lambda fs, path, *rest: (seen.update([path]), read(fs, path, *rest))[1])
    run = host.run_command
    host.run_command = lambda argv: (asked.append(argv[1]), run(argv))[1]
    host.ask(**HEURISTIC, check=True)
    # Ours is one of the files that decide at boot, and also the one to be written.
    assert seen.pop(OURS) == 2 and set(seen.values()) == {1}
    assert asked == ["show"]


def test_facts_and_the_change_agree_about_services(host):
    fs = HostFs(str(host.root))
    assert memory_change.protect_differences(fs, host.run_command, ["db"]) == [
        "db.service is not protected from the OOM killer, or will not be after its next start"
    ]
    host.ask(protect=["db"])
    assert memory_change.protect_differences(fs, host.run_command, ["db.service"]) == []
    assert memory_change.protect_differences(fs, host.run_command, []) == [
        "db.service is protected from the OOM killer, but should not be"
    ]


@pytest.mark.parametrize("name", CALLS)
def test_the_answer_crosses_the_border(host, name):
    earlier, call = CALLS[name]
    for one in earlier:
        host.ask(**one)
    result = host.ask(**call)
    warnings = [{"msg": warning} for warning in result.pop("warnings")]
    assert answers.accept("smt_memory", json.dumps({**result, "warnings": warnings, "invocation": {}})) == result
