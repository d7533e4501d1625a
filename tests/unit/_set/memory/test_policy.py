# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of memory policies, held against what kernels reported (recorded_memory); facts; which file decides
at boot; scores of services; what is saved.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import time

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.options import smt_memory, smt_memory_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    overcommit_test,
    policy as memory_policy,
    snapshot as memory_snapshot,
    sysctl_files,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.policy import GIB, MIB
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.services import oom_score
from fake_memory import Systemd, process
from hypothesis import given, strategies as st
from memory_tree import put, tree

RECORDED = pathlib.Path(__file__).parents[2] / "support" / "recorded_memory"
OVERCOMMIT, RATIO, KBYTES = memory_policy.OVERCOMMIT, memory_policy.RATIO, memory_policy.KBYTES
ON_OOM, PANIC, HUGEPAGES = memory_policy.ON_OOM, memory_policy.PANIC, memory_policy.HUGEPAGES
DEFAULTS = {OVERCOMMIT: 0, RATIO: 50, KBYTES: 0, ON_OOM: 0, PANIC: 0, HUGEPAGES: 0}


def recorded(name):
    """Return the memory and the settings of a guest."""
    text = (RECORDED / (name + ".txt")).read_text()
    sysctls = {key: int(value) for key, value in re.findall(r"^(vm\.\w+) = (\d+)$", text, re.MULTILINE)}
    reserve = sysctls.pop("vm.admin_reserve_kbytes") * 1024
    return memory_facts.parse_meminfo(text, reserve), dict(DEFAULTS, **sysctls)


made = memory_policy.Memory(8 * GIB, 6 * GIB, 0, 0, 2 * MIB, GIB, None, 8 * MIB)._replace


def strict(ratio=None, **options):
    return {"overcommit": "strict", "overcommit_ratio": ratio, **options}


def test_each_sysctl_is_an_option_that_is_set_and_judged():
    roles = pathlib.Path(__file__).parents[4] / "roles"
    (_checked, task), (_count, status) = (
        yaml.safe_load((roles / path).read_text())
        for path in ("smt_memory/tasks/main.yml", "smt_policy/tasks/status.yml")
    )
    options = {sysctl.option: list(sysctl.words) for sysctl in memory_policy.SYSCTLS.values()}
    for named, more in (
        (smt_memory.ARGUMENTS, {"state", "protect", "margin"}),
        (task["threadwise.smt.smt_memory"], {"state", "protect", "margin"}),
        (smt_memory_facts.ARGUMENTS, {"sysroot", "protect", "margin"}),
        (status["threadwise.smt.smt_status"]["variables"]["memory"], {"margin"}),
    ):
        assert named.keys() == {*options, *more}
    choices = {
        name: smt_memory.ARGUMENTS[name]["choices"] for name in options if "choices" in smt_memory.ARGUMENTS[name]
    }
    assert {**options, **choices} == options


@pytest.mark.parametrize("guest", ["hugepages", "swap", "kbytes"])
def test_commit_limit_is_the_kernels(guest):
    memory, present = recorded(guest)
    assert memory_policy.commit_limit(memory, present) == memory.commit_limit


def headroom(memory, present):
    found = memory_policy.headroom(memory, present)
    return tuple(found[name] for name in ("bytes", "unprivileged_bytes", "largest_request_bytes"))


def test_headroom():
    memory, present = recorded("hugepages")
    left = (563268 - 24188) * 1024
    assert headroom(memory, present) == (left, left - 8192 * 1024, left)
    assert headroom(made(committed=None), present) == headroom(made(), {**present, OVERCOMMIT: 7}) == (None,) * 3
    memory, present = recorded("swap")
    assert headroom(memory, {**present, OVERCOMMIT: 0}) == (None, None, (736856 + 204796) * 1024)
    assert headroom(memory, {**present, OVERCOMMIT: 1}) == (None,) * 3


FULL = {"total": int(4.1 * GIB), "committed": int(2.9 * GIB)}
IN_KBYTES = {"overcommit": "strict", "overcommit_kbytes": 1024}
SHORT = "would allow {}, but {} are already committed, margin {}: raise the {} or more".format
RESERVE = "0 % (at least the 8 MiB that the kernel reserves for root)"
HUGE = "51 huge pages would take another 102 MiB, but only 100 MiB are available: set 50 or fewer"
NO_HUGE = "this kernel does not report huge pages, so it is unknown whether 1 of them would fit: leave nr_hugepages out"
UNKNOWN = "/proc/meminfo does not report what a strict policy would allow on this host or what is already committed: "
UNKNOWN += "it is unknown whether the host would keep working"


@pytest.mark.parametrize(
    ("memory", "options", "margin", "present", "said"),
    [
        (FULL, strict(76), 10, {}, SHORT("3.1 GiB", "2.9 GiB", "10 %", "ratio to 78")),
        (FULL, strict(78), 10, {}, None),
        ({"swap": 512 * MIB}, IN_KBYTES, 0, {}, SHORT("513 MiB", "1.0 GiB", RESERVE, "kbytes to 532480")),
        # Huge pages lower the limit of a host that is strict already. It is not refused what it has.
        (
            {"committed": 3 * GIB},
            {"nr_hugepages": 1024},
            10,
            {OVERCOMMIT: 2},
            SHORT(*["3.0 GiB"] * 2, "10 %", "ratio to 56"),
        ),
        ({"committed": int(3.9 * GIB)}, strict(50), 10, {OVERCOMMIT: 2}, None),
        (
            {"committed": int(3.9 * GIB)},
            strict(49),
            10,
            {OVERCOMMIT: 2},
            SHORT(*["3.9 GiB"] * 2, "10 %", "ratio to 54"),
        ),
        ({"available": 100 * MIB}, {"nr_hugepages": 51}, 10, {}, HUGE),
        ({"available": 100 * MIB}, {"nr_hugepages": 50}, 10, {}, None),
        ({"hugepage": None}, {"nr_hugepages": 1}, 10, {}, NO_HUGE),
        ({"committed": None}, strict(90), 10, {}, UNKNOWN),
    ],
)
def test_a_refusal_has_the_figures_and_the_way_out(memory, options, margin, present, said):
    present = {**DEFAULTS, **present}
    assert memory_policy.refusal(made(**memory), present, memory_policy.settings(options, present), margin) == said


@given(
    total=st.integers(64 * MIB, 64 * 1024 * GIB),
    promised=st.floats(0, 3),
    swap=st.integers(0, 64 * GIB),
    huge=st.floats(0, 0.99),
    ratio=st.integers(1, 200),
    margin=st.integers(0, 100),
    page=st.sampled_from([4096, 65536]),
)
def test_advised_ratio_is_enough_and_the_least(total, promised, swap, huge, ratio, margin, page):
    memory = made(total=total, committed=int(total * promised), swap=swap, hugetlb=int(total * huge))
    text = memory_policy.refusal(memory, DEFAULTS, {RATIO: ratio, OVERCOMMIT: 2}, margin, page)
    if text is None:
        return
    advised = int(re.search(r"raise the ratio to (\d+) or more", text).group(1))
    assert advised > ratio
    assert memory_policy.refusal(memory, DEFAULTS, {RATIO: advised, OVERCOMMIT: 2}, margin, page) is None
    assert memory_policy.refusal(memory, DEFAULTS, {RATIO: advised - 1, OVERCOMMIT: 2}, margin, page) is not None


PANICS = {"on_oom": "panic", "panic_reboot_after": "5"}


@pytest.mark.parametrize(
    ("options", "present", "written"),
    [
        # In the order in which no state on the way is worse. Without an amount the present one stays.
        (strict(80, nr_hugepages=3, **PANICS), {}, {HUGEPAGES: 3, RATIO: 80, OVERCOMMIT: 2, PANIC: 5, ON_OOM: 1}),
        (strict(), {}, {RATIO: 50, OVERCOMMIT: 2}),
        (strict(), {RATIO: 0, KBYTES: 7000}, {KBYTES: 7000, OVERCOMMIT: 2}),
        ({"on_oom": "kill"}, {}, {ON_OOM: 0}),
    ],
)
def test_what_is_written_in_which_order(options, present, written):
    found = memory_policy.settings(options, {**DEFAULTS, **present})
    assert list(found.items()) == list(written.items())
    # What is restored is written the other way round.
    written = memory_policy.in_order({PANIC: 0, ON_OOM: 0, RATIO: 50, OVERCOMMIT: 0})
    assert list(written) == [OVERCOMMIT, RATIO, ON_OOM, PANIC]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (strict(80, overcommit_kbytes=80), "the kernel sets one to 0 when the other is written: choose one"),
        ({"overcommit": "heuristic", "overcommit_ratio": 80}, "limit what a strict policy allows: set overcommit to"),
        (strict(0), "overcommit_ratio is 0: it must be from 1 to 1000"),
        ({"on_oom": "panic"}, "on_oom is panic without panic_reboot_after"),
        ({**PANICS, "panic_reboot_after": "5; reboot"}, "it must be a number of seconds from 1 to 86400"),
        (strict(), "neither overcommit_ratio nor overcommit_kbytes set"),
    ],
)
def test_contradictions_are_refused(options, said):
    with pytest.raises(memory_policy.PolicyError, match=re.escape(said)) as caught:
        memory_policy.settings(options, {**DEFAULTS, RATIO: 0})
    assert len(str(caught.value)) < 300


OPTIONS = {"overcommit": "strict", "overcommit_ratio": 80, "margin": 10}


def test_protected_units_are_those_with_a_negative_score(tmp_path):
    root = tree(tmp_path)
    rows = (10, -900, "dbus.service"), (12, 0, "cron.service"), (13, -1000, "systemd-udevd.service/udev")
    for pid, score, cgroup in rows:
        put(root, f"proc/{pid}/oom_score_adj", f"{score}\n")
        put(root, f"proc/{pid}/cgroup", f"0::/system.slice/{cgroup}\n")
    found = [tuple(one.values()) for one in memory_facts.gather(HostFs(root))["protected_units"]]
    assert found == [("dbus.service", -900), ("systemd-udevd.service", -1000)]


def test_wanted_policy(tmp_path):
    root = tree(tmp_path, overcommit_memory=0, overcommit_ratio=50)
    wanted = memory_facts.gather(HostFs(root), OPTIONS)["wanted"]
    assert wanted["commit_limit_bytes"] == 563268 * 1024
    assert (wanted["refusal"], wanted["overrides"]) == (None, [])
    assert wanted["sysctls"] == {"vm.overcommit_ratio": 80, "vm.overcommit_memory": 2}
    assert wanted["differences"][0] == "vm.overcommit_ratio reads 50 instead of 80" and len(wanted["differences"]) == 2
    assert memory_facts.gather(HostFs(tree(tmp_path)), OPTIONS)["wanted"]["differences"] == []


WANTED = {"vm.overcommit_ratio": 80, "vm.overcommit_memory": 2}
OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
TUNED = {"etc/tuned/tuned-main.conf": "reapply_sysctl = 0\n", "etc/tuned/active_profile": "mine\n"}
PROFILE = "[main]\ninclude=throughput, mine\n[sysctl]\nvm.overcommit_memory = 1\n"
INCLUDED = "[sysctl]\nvm.overcommit_ratio=>40\nvm.overcommit_memory=0\n"
PROFILES = {"etc/tuned/mine/tuned.conf": PROFILE, "usr/lib/tuned/profiles/throughput/tuned.conf": INCLUDED}
OF_ZZ, THROUGHPUT = "/usr/lib/sysctl.d/99-zz.conf sets ", "throughput sets vm.overcommit_ratio to 40"
SECRET = {"secret/tuned.conf": "[sysctl]\nvm.overcommit_memory=0\n"}


def boot_files(root, files):
    for path, text in files.items():
        put(root, path, text)
    return sysctl_files.BootFiles(HostFs(str(root)))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"usr/lib/sysctl.d/99-zz.conf": "-vm/overcommit_memory=1\n"}, [OF_ZZ + "vm.overcommit_memory to 1"]),
        # systemd-sysctl writes the kbytes after the ratio: that is reset to 0 although our file is read last.
        (
            {"etc/sysctl.d/1.conf": "vm.overcommit_ratio = 80\n", "etc/sysctl.d/2.conf": "vm.overcommit_kbytes = 50\n"},
            ["/etc/sysctl.d/2.conf sets vm.overcommit_ratio to 0"],
        ),
        ({"etc/sysctl.conf": "vm.overcommit_memory = 0\n"}, ["/etc/sysctl.conf sets vm.overcommit_memory to 0"]),
        ({**PROFILES, **TUNED}, [f"profile {one}" for one in (THROUGHPUT, "mine sets vm.overcommit_memory to 1")]),
        *(({**TUNED, **SECRET, "etc/tuned/active_profile": name}, []) for name in ("../../secret", "-x", "a" * 5000)),
    ],
)
def test_what_overrides_our_file_is_named(tmp_path, files, said):
    found = boot_files(tmp_path, files).overrides(WANTED)
    assert len(found) == len(said) and all(one in sentence for one, sentence in zip(said, found, strict=True)), found


BOTH = "vm.overcommit_memory=2\nvm.overcommit_ratio=80\n"
ZZ = {"etc/sysctl.d/99-zz.conf": "vm.overcommit_memory=0\n"}
NO_FILE = "no file sets vm.overcommit_{} at boot".format
OF_TUNED = {**TUNED, "etc/tuned/mine/tuned.conf": "[sysctl]\nvm.overcommit_ratio=50\n"}


@pytest.mark.parametrize(
    ("files", "differs", "is_blocked"),
    [
        ({}, [NO_FILE("ratio"), NO_FILE("memory")], False),
        ({"etc/sysctl.d/50-db.conf": BOTH}, [], False),
        ({OURS: BOTH, **ZZ}, ["99-zz.conf sets vm.overcommit_memory to 0 instead of 2 at boot"], True),
        ({OURS: BOTH, **OF_TUNED}, ["the TuneD profile mine sets vm.overcommit_ratio to 50"], True),
    ],
)
def test_the_values_at_boot_are_compared_with_the_wanted_ones(tmp_path, files, differs, is_blocked):
    found, blocked_by = boot_files(tmp_path, files).differences(WANTED)
    assert len(found) == len(differs) and all(one in said for one, said in zip(differs, found, strict=True)), found
    assert (blocked_by is not None) == is_blocked


DROP_IN = "etc/systemd/system/db.service.d/zz-threadwise-smt-memory.conf"


@pytest.fixture(name="booted", autouse=True)
def booted_with_systemd(tmp_path):
    put(tmp_path, "run/systemd/system/README", "")


def score(root, pid):
    return int((root / f"proc/{pid}/oom_score_adj").read_text())


def protect(root, run, names, saved=None):
    """Do what the transaction does, but return the scores to save instead of writing them to a file."""
    fs, saved = HostFs(str(root)), saved or {}
    work = oom_score.work_out(fs, run, names, saved)
    files = oom_score.files(work)
    config_files.apply(fs, config_files.changes(fs, files))
    if files:
        oom_score.remove_empty_folders(fs, files)
        oom_score.reload_units(run)
    oom_score.set_scores(fs, run, work)
    return {unit: one for unit, one in oom_score.to_save(saved, work).items() if unit not in work["release"]}


def converged(root, run, names, saved):
    work = oom_score.work_out(HostFs(str(root)), run, names, saved)
    return not work["protect"] and not work["release"]


def test_protect_and_restore(tmp_path):
    run = Systemd(str(tmp_path), db={"main": 10, "score": 100})
    for pid in (10, 11):
        process(tmp_path, pid, 100)
    process(tmp_path, 12, 7)
    # A drop-in of the administrator stays.
    put(tmp_path, "etc/systemd/system/db.service.d/own.conf", "[Service]\n")
    kept = protect(tmp_path, run, ["db"])
    assert (tmp_path / DROP_IN).read_text().endswith("[Service]\nOOMScoreAdjust=-900\n")
    # Process 12 has set its own score.
    assert [score(tmp_path, pid) for pid in (10, 11, 12)] == [-900, -900, 7]
    assert converged(tmp_path, run, ["db.service"], kept)
    # A child that was forked later has inherited the score.
    process(tmp_path, 13, -900)
    assert protect(tmp_path, run, [], kept) == {} and os.listdir((tmp_path / DROP_IN).parent) == ["own.conf"]
    assert [score(tmp_path, pid) for pid in (10, 11, 12, 13)] == [100, 100, 7, 100] and run.reloads == 2


def test_who_sets_scores_itself_is_left_alone(tmp_path):
    run = Systemd(str(tmp_path), db={"main": 10}, dbus={"main": 20, "score": -900})
    assert converged(tmp_path, run, ["dbus"], {})
    process(tmp_path, 10, 0)
    kept = protect(tmp_path, run, ["db"])
    # A backend that resets its score.
    process(tmp_path, 11, 0)
    assert converged(tmp_path, run, ["db"], kept) and score(tmp_path, 11) == 0


def test_what_cannot_be_protected_is_refused_before_anything_is_done(tmp_path):
    run = Systemd(str(tmp_path), db={"main": 0})
    with pytest.raises(oom_score.UnitError, match=r"nosuch\.service"):
        protect(tmp_path, run, ["db", "nosuch"])
    (tmp_path / "run/systemd/system/README").unlink()
    (tmp_path / "run/systemd/system").rmdir()
    with pytest.raises(oom_score.UnitError, match=r"protect names db.service, and systemd, .* does not run"):
        protect(tmp_path, run, ["db"])
    assert protect(tmp_path, run, []) == {} and os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("sshd", "sshd.service"),
        ("a\\x2db:c_d@e.service", "a\\x2db:c_d@e.service"),
        *((name, None) for name in ("", "../../etc/passwd", "a\n[Service]", "$(x)", "a@.service", "a" * 256, "\u00e4")),
    ],
)
def test_names_of_services(name, full):
    if full is None:
        with pytest.raises(oom_score.UnitError, match="is not a valid name"):
            oom_score.check_name(name)
    else:
        assert oom_score.check_name(name) == full


KEPT = "var/lib/threadwise-smt/memory.json"
NOTHING = {"sysctls": {}, "units": {}}
# In the kernel at least one of ratio and kbytes is 0.
AMOUNTS = st.one_of(st.tuples(st.integers(0, 200), st.just(0)), st.tuples(st.just(0), st.integers(1, 10**7)))
POLICIES = st.builds(
    lambda overcommit, amount, *others: dict(zip(memory_policy.SYSCTLS, (overcommit, *amount, *others), strict=False)),
    *(st.integers(0, 2), AMOUNTS, st.integers(0, 2), st.integers(-1, 30), st.integers(0, 9)),
)


@given(present=POLICIES, saved=POLICIES)
def test_restoring_gives_the_saved_settings(present, saved):
    assert memory_policy.resulting(present, memory_snapshot.settings_to_restore(present, saved)) == saved
    assert memory_snapshot.settings_to_restore(saved, saved) == {}


GOOD = {"schema": "threadwise.smt/memory", "schema_version": 1, "sysctls": {OVERCOMMIT: 0}, "units": {"a.service": 0}}
DAMAGES = [
    *({"schema": "other"}, {"schema_version": 2}, {"units": 5}),
    *({"sysctls": one} for one in ([1], {"kernel.core_pattern": 0}, {OVERCOMMIT: "|/bin/sh"}, {OVERCOMMIT: True})),
    *({"units": one} for one in ({"../x": 0}, {"*.service": 0}, {"a.service": "0"}, {"a.service": None})),
]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "[" * 100000, *(json.dumps({**GOOD, **damage}) for damage in DAMAGES)], ids=len
)
def test_a_damaged_snapshot_is_refused_with_a_way_out(tmp_path, text):
    put(tmp_path, KEPT, json.dumps(GOOD))
    assert memory_snapshot.load(HostFs(str(tmp_path))) == {name: GOOD[name] for name in ("sysctls", "units")}
    put(tmp_path, KEPT, text)
    with pytest.raises(memory_snapshot.MemorySnapshotError, match=r"memory.json cannot be used.*[Rr]emove it"):
        memory_snapshot.load(HostFs(str(tmp_path)))


@pytest.fixture(autouse=True)
def _no_process_is_left():
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    ("length", "touch", "outcome", "touched"),
    [(1 << 60, False, "enomem", 0), (4 * MIB, False, "granted", 0), (20 * MIB, True, "survived", 20 * MIB)],
)
def test_what_becomes_of_a_request(length, touch, outcome, touched):
    assert overcommit_test.run(length, touch) == {"outcome": outcome, "touched_bytes": touched}


def test_what_has_no_result_or_hangs_is_an_error():
    with pytest.raises(overcommit_test.OvercommitTestError, match="without a result"):
        overcommit_test.run(0)
    with pytest.raises(overcommit_test.OvercommitTestError, match="was killed"):
        overcommit_test._in_child(lambda _report: (time.sleep(20), os._exit(0)), 0.1)
