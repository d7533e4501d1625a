# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the firmware says beside what the kernel shows."""

from __future__ import annotations

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._firmware import agreement
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

UNKNOWN = bmc_server.kernel(supported=None, active=None)
OFFLINE = bmc_server.kernel(active=False, control="off")


def seen(state="enabled", **changes):
    value = {"enabled": "Enabled", "disabled": "Disabled", "auto": "Auto", "unknown": "3"}[state]
    fields = {
        "system": "1",
        "attribute": "LogicalProc",
        "value": value,
        "state": state,
        "staged": None,
        "staged_value": None,
        "is_off": False,
        "core_limits": (),
        "counts": {"sockets": None, "cores": None, "threads": None},
        "tasks": {"enabled": "turn it on", "disabled": "turn it off"},
        "needs_job": False,
    }
    return agreement.Seen(**{**fields, **changes})


def compare(system, kernel):
    return agreement.compare([system], None if kernel is None else agreement.kernel_of(kernel))


@pytest.mark.parametrize(
    ("state", "kernel", "agrees"),
    [
        ("enabled", bmc_server.kernel(), True),
        ("enabled", OFFLINE, True),
        ("enabled", bmc_server.ONE_THREAD, False),
        ("disabled", bmc_server.kernel(), False),
        ("disabled", OFFLINE, False),
        ("disabled", bmc_server.ONE_THREAD, True),
        ("auto", bmc_server.kernel(), True),
        ("auto", OFFLINE, True),
        ("auto", bmc_server.ONE_THREAD, None),
        ("unknown", bmc_server.kernel(), None),
        ("unknown", bmc_server.ONE_THREAD, None),
        ("enabled", UNKNOWN, None),
        ("disabled", UNKNOWN, None),
        ("enabled", bmc_server.kernel(hypervisor="kvm"), None),
        ("disabled", bmc_server.kernel(hypervisor="kvm"), None),
    ],
)
def test_whether_they_agree(state, kernel, agrees):
    found = compare(seen(state), kernel)
    assert found.agrees is agrees
    # What agrees needs no sentence, and where there is none to say what the setting means the facts have a problem.
    assert [one.about for one in found.findings] == ([] if agrees or state == "unknown" else ["kernel"])


def sentence(system, kernel):
    (finding,) = compare(system, kernel).findings
    return finding.sentence


def test_siblings_that_the_kernel_holds_offline_are_there():
    assert sentence(seen("disabled"), OFFLINE).startswith(
        "the firmware says LogicalProc=Disabled, and the kernel has second threads, which it holds offline: the value"
        " is not in force. "
    )


def test_a_difference_names_the_way_out():
    assert sentence(seen("enabled"), bmc_server.ONE_THREAD) == (
        "the firmware says LogicalProc=Enabled, and the kernel shows one thread a core: the value is not in force, or"
        " the processor has no second threads. Power the host off and on; if that changes nothing, set the value once"
        " more (turn it on)"
    )
    assert sentence(seen("disabled"), bmc_server.kernel()).endswith("set the value once more (turn it off)")
    assert sentence(seen("auto"), bmc_server.ONE_THREAD).endswith("where the processor has two, set it (turn it on)")
    without = seen("auto", tasks={"enabled": None, "disabled": None})
    assert sentence(without, bmc_server.ONE_THREAD).endswith("where the processor has two, set it")


@pytest.mark.parametrize("argument", ["nr_cpus=18", "maxcpus=18", "possible_cpus=18", "nosmp"])
def test_a_kernel_that_does_not_look_at_all_cpus_says_nothing_of_the_firmware(argument):
    kernel = {**bmc_server.ONE_THREAD, "boot": {"running": ["nosmt", argument]}}
    found = compare(seen("enabled"), kernel)
    assert found.agrees is None and argument in found.findings[0].sentence
    # Second threads that it sees all the same are there.
    assert compare(seen("enabled"), bmc_server.kernel(boot={"running": [argument]})).agrees is True


def test_what_waits_for_the_next_boot_is_a_finding_by_itself():
    waiting = seen("enabled", staged="disabled", staged_value="Disabled")
    assert (
        sentence(waiting, None)
        == "LogicalProc=Disabled is pending until the next boot; LogicalProc=Enabled is in force"
    )
    assert "configuration job" in sentence(waiting._replace(needs_job=True), None)


def test_a_kernel_that_shows_what_waits_has_booted_before_the_bmc_looked():
    waiting = seen("enabled", staged="disabled", staged_value="Disabled")
    found = compare(waiting, bmc_server.ONE_THREAD)
    assert found.agrees is False and "the BMC has not seen the last boot yet" in found.findings[1].sentence
    back = seen("disabled", staged="enabled", staged_value="Enabled")
    assert "the BMC has not seen the last boot yet" in compare(back, bmc_server.kernel()).findings[1].sentence
    # The same value as the one that the kernel does not show explains nothing.
    odd = seen("enabled", staged="auto", staged_value="Auto")
    assert "Power the host off" in compare(odd, bmc_server.ONE_THREAD).findings[1].sentence


@pytest.mark.parametrize(
    ("state", "cores", "threads", "is_found"),
    [
        ("enabled", 36, 72, False),
        ("enabled", 36, 36, True),
        ("disabled", 36, 72, True),
        ("disabled", 36, 36, False),
        ("auto", 36, 36, False),
        ("enabled", None, 72, False),
        ("enabled", 36, None, False),
    ],
)
def test_the_inventory_of_a_bmc_may_be_old(state, cores, threads, is_found):
    counts = {"sockets": 2, "cores": cores, "threads": threads}
    found = compare(seen(state, counts=counts), None).findings
    assert [one.about for one in found] == (["inventory"] if is_found else [])


def test_fewer_cores_are_not_smt_off():
    assert sentence(seen(core_limits=("ProcCores=4",)), None).startswith("ProcCores=4 leaves a part of the cores off")


def test_a_host_whose_facts_are_there_is_not_off():
    found = compare(seen(is_off=True), bmc_server.kernel())
    assert (found.agrees, [one.about for one in found.findings]) == (True, ["power"])
    assert compare(seen(is_off=True), None).findings == []


def test_of_several_systems_the_one_with_the_setting_is_the_host():
    board = seen("unknown", system="HGX", attribute=None, value=None)
    kernel = agreement.kernel_of(bmc_server.ONE_THREAD)
    assert agreement.compare([board, seen()], kernel).agrees is False
    found = agreement.compare([seen(system="A"), seen("disabled", system="B")], kernel)
    assert found.agrees is None and found.findings[0].sentence.startswith("which of the systems A, B is the host")


@pytest.mark.parametrize(
    "facts",
    [
        {"supported": "yes", "active": 1, "hypervisor": ["kvm"], "boot": "nosmt"},
        {"supported": None, "boot": {"running": "nr_cpus=1"}},
        {"supported": 1, "boot": {"running": [1, None, {"nr_cpus=": 2}]}},
        {"supported": []},
    ],
)
def test_facts_of_another_type_are_not_known(facts):
    assert agreement.kernel_of(facts) == agreement.Kernel(None, None, None, ())


def test_facts_of_a_host_are_shown_as_text_alone():
    kernel = agreement.kernel_of(
        {"supported": False, "boot": {"running": ["nr_cpus=1\x1b[2J"]}, "hypervisor": "\u202ekvm"}
    )
    assert kernel.hiding == ("nr_cpus=1\\x1b[2J",) and kernel.hypervisor == "\\u202ekvm"


def test_other_facts_are_refused():
    with pytest.raises(HostError, match="give what smt_facts returns"):
        agreement.kernel_of({"smt": {"supported": True}})
