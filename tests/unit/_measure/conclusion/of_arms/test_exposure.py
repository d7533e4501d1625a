# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each arm leaves open of the kernel's list: nothing is called closed that may be open."""

import facts_maker
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine.vulnerabilities import read
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import boot_plan, boot_results
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import exposure
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
    """A result of these arms, and what each leaves open of the kernel's list."""
    result = result_maker.result(arms=dict.fromkeys(names, 1.0), blocks=4, shape=shape, names=("all_threads",))
    result["facts"].update(hypervisor=guest_of, vulnerabilities=kernels(tmp_path, **changes))
    return result, found(result)


def found(result):
    return {one.name: one for one in exposure.of_arms(accepted(result))}


def mds_of(result):
    return {name: one.states["mds"] for name, one in found(result).items()}


def test_one_thread_a_core_closes_what_depends_on_smt_and_nothing_else(tmp_path):
    _result, made = arms_of(tmp_path, ["smt_on", "smt_off", "nosmt", "mitigations_auto_nosmt"])
    on = {"l1tf": "smt_open", "mds": "smt_open", "meltdown": "mitigated", "mmio_stale_data": "vulnerable"}
    on.update(retbleed="not_affected", vmscape="mitigated")
    assert made["smt_on"].states == on and made["smt_on"].basis == "inferred"
    for name in ("smt_off", "nosmt", "mitigations_auto_nosmt"):
        assert made[name].states == {**on, "l1tf": "smt_closed", "mds": "smt_closed"}, name
    assert "leaves vulnerable as a whole mmio_stale_data; closes the part that depends on" in made["smt_off"].text


BOOTS = {"Mitigation: SMT disabled": "smt_closed not_known smt_closed", "Vulnerable": "vulnerable vulnerable not_known"}


@pytest.mark.parametrize(("status", "states"), BOOTS.items())
def test_speculative_return_stack_overflow_depends_on_whether_smt_was_possible_at_boot(tmp_path, status, states):
    arms = ("smt_off", "nosmt", "nosmt_force")
    _result, made = arms_of(tmp_path, ["smt_on", *arms], spec_rstack_overflow=status)
    assert [made[name].states["spec_rstack_overflow"] for name in arms] == states.split()
    assert made["smt_off"].states["mds"] == made["nosmt_force"].states["mds"] == "smt_closed"


@pytest.mark.parametrize("name", ["smt_off_on_node_0", "threads_per_core_2", "one_thread_per_core", "isolated"])
def test_siblings_that_are_online_for_others_keep_it_open(tmp_path, name):
    _result, made = arms_of(tmp_path, ["smt_on", name], shape=(1, 2, 4))
    assert made[name].states["mds"] == "smt_open" and "not closed by this arm" in made[name].text


def test_what_an_arm_closes_is_said_by_the_cpus_that_were_online(tmp_path):
    arm = "maxcpus_2"
    result, _made = arms_of(tmp_path, ["smt_on", arm])
    placements = result["plan"]["placements"]
    for cpus, state in ((["0", "1", "2"], "smt_open"), (None, "not_known"), (["0", "2"], "smt_closed")):
        placements[arm]["all_threads"]["workers"] = cpus
        assert mds_of(result)[arm] == state
    # A plan that may use only a part of the CPUs shows nothing of the others.
    placements["smt_on"]["all_threads"]["workers"] = ["0", "2"]
    assert mds_of(result)[arm] != "smt_closed"


def test_what_boot_arguments_say_of_mitigations(tmp_path):
    _result, made = arms_of(tmp_path / "off", ["smt_on", "mitigations_off"])
    off = made["mitigations_off"]
    assert off.states["retbleed"] == "not_affected" and off.states["mmio_stale_data"] == "vulnerable"
    assert off.text.startswith("ends the mitigation of l1tf, mds, meltdown, vmscape; ")
    # What a kernel with other mitigations says does not tell of its own choice.
    result, made = arms_of(tmp_path / "auto", ["as_found", "mitigations_auto"])
    assert made["mitigations_auto"].states["mds"] == "smt_open"
    result["environment"]["cmdline"] = "root=/dev/vda1 mitigations=off"
    assert mds_of(result) == {"mitigations_auto": "not_known", "as_found": "smt_open"}
    assert found(result)["mitigations_auto"].states["retbleed"] == "not_affected"


@pytest.mark.parametrize(
    ("mds", "guest_of", "states"),
    [
        ("SMT disabled", None, ("smt_closed", "not_known", "smt_closed")),
        ("SMT Host state unknown", None, ("not_known", "not_known", "not_known")),
        # Whoever else runs on the cores is not the guest's to choose.
        ("SMT vulnerable", "kvm", ("smt_open", "smt_open", "not_known")),
        ("SMT disabled", "kvm", ("not_known", "not_known", "not_known")),
    ],
)
def test_a_host_that_was_found_without_siblings_or_is_a_guest_is_not_guessed_at(tmp_path, mds, guest_of, states):
    changed = {"guest_of": guest_of, "mds": f"Mitigation: Clear CPU buffers; {mds}"}
    _result, made = arms_of(tmp_path, ["as_found", "smt_on", "smt_off"], **changed)
    assert tuple(made[name].states["mds"] for name in ("as_found", "smt_on", "smt_off")) == states


def test_a_host_that_cannot_see_what_is_open_does_not_have_nothing_open(tmp_path):
    seen = dict.fromkeys(FILES, "Not affected")
    hidden = {**seen, "mds": "Mitigation: Clear CPU buffers; SMT Host state unknown"}
    opened = {**hidden, "retbleed": "Mitigation: untrained return thunk; SMT vulnerable"}
    for number, (statuses, exposed) in enumerate(((seen, []), (hidden, None), (opened, ["retbleed"]))):
        result, _made = arms_of(tmp_path / str(number), ["smt_on", "smt_off"], **statuses)
        assert exposure.exposed(accepted(result)) == exposed
    result["facts"]["vulnerabilities"] = {}
    assert exposure.of_arms(accepted(result)) == [] and exposure.exposed(accepted(result)) is None


def test_what_was_read_in_an_arm_counts_and_not_what_it_should_be(tmp_path):
    """Boots are measured one by one, and the kernel of each says what holds in it."""
    options = {"compared": False, "reason": "not asked for", "blocks": 4, "shape": (1, 2, 2), "arms_left_out": []}
    # Without its boot argument this kernel also leaves off what it had mitigated.
    off = {"mds": "Mitigation: Clear CPU buffers; SMT disabled", "meltdown": "Vulnerable"}
    made = []
    for number, (arm, changes) in enumerate((("smt_on", {}), ("smt_off", off)), 1):
        leg = result_maker.result(run=f"r-{number}", **options)
        leg["facts"]["vulnerabilities"] = kernels(tmp_path / arm, **changes)
        made.append(boot_results.BootResult(number, arm, leg))
    facts = facts_maker.made(made[0].result["facts"])
    result = boot_results.join("r", made, boot_plan.make(["smt_on", "smt_off"], 1), facts, facts)
    results.accept(result, "joined")
    assert {one.basis for one in found(result).values()} == {"read"}
    assert mds_of(result) == {"smt_on": "smt_open", "smt_off": "smt_closed"}
    # It should be closed, and the kernel says that it is not.
    off = found(result)["smt_off"].states
    assert (off["l1tf"], off["meltdown"]) == ("smt_open", "opened")
