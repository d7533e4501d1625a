# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each arm leaves open of the kernel's list: nothing is called closed that may be open."""

from __future__ import annotations

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._facts.vulnerabilities import read
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.plugin_utils._boots import boot_plan, boot_results
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion.of_arms import exposure
from result_maker import accepted

# As the kernel's arch/x86/kernel/cpu/bugs.c writes them.
FILES = {
    "l1tf": "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
    "mds": "Mitigation: Clear CPU buffers; SMT vulnerable",
    "meltdown": "Mitigation: PTI",
    "mmio_stale_data": "Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable",
    "retbleed": "Not affected",
    "vmscape": "Mitigation: IBPB before exit to userspace; SMT mitigated",
}


def kernels(directory, **changes):
    """What our facts read from such files."""
    place = directory / "sys/devices/system/cpu/vulnerabilities"
    place.mkdir(parents=True)
    for name, status in {**FILES, **changes}.items():
        (place / name).write_text(f"{status}\n", encoding="ascii")
    return read(HostFs(str(directory)))


def arms_of(tmp_path, names, shape=(1, 2, 2), guest_of=None, **changes):
    result = result_maker.result(arms=dict.fromkeys(names, 1.0), blocks=4, shape=shape, names=("all_threads",))
    result["facts"]["hypervisor"] = guest_of
    result["facts"]["vulnerabilities"] = kernels(tmp_path, **changes)
    return result, {one.name: one for one in exposure.of_arms(accepted(result))}


def test_one_thread_a_core_closes_what_depends_on_smt_and_nothing_else(tmp_path):
    _result, found = arms_of(tmp_path, ["smt_on", "smt_off", "nosmt", "mitigations_auto_nosmt"])
    on = {
        "l1tf": "smt_open",
        "mds": "smt_open",
        "meltdown": "mitigated",
        "mmio_stale_data": "vulnerable",
        "retbleed": "not_affected",
        "vmscape": "mitigated",
    }
    assert found["smt_on"].states == on and found["smt_on"].basis == "inferred"
    for name in ("smt_off", "nosmt", "mitigations_auto_nosmt"):
        assert found[name].states == {**on, "l1tf": "smt_closed", "mds": "smt_closed"}, name
    assert (
        "closes the part that depends on SMT, of l1tf, mds (one thread of each core is online)" in found["smt_off"].text
    )
    assert "leaves vulnerable as a whole mmio_stale_data" in found["smt_off"].text


@pytest.mark.parametrize(
    ("status", "states"),
    [
        ("Mitigation: SMT disabled", ("smt_closed", "not_known", "smt_closed")),
        ("Mitigation: Safe RET", ("mitigated", "mitigated", "mitigated")),
        ("Vulnerable", ("vulnerable", "vulnerable", "not_known")),
        ("Not affected", ("not_affected",) * 3),
    ],
)
def test_speculative_return_stack_overflow_depends_on_whether_smt_was_possible_at_boot(tmp_path, status, states):
    arms = ("smt_off", "nosmt", "nosmt_force")
    _result, found = arms_of(tmp_path, ["smt_on", *arms], spec_rstack_overflow=status)
    assert tuple(found[name].states["spec_rstack_overflow"] for name in arms) == states
    assert found["smt_off"].states["mds"] == found["nosmt_force"].states["mds"] == "smt_closed"


@pytest.mark.parametrize(
    "name",
    [
        "smt_off_on_node_0",
        "threads_per_core_2",
        "one_thread_per_core",
        "one_thread_per_core_unit_postgresql.service",
        "isolated",
    ],
)
def test_siblings_that_are_online_for_others_keep_it_open(tmp_path, name):
    _result, found = arms_of(tmp_path, ["smt_on", name], shape=(1, 2, 4))
    assert found[name].states["mds"] == "smt_open" and "so it is not closed by this arm" in found[name].text


@pytest.mark.parametrize(
    ("cpus", "state"), [(["0", "2"], "smt_closed"), (["0", "1", "2"], "smt_open"), (None, "not_known")]
)
def test_whether_maxcpus_closes_it_is_said_by_the_cpus_that_were_online(tmp_path, cpus, state):
    result, _found = arms_of(tmp_path, ["smt_on", "maxcpus_2"])
    result["plan"]["placements"]["maxcpus_2"]["all_threads"]["workers"] = cpus
    assert {one.name: one for one in exposure.of_arms(accepted(result))}["maxcpus_2"].states["mds"] == state
    # A plan that may use only a part of the CPUs shows nothing of the others.
    result["plan"]["placements"]["smt_on"]["all_threads"]["workers"] = ["0", "2"]
    assert {one.name: one for one in exposure.of_arms(accepted(result))}["maxcpus_2"].states["mds"] != "smt_closed"


def test_a_part_that_is_the_whole_machine_closes_it(tmp_path):
    result, found = arms_of(tmp_path, ["smt_on", "smt_off_on_node_0"], shape=(1, 2, 2))
    assert found["smt_off_on_node_0"].states["mds"] == "smt_open"
    result["plan"]["placements"]["smt_off_on_node_0"]["all_threads"]["workers"] = ["0", "2"]
    assert {one.name: one for one in exposure.of_arms(accepted(result))}["smt_off_on_node_0"].states[
        "mds"
    ] == "smt_closed"


def test_without_mitigations_all_that_was_mitigated_is_open(tmp_path):
    _result, found = arms_of(tmp_path, ["smt_on", "mitigations_off"])
    off = found["mitigations_off"]
    assert {name for name, state in off.states.items() if state == "opened"} == {"l1tf", "mds", "meltdown", "vmscape"}
    assert off.states["retbleed"] == "not_affected" and off.states["mmio_stale_data"] == "vulnerable"
    assert off.text.startswith("ends the mitigation of l1tf, mds, meltdown, vmscape; ")


def test_what_a_kernel_with_other_mitigations_says_does_not_tell_of_its_own_choice(tmp_path):
    result, found = arms_of(tmp_path, ["as_found", "mitigations_auto"])
    assert found["mitigations_auto"].states["mds"] == "smt_open"
    result["environment"]["cmdline"] = "root=/dev/vda1 mitigations=off"
    states = {one.name: one.states for one in exposure.of_arms(accepted(result))}
    assert states["mitigations_auto"]["mds"] == "not_known" and states["mitigations_auto"]["retbleed"] == "not_affected"
    assert states["as_found"]["mds"] == "smt_open"


def test_a_host_that_was_found_without_siblings_or_is_a_guest_is_not_guessed_at(tmp_path):
    disabled = dict.fromkeys(("l1tf", "mds"), "Mitigation: Clear CPU buffers; SMT disabled")
    _result, found = arms_of(tmp_path / "off", ["as_found", "smt_on", "smt_off"], **disabled)
    assert [found[name].states["mds"] for name in ("as_found", "smt_on", "smt_off")] == [
        "smt_closed",
        "not_known",
        "smt_closed",
    ]
    guest = {"mds": "Mitigation: Clear CPU buffers; SMT Host state unknown"}
    _result, found = arms_of(tmp_path / "guest", ["smt_on", "smt_off"], **guest)
    assert [found[name].states["mds"] for name in ("smt_on", "smt_off")] == ["not_known", "not_known"]


@pytest.mark.parametrize("status", ["vulnerable", "disabled"])
def test_an_arm_of_a_guest_closes_nothing(tmp_path, status):
    """Whoever else runs on the cores is not the guest's to choose."""
    retbleed = f"Mitigation: untrained return thunk; SMT {status}"
    _result, found = arms_of(tmp_path, ["as_found", "smt_on", "smt_off"], guest_of="kvm", retbleed=retbleed)
    assert found["smt_off"].states["retbleed"] == "not_known"
    assert "smt_closed" not in {state for arm in found.values() for state in arm.states.values()}


def test_a_host_that_cannot_see_what_is_open_does_not_have_nothing_open(tmp_path):
    seen = dict.fromkeys(FILES, "Not affected")
    hidden = {**seen, "mds": "Mitigation: Clear CPU buffers; SMT Host state unknown"}
    for number, (statuses, exposed) in enumerate(((seen, []), (hidden, None))):
        result, _found = arms_of(tmp_path / str(number), ["smt_on", "smt_off"], **statuses)
        assert exposure.exposed(accepted(result)) == exposed
    opened = {**hidden, "retbleed": "Mitigation: untrained return thunk; SMT vulnerable"}
    result, _found = arms_of(tmp_path / "opened", ["smt_on", "smt_off"], **opened)
    assert exposure.exposed(accepted(result)) == ["retbleed"]


def test_arms_that_change_nothing_of_it_have_no_table(tmp_path):
    assert arms_of(tmp_path / "memory", ["as_found", "overcommit_strict"])[1] == {}
    assert list(arms_of(tmp_path / "mixed", ["as_found", "overcommit_strict", "smt_off"])[1]) == ["as_found", "smt_off"]
    result, _found = arms_of(tmp_path / "none", ["smt_on", "smt_off"])
    result["facts"]["vulnerabilities"] = {}
    assert exposure.of_arms(accepted(result)) == [] and exposure.exposed(accepted(result)) is None


def test_what_was_read_in_an_arm_counts_and_not_what_it_should_be(tmp_path):
    """Boots are measured one by one, and the kernel of each says what holds in it."""
    made = []
    for number, arm in enumerate(("smt_on", "smt_off"), 1):
        leg = result_maker.result(
            compared=False, reason="not asked for", blocks=4, shape=(1, 2, 2), run=f"r-{number}", arms_left_out=[]
        )
        mds = (
            "Mitigation: Clear CPU buffers; SMT disabled"
            if arm == "smt_off"
            else "Mitigation: Clear CPU buffers; SMT vulnerable"
        )
        # Without its boot argument this kernel also leaves off what it had mitigated.
        leg["facts"]["vulnerabilities"] = kernels(
            tmp_path / arm, mds=mds, **({"meltdown": "Vulnerable"} if arm == "smt_off" else {})
        )
        made.append(boot_results.BootResult(number, arm, leg))
    facts = made[0].result["facts"]
    result = boot_results.join("r", made, boot_plan.make(["smt_on", "smt_off"], 1), facts, facts)
    results.accept(result, "joined")
    found = {one.name: one for one in exposure.of_arms(accepted(result))}
    assert {one.basis for one in found.values()} == {"read"}
    assert (found["smt_on"].states["mds"], found["smt_off"].states["mds"]) == ("smt_open", "smt_closed")
    # It should be closed, and the kernel says that it is not.
    assert found["smt_off"].states["l1tf"] == "smt_open"
    assert found["smt_off"].states["meltdown"] == "opened"
