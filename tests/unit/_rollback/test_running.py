# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run-time state of a host that a policy changes, put back in whatever form it was."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._rollback import change as rollback_change, record
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._smt.at_boot import persistence
from fake_host import Host

PART = {"state": "disabled", "cores": {"cpus": "4-7"}}


@pytest.fixture(name="host")
def _host(tmp_path, monkeypatch):
    host = Host(tmp_path)
    monkeypatch.setattr(kernel_files, "KernelFiles", lambda _sysroot: host)
    return host


def rollback(host, state, **options):
    request = rollback_change.Request(state, ("running",) if state == "saved" else (), **options)
    return rollback_change.Rollback(request, host.run_command, host.sysroot).run()


def state(host):
    """The CPUs and what keeps them over boots, byte for byte."""
    fs = host_files.HostFs(host.sysroot)
    return smt_state.read(files=host), {path: fs.read(path) for path in persistence.PATHS}


def one_by_one(host):
    for cpu in (3, 6):
        host.write(f"sys/devices/system/cpu/cpu{cpu}/online", "0")


EARLIER = {
    "nothing": lambda host: None,
    "part, kept": lambda host: host.ask(**PART, persist="tmpfiles"),
    "off, kept": lambda host: host.ask("disabled", persist="systemd"),
    "off, from a part": lambda host: (host.ask(**PART), host.ask("disabled")),
    "one by one": one_by_one,
    "one by one, then a part": lambda host: (one_by_one(host), host.ask(**PART)),
}
WAVES = {
    "disabled": lambda host: host.ask("disabled"),
    "enabled": lambda host: host.ask("enabled"),
    "another part, kept": lambda host: host.ask("disabled", cores={"cpus": "0-1"}, persist="systemd"),
    "restored": lambda host: host.ask("restored"),
}


@pytest.mark.night(after=3)
@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("earlier", EARLIER)
def test_each_form_is_put_back_and_the_first_state_after_it(host, earlier, wave):
    EARLIER["one by one" if earlier.startswith("one by one") else "nothing"](host)
    first = state(host)
    EARLIER[earlier](host)
    before = state(host)
    rollback(host, "saved", rollout=True)
    WAVES[wave](host)
    changed = state(host) != before
    assert rollback(host, "back", check=True)["changed"] >= changed
    result = rollback(host, "back")
    assert state(host) == before and result["changed"] >= changed
    assert rollback(host, "back")["changed"] is False, "once is enough"
    rollback(host, "confirmed")
    host.ask("restored")
    assert state(host) == first


def test_it_says_what_it_goes_back_to_also_after_a_boot_of_its_own(host):
    EARLIER["part, kept"](host)
    before, words = state(host), "CPUs 0-4,6 online, kept over boots"
    assert rollback(host, "saved", rollout=True)["back_to"] == words
    host.ask("enabled")
    host.boot("second")
    back = rollback(host, "back")
    assert (back["changed"], back["back_to"]) == (True, words) and state(host)[0] == before[0]
    assert record.pending(host_files.HostFs(host.sysroot))["back_to"] == words


def test_what_was_bound_since_is_a_warning_and_does_not_keep_the_host_from_going_back(host):
    host.ask(**PART)
    before = state(host)
    rollback(host, "saved")
    host.ask("enabled")
    for folder in ("proc/5", "proc/5/task/5"):
        host.put(f"{folder}/stat", "5 (sleep) S 1 0 0 0 0 4194304" + " 0" * 12 + " 1000" + " 0" * 20)
        host.put(f"{folder}/status", "Name:\tsleep\nUid:\t0\t0\nCpus_allowed_list:\t7\n")
        host.put(f"{folder}/cgroup", "0::/system.slice/db.service")
        host.put(f"{folder}/loginuid", "4294967295")
    change = rollback_change.Rollback(rollback_change.Request("back"), host.run_command, host.sysroot)
    change.run()
    assert state(host) == before and "is pinned to 7 alone" in change.warnings[0]


def test_a_cpu_that_does_not_go_back_is_the_error(host, monkeypatch):
    host.ask(**PART)
    rollback(host, "saved", rollout=True)
    host.ask("enabled")
    write = host.write

    def refuse(path, text):
        if path.endswith("cpu5/online"):
            raise OSError(16, "Device or resource busy", path)
        write(path, text)

    monkeypatch.setattr(host, "write", refuse)
    with pytest.raises(
        rollback_change.RollbackError, match=r"^not all is back as it was \(CPUs 0-4,6 online\): .*cpu5"
    ):
        rollback(host, "back")
    assert json.loads(host.read(record.FILE.path))["rollout"] is True
