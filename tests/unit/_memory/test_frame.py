# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory policy of a host as data, and put back as it was, whatever it was."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import (
    change as memory_change,
    frame as memory_frame,
)
from ansible_collections.threadwise.smt.plugins.module_utils._memory.errors import MemoryPolicyError
from fake_memory import VM, MemoryHost
from memory_tree import put

OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
DROP_IN = "etc/systemd/system/db.service.d/zz-threadwise-smt-memory.conf"
AMOUNT = {"overcommit": "strict", "overcommit_ratio": 80}
STRICT = {**AMOUNT, "on_oom": "panic", "panic_reboot_after": "10", "protect": ["db"]}
HEURISTIC = {"overcommit": "heuristic", "protect": ["web"]}
IN_KBYTES = {"overcommit": "strict", "overcommit_kbytes": 600000}
RESTORED = {"state": "restored"}


@pytest.fixture(name="host")
def _host(tmp_path, monkeypatch):
    return MemoryHost(tmp_path / "host", monkeypatch, overcommit_memory=1, overcommit_ratio=0, overcommit_kbytes=500004)


def frame(host):
    """The present policy, as it comes back from a file."""
    return memory_frame.checked(json.loads(json.dumps(memory_frame.present(HostFs(str(host.root))))))


def put_back(host, before, check=False):
    request = memory_change.Request(memory_change.PREVIOUS, {"margin": 0}, None, check, before)
    return memory_change.MemoryChange(request, host.run_command, str(host.root)).run()


@pytest.mark.parametrize("earlier", [[], [STRICT], [STRICT, HEURISTIC], [IN_KBYTES], [{"protect": ["db"]}]])
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


def test_lines_and_drop_ins_that_were_edited_come_back_as_they_were(host):
    host.ask(**STRICT)
    put(host.root, OURS, "# ours\n" + host.read(OURS))
    put(host.root, DROP_IN, "# mine\n" + host.read(DROP_IN))
    before, saved = host.everything(), frame(host)
    host.ask(overcommit="heuristic", protect=["db", "web"])
    assert "# mine" not in host.read(DROP_IN)
    put_back(host, saved)
    assert host.everything() == before


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


def refusal(host, saved, check=False):
    before = host.everything()
    with pytest.raises(MemoryPolicyError) as caught:
        put_back(host, saved, check)
    assert host.everything() == before
    return str(caught.value)


def test_a_failure_on_the_way_or_a_full_host_leaves_what_was_there(host):
    host.ask(**STRICT)
    saved = frame(host)
    host.ask(**HEURISTIC)
    host.fails = lambda effect: effect in (VM + "panic_on_oom = 1", VM + "overcommit_memory = 2")
    assert "Everything is as it was before" in refusal(host, saved)
    host.fails = lambda effect: False
    meminfo = host.read("proc/meminfo")
    put(host.root, "proc/meminfo", meminfo.replace("Committed_AS:      24188 kB", "Committed_AS:     900000 kB"))
    for check in (True, False):
        said = refusal(host, saved, check)
        assert said.startswith("nothing was put back, because the host would not survive the previous policy: "), said


@pytest.mark.parametrize(
    "damage",
    [
        {"sysctls": {"kernel.core_pattern": 1}},
        {"sysctls": {"vm.overcommit_memory": True}},
        {"text": 5},
        {"drop_ins": {"../x.service": ""}},
        {"drop_ins": {"db.service": 1}},
        {"snapshot": {"sysctls": {}, "units": {"x": 1}}},
    ],
)
def test_a_frame_of_other_things_is_refused(host, damage):
    with pytest.raises((ValueError, TypeError, KeyError)):
        memory_frame.checked({**frame(host), **damage})


def test_it_is_described_in_a_few_words(host):
    host.ask(**STRICT)
    words = "vm.overcommit_memory 2, vm.panic_on_oom 1, db.service spared by the OOM killer"
    assert memory_frame.described(frame(host)) == words
