# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a proof says of a host: each planted fault is named, recorded noise calls equal arms equal, and the document
names nobody.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import pathlib
import random

import jsonschema_rs
import pytest
import result_maker
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import order
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._proof import recording
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import quotas
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache, topology
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import change, paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers
from ansible_collections.threadwise.smt.plugins.plugin_utils._proof import document, findings, host_proof, page
from sysfs_tree import Machine

TESTS = pathlib.Path(__file__).resolve().parents[2]
CALIBRATION = TESTS / "calibration"
NOTHING_DIFFERENT = {kind: [] for kind in findings.KINDS}
SWITCH = {
    "refused": None,
    "failed": False,
    "conflicts": 0,
    "seconds_off": 0.31,
    "seconds_back": 0.42,
    "cpus": "1,3",
    "different": NOTHING_DIFFERENT,
    "not_restored": [],
}
VIEW = {"source": "lscpu", "reason": None, "cores": 2, "differences": []}
CLOCK = {"name": "clock", "reason": None, "detail": "tsc, steps of 0.1 us", "cost": None}
MEASURED = {
    "cpus": "0-3",
    "pairs": ["0-1", "2-3"],
    "singles": "",
    "unclear": "",
    "rounds": 4,
    "seconds": 12.5,
    "confidence": 0.99,
    "agrees_with_kernel": True,
    "measured_at": "2026-11-27T10:00:00Z",
    "ratios": [{"pair": "0-1", "result": "shares", "ratio": 0.55, "low": 0.53, "high": 0.57}],
}
ATTACK = "<script>alert(1)</script>\x1b[2J{{ 7 * 7 }}"


@pytest.fixture(name="facts", scope="module")
def facts_of_a_machine(tmp_path_factory):
    root = sysfs_tree.write(tmp_path_factory.mktemp("host"), sysfs_tree.files(Machine(packages=1, cores=2)))
    return smt_facts.gather(host_files.HostFs(root))


def answer(**changes):
    """What smt_proof_host answers, through the border."""
    given = {
        "changed": False,
        "kernel": "6.1.0-28-amd64",
        "views": [VIEW],
        "instruments": [CLOCK],
        "switch": SWITCH,
        "recorded": {"sys/devices/system/cpu/online": "0-3\n"},
        **changes,
    }
    return answers.accept("smt_proof_host", json.dumps(given))


def looked(facts, reason=None, **changes):
    """A host that was looked at; without a reason its siblings were measured, too."""
    measured = None if reason else changes.pop("measured", MEASURED)
    return host_proof.of_host("web01", facts, answer(**changes), measured, reason)


def evaluated(proof, effects, noise=0.004, blocks=30, disturb=lambda _made: None):
    """The proof with a result: arm -> what it multiplies the time by; ``disturb`` changes the document."""
    made = result_maker.result(
        workloads={"python_loop": {"rate": 100.0, "share": 0.625, "unit": "loops/s", "title": "loop"}},
        names=("all_threads",),
        arms=dict.fromkeys(effects, 1.0),
        blocks=blocks,
        noise=noise,
    )
    source = random.Random(5)
    for workload in made["plan"]["workloads"]:
        workload["metrics"]["wall_time"] = {"unit": "s", "better": "lower", "aggregate": "mean"}
    for sample in made["samples"]:
        value = 0.5 * effects[sample["arm"]] * math.exp(source.gauss(0, noise))
        sample["metrics"]["wall_time"] = {"value": value, "unit": "s", "better": "lower"}
    disturb(made)
    return host_proof.with_result(proof, result_maker.accepted(made))


EFFECTS = {"as_found": 1.0, "again": 1.0, "more_work_5": 1.05}


def states(proof):
    return {one.part: one.state for one in findings.of(proof)}


def sentence(proof, part):
    return next(one.sentence for one in findings.of(proof) if one.part == part)


def test_a_host_on_which_all_holds(facts):
    proof = evaluated(looked(facts), EFFECTS)
    assert set(states(proof).values()) == {findings.HOLDS}, findings.of(proof)
    assert findings.verdict(proof) == "All that was tried holds."
    assert sentence(proof, "switch") == (
        "CPUs 1,3 were offline after 0.3 s and back after 0.4 s, and each CPU, mask, cpuset and interrupt is as before."
    )
    assert "5 % more work was found: its time changed by +5." in sentence(proof, "known effect")
    assert "An effect has to be " in sentence(proof, "equal arms")


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_of_fewer_blocks_than_a_verdict_takes_nothing_holds_or_fails(facts, blocks):
    proof = evaluated(looked(facts), EFFECTS, blocks=blocks)
    assert {states(proof)[part] for part in ("equal arms", "known effect")} == {findings.OPEN}
    assert f"({blocks} of at least 4 blocks)" in sentence(proof, "equal arms")
    assert "An effect has to be" not in sentence(proof, "equal arms")


def test_interrupts_that_irqbalance_moves_are_not_called_as_before(facts):
    different = {kind: [] for kind in findings.KINDS if kind != "interrupts"}
    proof = looked(facts, switch={**SWITCH, "different": different})
    assert states(proof)["switch"] == findings.HOLDS
    assert sentence(proof, "switch").endswith(
        "each CPU, mask and cpuset is as before; irqbalance runs, so interrupts were not compared."
    )
    assert document.made(proof, "2026-11-27")["switch"]["different"] == {
        **dict.fromkeys(different, 0),
        "interrupts": None,
    }


def lying(facts):
    return looked(facts, measured={**MEASURED, "pairs": ["0,2", "1,3"], "agrees_with_kernel": False})


@pytest.mark.parametrize(
    ("planted", "part", "said"),
    [
        (lying, "siblings", "By measuring, CPUs 0,2 and 1,3 share a core; the kernel says otherwise."),
        (
            lambda facts: looked(
                facts, views=[{**VIEW, "source": "topology/core_cpus_list", "differences": ["it has CPUs 0 and 1"]}]
            ),
            "facts",
            "it has CPUs 0 and 1",
        ),
        (
            lambda facts: looked(facts, instruments=[{**CLOCK, "reason": "it is coarse, 10.0 ms"}]),
            "instruments",
            "Not of use: clock (it is coarse, 10.0 ms).",
        ),
        (
            lambda facts: looked(facts, switch={**SWITCH, "refused": "CPU 3: EBUSY", "failed": True}),
            "switch",
            "Siblings were not switched: CPU 3: EBUSY.",
        ),
        (
            lambda facts: looked(
                facts, switch={**SWITCH, "different": {**NOTHING_DIFFERENT, "masks": ["thread 7 may run on 0 only"]}}
            ),
            "switch",
            "but not all is as before: thread 7 may run on 0 only",
        ),
        (lambda facts: looked(facts, switch={**SWITCH, "not_restored": ["interrupt 9"]}), "switch", "interrupt 9"),
        (
            lambda facts: evaluated(looked(facts), {**EFFECTS, "again": 1.02}),
            "equal arms",
            "Two equal arms were called different, +2.",
        ),
        (
            lambda facts: evaluated(looked(facts), {**EFFECTS, "more_work_5": 1.0}),
            "known effect",
            "5 % more work was not found",
        ),
        (
            lambda facts: evaluated(looked(facts), {**EFFECTS, "more_work_5": 1.2}),
            "known effect",
            "its interval does not have the planted effect in it",
        ),
    ],
)
def test_each_planted_fault_is_named(planted, part, said, facts):
    proof = planted(facts)
    assert states(proof)[part] == findings.FAILS and said in sentence(proof, part), sentence(proof, part)
    assert findings.verdict(proof).lower().startswith(part) or part in findings.verdict(proof)


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"hypervisor": "kvm"}},
        {"environment": {"hypervisor": "vmware"}, "facts": {"measured": {**MEASURED, "agrees_with_kernel": None}}},
        {"facts": {"measured": {**MEASURED, "agrees_with_kernel": False}}},
        {"facts": {"complete": False}},
    ],
)
def test_what_is_not_known_of_a_host_does_not_disturb_it(changes, facts):
    proof = evaluated(looked(facts), EFFECTS, disturb=lambda made: [made[key].update(changes[key]) for key in changes])
    assert states(proof)["quiet"] == findings.HOLDS, sentence(proof, "quiet")


QUOTA = [quotas.Quota("/a.slice", 2.0, 0.0)], [quotas.Quota("/a.slice", 2.0, 9.0)]


def _each_fifth(**changes):
    return lambda made: [sample.update(changes) for sample in made["samples"][::5]]


def _of_telemetry(**changes):
    return lambda made: [sample["telemetry"].update(changes) for sample in made["samples"]]


def _busy(made):
    for sample in made["samples"]:
        for worker in sample["workers"]:
            worker["cpu_seconds"] = worker["wall_seconds"] / 2


def _one_busy_process(made):
    """It has half of the CPU of one worker."""
    for sample in made["samples"]:
        worker = sample["workers"][sample["block"] % len(sample["workers"])]
        worker["cpu_seconds"] = worker["wall_seconds"] / 2


@pytest.mark.parametrize(
    ("disturb", "said"),
    [
        (_one_busy_process, "CPUs during the samples. Measure again when they do not run."),
        (_busy, "This host was too busy with other work"),
        (_of_telemetry(steal=0.09), "The hypervisor took up to 9 % of the CPU time"),
        (_of_telemetry(throttled=3), "In 100 % of the samples cores were throttled, as heat does."),
        (
            _each_fifth(ok=False, metrics={}, error=quotas.refusal(*QUOTA, 1.0)),
            "samples failed: the CPU quota of the cgroup /a.slice, 2 CPUs, stopped the workers",
        ),
    ],
)
def test_what_disturbed_is_named_with_advice_that_this_playbook_can_follow(disturb, said, facts):
    proof = evaluated(looked(facts), EFFECTS, disturb=disturb)
    assert states(proof)["quiet"] == findings.FAILS and said in sentence(proof, "quiet"), sentence(proof, "quiet")
    assert "smt_eval" not in sentence(proof, "quiet")


def test_a_tool_that_differs_from_the_kernel_is_named_and_is_no_fault_of_the_host(facts):
    differs = {**VIEW, "differences": ["lscpu has CPUs 0,2 on one core, and the facts have 0-1"]}
    proof = looked(facts, views=[differs, {**VIEW, "source": "/proc/stat"}])
    assert states(proof)["facts"] == findings.HOLDS and "lscpu has CPUs 0,2 on one core" in sentence(proof, "facts")


def test_sources_that_said_nothing_are_not_among_those_that_say_the_same(facts):
    silent = {**VIEW, "source": "/proc/stat", "reason": "it does not exist", "cores": None}
    part = {**VIEW, "source": "topology/core_cpus_list", "reason": "of CPUs 2 it is no list of CPUs"}
    missing = {**VIEW, "source": "hwloc", "reason": "it is not installed", "cores": None}
    proof = looked(facts, views=[silent, part, VIEW, missing])
    assert states(proof)["facts"] == findings.HOLDS and sentence(proof, "facts") == (
        "The facts say what these say of CPUs and cores: lscpu. Not known: /proc/stat (it does not exist);"
        " topology/core_cpus_list (of CPUs 2 it is no list of CPUs)."
    )
    assert [view["answered"] for view in document.made(proof, "2026-11-27")["views"]] == [False, True, True, False]
    none = looked(facts, views=[silent, missing])
    assert states(none)["facts"] == findings.OPEN and sentence(none, "facts").startswith("Not known: /proc/stat")
    wrong = looked(facts, views=[{**part, "differences": ["it has CPUs 0 and 1"]}, VIEW])
    assert states(wrong)["facts"] == findings.FAILS
    assert "of CPUs 2 it is no list of CPUs; it has CPUs 0 and 1" in page.render([wrong], "today")


def test_what_was_not_tried_is_said_with_its_reason(facts):
    proof = host_proof.without_result(looked(facts, "needs two CPUs", switch=None), "the budget is too short")
    assert sentence(proof, "siblings") == "Siblings were not measured: needs two CPUs."
    assert sentence(proof, "switch") == "Siblings were not switched (smt_proof_switch is false)."
    assert sentence(proof, "equal arms") == "Equal arms were not compared: the budget is too short."
    said = findings.verdict(proof)
    assert said == "All that was tried holds; not tried: siblings, switch, equal arms and known effect."


@pytest.mark.parametrize(
    ("shape", "begun"),
    [
        (Machine(cores=2), "would take its second threads offline once"),
        (Machine(cores=2, threads=1), "no second thread is online, so none is taken offline."),
        (Machine(cores=2, offline=(2, 3)), "no second thread is online"),
        (None, "would take its second threads offline once"),
    ],
)
def test_what_will_be_done_is_said_where_it_can_be_done(shape, begun, tmp_path):
    host = host_files.HostFs(sysfs_tree.write(tmp_path, sysfs_tree.files(shape))) if shape else None
    assert findings.announcement(smt_facts.gather(host) if host else {}, check=True).startswith(begun)


def test_an_affinity_conflict_is_no_fault(facts):
    proof = looked(facts, switch={**SWITCH, "refused": "1 affinity conflict(s)", "conflicts": 1, "seconds_off": None})
    assert states(proof)["switch"] == findings.OPEN


def recorded_proofs(kind, blocks):
    """What three arms of recorded equal samples say, the last of them with 5 % added: one family each."""
    arms = (host_proof.AS_FOUND, host_proof.AGAIN, host_proof.PLANTED)
    with gzip.open(CALIBRATION / "data" / "equal_work.json.gz") as file:
        series = [
            one["microseconds"] for one in json.load(file)["series"] if (one["kind"], one["series"]) == (kind, "same")
        ]
    for times in series:
        spots = [(block, arm) for block in range(blocks) for arm in order.of_block(arms, block)]
        taken = {arm: [] for arm in arms}
        for (_block, arm), time in zip(spots, times):
            taken[arm].append([time * (1 + host_proof.EFFECT * (arm == host_proof.PLANTED))])
        family = [(taken[host_proof.AS_FOUND], taken[arm], "lower") for arm in arms[1:]]
        yield [host_proof.Measured.read({**one, **change.of(one, "lower")}) for one in paired.compare_family(family)]


def test_on_recorded_noise_equal_arms_are_called_equal_and_five_percent_are_found():
    """A dozen blocks of 50 ms; a proof on a host has some hundred of half a second and more."""
    proofs = list(recorded_proofs("quiet", 12))
    count = len(proofs)
    called = sum(equal.is_called for equal, _planted in proofs)
    found = sum(planted.is_called for _equal, planted in proofs)
    held = sum(planted.holds_the_effect for _equal, planted in proofs)
    print(f"{count} proofs: {called} called equal arms different, {found} found 5 %, {held} have it in the interval")
    assert count >= 300 and called <= 0.05 * count and found >= 0.95 * count and held >= 0.95 * count


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("6.1.0-28-amd64", "6.1.0-28"),
        ("5.14.0-503.11.1.el9_5.x86_64", "5.14.0-503.11.1"),
        ("6.8.0-acme-db-prod", "6.8.0"),
        ("6.12.9", "6.12.9"),
        ("5.10acme", "5"),
        ("acme", ""),
    ],
)
def test_of_a_kernels_release_the_document_has_the_numbers(release, numbers, facts):
    assert document.made(looked(facts, kernel=release), "2026-11-27")["kernel"] == numbers


def test_the_document_matches_its_schema_and_names_nobody(facts):
    spoilt = {
        "switch": {**SWITCH, "refused": f"pid 7 {ATTACK} of secret-unit.service", "conflicts": 1, "seconds_off": None},
        "views": [{**VIEW, "reason": f"{ATTACK} on secret-host", "cores": None}],
        "kernel": f"6.1.0 {ATTACK}",
    }
    for proof in (evaluated(looked(facts), EFFECTS), looked(facts, "secret-host said so", **spoilt)):
        made = document.made(proof, "2026-11-27")
        jsonschema_rs.validator_for(document.SCHEMA).validate(made)
        text = json.dumps(made)
        assert "web01" not in text and "secret" not in text and "script" not in text
    assert made["kernel"] == "6.1.0" and made["switch"]["conflicts"] == 1 and made["switch"]["refused"] is True


@pytest.fixture(name="machine", scope="module")
def load_the_tool():
    spec = importlib.util.spec_from_file_location("recorded_machine", TESTS / "recorded_machine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_document_becomes_a_recorded_machine_with_the_same_facts(machine, tmp_path):
    root = sysfs_tree.write(tmp_path / "host", sysfs_tree.files(Machine(packages=2, cores=3)))
    fs = host_files.HostFs(root)
    facts = smt_facts.gather(fs)
    made = document.made(looked(facts, recorded=recording.read(fs)), "2026-11-27")
    row = machine.make(json.dumps(made), tmp_path / "again")
    again = smt_facts.gather(host_files.HostFs(str(tmp_path / "again")))
    assert {name: again[name] for name in document.FACTS} == {name: facts[name] for name in document.FACTS}
    assert row.startswith("| ") and "facts, siblings, switch, instruments" in row
    with pytest.raises(machine.RecordingError, match="exists"):
        machine.make(json.dumps(made), tmp_path / "again")


CPU = "sys/devices/system/cpu/"
DMI = "sys/class/dmi/id/"
SECRET = "SECRET-1234"
GUEST = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nflags\t\t: lm hypervisor\n\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n\n"
LOONGSON = "".join(
    f"processor\t\t: {cpu}\nCPU Family\t\t: Loongson-64bit\nModel Name\t\t: Loongson-3A6000\n\n" for cpu in range(4)
)
S390 = "vendor_id       : IBM/S390\nprocessor 0: version = FF,  identification = SECRET,  machine = 2964\n"
IA64 = "processor  : 0\nvendor     : GenuineIntel\narch       : IA-64\nfamily     : 32\n\n"
SMBIOS = "\0" * 19


@pytest.mark.parametrize(
    "tree",
    [
        {"proc/cpuinfo": LOONGSON},
        {"proc/cpuinfo": IA64},
        {"proc/cpuinfo": GUEST, "proc/sys/kernel/arch": "x86_64\n"},
        {"proc/cpuinfo": GUEST, DMI + "sys_vendor": f"QEMU {SECRET}\n", DMI + "product_name": f"{SECRET}\n"},
        {
            "proc/cpuinfo": GUEST,
            DMI + "sys_vendor": "Microsoft Corporation\n",
            DMI + "product_name": "Virtual Machine\n",
        },
        {
            "proc/cpuinfo": GUEST,
            "sys/devices/system/clocksource/clocksource0/available_clocksource": "kvm-clock tsc acpi_pm\n",
        },
        {"sys/hypervisor/type": "xen\n"},
        {"proc/cpuinfo": ARM, DMI + "sys_vendor": "Amazon EC2\n", DMI + "product_name": "c7g.metal\n"},
        {"proc/cpuinfo": ARM, DMI + "sys_vendor": "Amazon EC2\n", DMI + "product_name": "c7g.large\n"},
        {"proc/cpuinfo": ARM, "sys/firmware/dmi/entries/0-0/raw": SMBIOS + f"\x10{SECRET}"},
        {"proc/cpuinfo": ARM, DMI + "sys_vendor": "Amazon EC2\n", "sys/firmware/dmi/entries/0-0/raw": SMBIOS + "\0"},
        {"proc/cpuinfo": ARM, "proc/device-tree/compatible": "linux,dummy-virt\0", "proc/device-tree/model": SECRET},
        {"proc/cpuinfo": S390, "proc/sysinfo": f"LPAR Name: {SECRET}\nVM00 Name: {SECRET}\nSequence Code: {SECRET}\n"},
        {"proc/cpuinfo": S390, "proc/sysinfo": f"LPAR Name: {SECRET}\nVM00 Control Program: KVM/Linux\n"},
        {"proc/self/mounts": f"lxcfs /proc/cpuinfo fuse.lxcfs rw 0 0\n/dev/{SECRET} / ext4 rw 0 0\n"},
    ],
)
def test_a_guest_is_recorded_as_what_it_is_and_not_whose(tree, machine, tmp_path):
    root = sysfs_tree.write(tmp_path / "host", {**sysfs_tree.files(Machine(packages=1, cores=2)), **tree})
    facts = smt_facts.gather(host_files.HostFs(root))
    again, text = recorded_again(machine, facts, root, tmp_path)
    assert again == {name: facts[name] for name in document.FACTS}
    assert "SECRET" not in text


def recorded_again(machine, facts, root, directory):
    """The facts of the tree that is made of the document, and the document."""
    made = document.made(looked(facts, recorded=recording.read(host_files.HostFs(root))), "2026-11-27")
    machine.make(json.dumps(made), directory / "again")
    again = smt_facts.gather(host_files.HostFs(str(directory / "again")))
    return {name: again[name] for name in document.FACTS}, json.dumps(made)


def test_siblings_that_are_offline_are_recorded_as_they_are_known(machine, tmp_path):
    all_online = sysfs_tree.files(Machine(packages=1, cores=2))
    root = sysfs_tree.write(tmp_path / "host", {**all_online, "etc/machine-id": "0123456789abcdef\n"})
    fs = host_files.HostFs(root)
    cache.save(fs, topology.read_topology(fs))
    now = sysfs_tree.files(Machine(packages=1, cores=2, offline=(2, 3)))
    for path in all_online.keys() - now.keys():
        (tmp_path / "host" / path).unlink()
    sysfs_tree.write(tmp_path / "host", now)
    facts = smt_facts.gather(host_files.HostFs(root))
    assert facts["sibling_groups"] == ["0,2", "1,3"] and facts["source"] == "saved"
    again, text = recorded_again(machine, facts, root, tmp_path)
    assert again == {name: facts[name] for name in document.FACTS}
    # Not even the hash of what identifies the host.
    assert cache.machine_key(fs) not in text


@pytest.mark.night
def test_a_machine_of_1024_cpus_is_recorded(tmp_path):
    """Its packages alternate, so that each CPU has three lists of 512 numbers."""
    tree = sysfs_tree.files(Machine(packages=2, cores=256, flags="flag " * 250 + "lm"))
    for path in tree:
        if path.endswith(("package_cpus_list", "core_siblings_list", "die_cpus_list")):
            cpu = int(path.split("/cpu")[2].partition("/")[0])
            tree[path] = ",".join(map(str, range(cpu % 2, 1024, 2))) + "\n"
    found = recording.read(host_files.HostFs(sysfs_tree.write(tmp_path, tree)))
    assert 0 < sum(map(len, found.values())) < recording.MAX_CHARACTERS / 2
    same = {path: text.removeprefix(recording.SAME_AS) for path, text in found.items()}
    kept = {path: found.get(same[path], text) for path, text in found.items() if not path.startswith("proc/")}
    assert kept == {path: tree[path] for path in kept} and sum("cpu1023/" in path for path in kept) > 10
    place = ("physical id", "core id")
    was, now = (cpuinfo.parse(text).blocks for text in (tree["proc/cpuinfo"], found["proc/cpuinfo"]))
    assert was[0] == now[0] and len(now) == 1024
    assert all(was[cpu][name] == now[cpu][name] for cpu in was for name in place)


def test_that_nothing_was_recorded_is_said(machine, facts, tmp_path):
    proof = looked(facts, recorded={})
    assert "are not in its document: they are more than 2,000,000 characters." in page.render([proof], "today")
    assert "are not in its document" not in page.render([looked(facts)], "today")
    with pytest.raises(machine.RecordingError, match="it has no files"):
        machine.make(json.dumps(document.made(proof, "2026-11-27")), tmp_path / "again")


def test_a_text_that_stands_for_one_that_is_not_there_is_refused(machine, facts, tmp_path):
    made = document.made(looked(facts, recorded={CPU + "online": f"= {CPU}present"}), "2026-11-27")
    with pytest.raises(machine.RecordingError, match="stands for one that is not there"):
        machine.make(json.dumps(made), tmp_path / "again")


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "sys/devices/system/../../../etc/x",
        "proc/self",
        "sys/class/dmi/id/product_uuid",
    ],
)
def test_a_document_of_somebody_else_writes_nowhere_else(path, machine, facts, tmp_path):
    made = {**document.made(looked(facts), "2026-11-27"), "recorded": {path: "x"}}
    with pytest.raises(machine.RecordingError, match="not the document of a proof"):
        machine.make(json.dumps(made), tmp_path / "again")
    assert list(tmp_path.iterdir()) == []


def test_page_and_table_show_what_came_of_each_and_nothing_of_a_hosts_text_acts(facts):
    proofs = [
        evaluated(looked(facts), EFFECTS),
        host_proof.of_host(
            "evil", facts, answer(switch={**SWITCH, "refused": ATTACK, "failed": True}), None, "not asked"
        ),
        host_proof.HostProof("gone", reason="no route to host"),
    ]
    shown = page.render(proofs, "2026-11-27 10:00 UTC")
    assert "<script>alert" not in shown and "\x1b" not in shown and "49" not in shown.partition("evil")[2][:2000]
    assert shown.index(">evil<") < shown.index(">web01<") and "no route to host" in shown
    lines = page.table(proofs)
    assert [line.split()[0] for line in lines[2:5]] == ["evil", "gone", "web01"]
    assert lines[-1] == (
        "3 hosts: 1 on which all holds that was tried, 1 on which something does not, 1 that could not be looked at."
    )
    assert all("\x1b" not in line for line in lines)
