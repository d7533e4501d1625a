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
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache, topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import order
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import recording
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import document, findings, host_proof, page
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import change
from sysfs_tree import Machine

TESTS = pathlib.Path(__file__).resolve().parents[3]
NOTHING_DIFFERENT = {kind: [] for kind in findings.KINDS}
SWITCH = {"refused": None, "failed": False, "conflicts": 0, "seconds_off": 0.31, "seconds_back": 0.42, "cpus": "1,3"}
SWITCH |= {"different": NOTHING_DIFFERENT, "not_restored": []}
NO_SWITCH = {**SWITCH, "refused": "CPU 3: EBUSY", "seconds_off": None}
VIEW = {"source": "lscpu", "reason": None, "cores": 2, "differences": []}
OF_KERNEL = {**VIEW, "source": "topology/core_cpus_list"}
SILENT = {**VIEW, "source": "/proc/stat", "reason": "it does not exist", "cores": None}
PART = {**OF_KERNEL, "reason": "of CPUs 2 it is no list of CPUs"}
MISSING = {**VIEW, "source": "hwloc", "reason": "it is not installed", "cores": None}
WRONG = {"differences": ["it has CPUs 0 and 1"]}
CLOCK = {"name": "clock", "reason": None, "detail": "tsc, steps of 0.1 us", "cost": None}
MEASURED = {"cpus": "0-3", "pairs": ["0-1", "2-3"], "singles": "", "unclear": "", "rounds": 4, "seconds": 12.5}
MEASURED |= {"confidence": 0.99, "agrees_with_kernel": True, "measured_at": "2026-11-27T10:00:00Z"}
MEASURED |= {"ratios": [{"pair": "0-1", "result": "shares", "ratio": 0.55, "low": 0.53, "high": 0.57}]}
LYING = {**MEASURED, "pairs": ["0,2", "1,3"], "agrees_with_kernel": False}
ATTACK = "<script>alert(1)</script>\x1b[2J{{ 7 * 7 }}"
EFFECTS = {"as_found": 1.0, "again": 1.0, "more_work_5": 1.05}
DAY = "2026-11-27"


@pytest.fixture(name="facts", scope="module")
def facts_of_a_machine(tmp_path_factory):
    root = sysfs_tree.write(tmp_path_factory.mktemp("host"), sysfs_tree.files(Machine(packages=1, cores=2)))
    return smt_facts.gather(host_files.HostFs(root))


def answer(**changes):
    """What smt_proof_host answers, through the border."""
    given = {"changed": False, "kernel": "6.1.0-28-amd64", "views": [VIEW], "instruments": [CLOCK], "switch": SWITCH}
    given["recorded"] = {"sys/devices/system/cpu/online": "0-3\n"}
    return answers.accept("smt_proof_host", json.dumps({**given, **changes}))


def looked(facts, reason=None, **changes):
    """A host that was looked at; without a reason its siblings were measured, too."""
    measured = None if reason else changes.pop("measured", MEASURED)
    return host_proof.of_host("web01", facts, answer(**changes), measured, reason)


def evaluated(proof, effects=None, noise=0.004, blocks=30, disturb=lambda _made: None):
    """The proof with a result: arm -> what it multiplies the time by; ``disturb`` changes the document."""
    effects = effects or EFFECTS
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


def states(proof):
    return {one.part: one.state for one in findings.of(proof)}


def sentence(proof, part):
    return next(one.sentence for one in findings.of(proof) if one.part == part)


SWITCHED = "CPUs 1,3 were offline after 0.3 s and back after 0.4 s, "
AS_BEFORE = "and each CPU, mask, cpuset and interrupt is as before."
NO_INTERRUPTS = "and each CPU, mask and cpuset is as before; irqbalance runs, so interrupts were not compared."
WITHOUT_INTERRUPTS = {kind: [] for kind in findings.KINDS if kind != "interrupts"}
MASK = {**NOTHING_DIFFERENT, "masks": ["thread 7 may run on 0 only"]}
SAME = "The facts say what these say of CPUs and cores: lscpu."
ALL_SAID = (
    f"{SAME} Not known: /proc/stat (it does not exist); topology/core_cpus_list (of CPUs 2 it is no list of CPUs)."
)
HOLDS, FAILS, OPEN = findings.HOLDS, findings.FAILS, findings.OPEN


@pytest.mark.parametrize(
    ("changes", "part", "state", "said"),
    [
        ({}, "switch", HOLDS, SWITCHED + AS_BEFORE),
        ({"switch": {**SWITCH, "different": WITHOUT_INTERRUPTS}}, "switch", HOLDS, SWITCHED + NO_INTERRUPTS),
        ({"switch": {**NO_SWITCH, "failed": True}}, "switch", FAILS, "Siblings were not switched: CPU 3: EBUSY."),
        # An affinity conflict is no fault.
        ({"switch": {**NO_SWITCH, "conflicts": 1}}, "switch", OPEN, "Siblings were not switched: CPU 3: EBUSY."),
        ({"switch": {**SWITCH, "different": MASK}}, "switch", FAILS, "but not all is as before: thread 7 may run on 0"),
        ({"switch": {**SWITCH, "not_restored": ["interrupt 9"]}}, "switch", FAILS, "interrupt 9"),
        ({"switch": None}, "switch", OPEN, "Siblings were not switched (smt_proof_switch is false)."),
        ({}, "siblings", HOLDS, "By measuring, CPUs 0-1 and 2-3 share cores, as the kernel says."),
        (
            {"measured": LYING},
            "siblings",
            FAILS,
            "By measuring, CPUs 0,2 and 1,3 share a core; the kernel says otherwise.",
        ),
        ({"reason": "needs two CPUs"}, "siblings", OPEN, "Siblings were not measured: needs two CPUs."),
        (
            {"instruments": [{**CLOCK, "reason": "it is coarse"}]},
            "instruments",
            FAILS,
            "Not of use: clock (it is coarse).",
        ),
        ({"views": [SILENT, PART, VIEW, MISSING]}, "facts", HOLDS, ALL_SAID),
        ({"views": [SILENT, MISSING]}, "facts", OPEN, "Not known: /proc/stat (it does not exist)."),
        # A tool that differs from the kernel is no fault of the host.
        (
            {"views": [{**VIEW, **WRONG}, OF_KERNEL]},
            "facts",
            HOLDS,
            "it has CPUs 0 and 1. The facts say what these say",
        ),
        (
            {"views": [{**PART, **WRONG}, VIEW]},
            "facts",
            FAILS,
            "it has CPUs 0 and 1. Not known: topology/core_cpus_list",
        ),
    ],
)
def test_what_was_looked_at_is_said_with_what_came_of_it(changes, part, state, said, facts):
    proof = looked(facts, **changes)
    assert (states(proof)[part], said in sentence(proof, part)) == (state, True), sentence(proof, part)
    assert (findings.verdict(proof) == f"{part.capitalize()}: does not hold here.") == (state == FAILS)


LEAST = "An effect has to be "
TWO = "Two equal arms were "


@pytest.mark.parametrize(
    ("how", "part", "state", "said"),
    [
        ({}, "equal arms", HOLDS, TWO + "not called different: "),
        ({}, "equal arms", HOLDS, LEAST),
        ({}, "known effect", HOLDS, "5 % more work was found: its time changed by +5."),
        ({}, "quiet", HOLDS, "Nothing else disturbed the measurement."),
        ({"effects": {**EFFECTS, "again": 1.02}}, "equal arms", FAILS, TWO + "called different, +2."),
        ({"effects": {**EFFECTS, "more_work_5": 1.0}}, "known effect", FAILS, "5 % more work was not found"),
        (
            *({"effects": {**EFFECTS, "more_work_5": 1.2}}, "known effect", FAILS),
            "its interval does not have the planted effect in it",
        ),
        # Of fewer blocks than a verdict takes nothing holds or fails.
        *(
            ({"blocks": blocks}, part, OPEN, f"({blocks} of at least 4 blocks)")
            for blocks in (1, 3)
            for part in ("equal arms", "known effect")
        ),
    ],
)
def test_what_an_evaluation_of_equal_arms_and_a_planted_effect_says(how, part, state, said, facts):
    proof = evaluated(looked(facts), **how)
    assert states(proof)[part] == state and said in sentence(proof, part), sentence(proof, part)
    if not how:
        assert findings.verdict(proof) == "All that was tried holds."


def test_what_was_not_tried_is_said_with_its_reason(facts):
    proof = host_proof.without_result(looked(facts, "needs two CPUs", switch=None), "the budget is too short")
    assert sentence(proof, "equal arms") == "Equal arms were not compared: the budget is too short."
    said = findings.verdict(proof)
    assert said == "All that was tried holds; not tried: siblings, switch, equal arms and known effect."


NOT_DISTURBED = [
    {"environment": {"hypervisor": "kvm"}},
    {"environment": {"hypervisor": "vmware"}, "facts": {"measured": {**MEASURED, "agrees_with_kernel": None}}},
    {"facts": {"measured": {**MEASURED, "agrees_with_kernel": False}}},
    {"facts": {"complete": False}},
]
QUOTA = [quotas.Quota("/a.slice", 2.0, 0.0)], [quotas.Quota("/a.slice", 2.0, 9.0)]


def _each_fifth(**changes):
    return lambda made: [sample.update(changes) for sample in made["samples"][::5]]


def _of_telemetry(**changes):
    return lambda made: [sample["telemetry"].update(changes) for sample in made["samples"]]


def _busy(made, one=False):
    """Half of the CPU of each worker is taken, or of one of them."""
    for sample in made["samples"]:
        for worker in sample["workers"][sample["block"] % len(sample["workers"]) :][: 1 if one else None]:
            worker["cpu_seconds"] = worker["wall_seconds"] / 2


@pytest.mark.parametrize(
    ("disturb", "said"),
    [
        *((lambda made, one=one: [made[key].update(one[key]) for key in one], None) for one in NOT_DISTURBED),
        (lambda made: _busy(made, one=True), "CPUs during the samples. Measure again when they do not run."),
        (_of_telemetry(steal=0.09), "The hypervisor took up to 9 % of the CPU time"),
        (_of_telemetry(throttled=3), "In 100 % of the samples cores were throttled, as heat does."),
        (
            _each_fifth(ok=False, metrics={}, error=quotas.refusal(*QUOTA, 1.0)),
            "samples failed: the CPU quota of the cgroup /a.slice, 2 CPUs, stopped the workers",
        ),
    ],
)
def test_what_disturbed_is_named_with_advice_that_this_playbook_can_follow(disturb, said, facts):
    proof = evaluated(looked(facts), disturb=disturb)
    assert states(proof)["quiet"] == (HOLDS if said is None else FAILS), sentence(proof, "quiet")
    assert (said or "") in sentence(proof, "quiet") and "smt_eval" not in sentence(proof, "quiet")


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


def recorded_proofs(kind, blocks):
    """What three arms of recorded equal samples say, the last of them with 5 % added: one family each."""
    arms = (host_proof.AS_FOUND, host_proof.AGAIN, host_proof.PLANTED)
    with gzip.open(TESTS / "calibration" / "data" / "equal_work.json.gz") as file:
        found = [one for one in json.load(file)["series"] if (one["kind"], one["series"]) == (kind, "same")]
    for times in (one["microseconds"] for one in found):
        spots = [(block, arm) for block in range(blocks) for arm in order.of_block(arms, block)]
        taken = {arm: [] for arm in arms}
        for (_block, arm), time in zip(spots, times):
            taken[arm].append([time * (1 + host_proof.EFFECT * (arm == host_proof.PLANTED))])
        family = [(taken[host_proof.AS_FOUND], taken[arm], "lower") for arm in arms[1:]]
        yield [host_proof.Measured.read({**one, **change.of(one, "lower")}) for one in paired.compare_family(family)]


def test_on_recorded_noise_equal_arms_are_called_equal_and_five_percent_are_found():
    """A dozen blocks of 50 ms; a proof on a host has some hundred of half a second and more."""
    proofs = list(recorded_proofs("quiet", 12))
    called = sum(equal.is_called for equal, _planted in proofs) / len(proofs)
    found = sum(planted.is_called for _equal, planted in proofs) / len(proofs)
    held = sum(planted.holds_the_effect for _equal, planted in proofs) / len(proofs)
    assert len(proofs) >= 300 and called <= 0.05 and found >= 0.95 and held >= 0.95, (called, found, held)


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("6.1.0-28-amd64", "6.1.0-28"),
        ("5.14.0-503.11.1.el9_5.x86_64", "5.14.0-503.11.1"),
        ("6.8.0-acme-db-prod", "6.8.0"),
        ("5.10acme", "5"),
        ("acme", ""),
    ],
)
def test_of_a_kernels_release_the_document_has_the_numbers(release, numbers, facts):
    assert document.made(looked(facts, kernel=release), DAY)["kernel"] == numbers


def test_the_document_matches_its_schema_and_names_nobody(facts):
    spoilt = {
        "switch": {**NO_SWITCH, "refused": f"pid 7 {ATTACK} of secret-unit.service", "conflicts": 1},
        "views": [{**VIEW, "reason": f"{ATTACK} on secret-host", "cores": None}, PART],
        "kernel": f"6.1.0 {ATTACK}",
    }
    for proof in (evaluated(looked(facts)), looked(facts, "secret-host said so", **spoilt)):
        made = document.made(proof, DAY)
        jsonschema_rs.validator_for(document.SCHEMA).validate(made)
        text = json.dumps(made)
        assert "web01" not in text and "secret" not in text and "script" not in text
    assert made["kernel"] == "6.1.0" and made["switch"]["conflicts"] == 1 and made["switch"]["refused"] is True
    assert [view["answered"] for view in made["views"]] == [False, True]
    switch = document.made(looked(facts, switch={**SWITCH, "different": WITHOUT_INTERRUPTS}), DAY)["switch"]
    assert switch["different"] == {**dict.fromkeys(WITHOUT_INTERRUPTS, 0), "interrupts": None}


@pytest.fixture(name="machine", scope="module")
def load_the_tool():
    spec = importlib.util.spec_from_file_location("recorded_machine", TESTS / "recorded_machine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CPU = "sys/devices/system/cpu/"
DMI = "sys/class/dmi/id/"
SECRET = "SECRET-1234"
GUEST = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nflags\t\t: lm hypervisor\n\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n\n"
LOONGSON = "processor\t\t: {}\nCPU Family\t\t: Loongson-64bit\nModel Name\t\t: Loongson-3A6000\n\n"
S390 = "vendor_id       : IBM/S390\nprocessor 0: version = FF,  identification = SECRET,  machine = 2964\n"
IA64 = "processor  : 0\nvendor     : GenuineIntel\narch       : IA-64\nfamily     : 32\n\n"
SMBIOS = "\0" * 19
INFO, RAW = "proc/cpuinfo", "sys/firmware/dmi/entries/0-0/raw"
SOURCES = f"{CPU[:-4]}clocksource/clocksource0/available_clocksource"


def of_vendor(vendor, product):
    return {DMI + "sys_vendor": f"{vendor}\n", DMI + "product_name": f"{product}\n"}


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {INFO: "".join(map(LOONGSON.format, range(4)))},
        {INFO: IA64},
        {INFO: GUEST, "proc/sys/kernel/arch": "x86_64\n"},
        {INFO: GUEST, **of_vendor(f"QEMU {SECRET}", SECRET)},
        {INFO: GUEST, **of_vendor("Microsoft Corporation", "Virtual Machine")},
        {INFO: GUEST, SOURCES: "kvm-clock tsc acpi_pm\n"},
        {"sys/hypervisor/type": "xen\n"},
        *({INFO: ARM, **of_vendor("Amazon EC2", f"c7g.{size}")} for size in ("metal", "large")),
        {INFO: ARM, RAW: SMBIOS + f"\x10{SECRET}"},
        {INFO: ARM, DMI + "sys_vendor": "Amazon EC2\n", RAW: SMBIOS + "\0"},
        {INFO: ARM, "proc/device-tree/compatible": "linux,dummy-virt\0", "proc/device-tree/model": SECRET},
        {INFO: S390, "proc/sysinfo": f"LPAR Name: {SECRET}\nVM00 Name: {SECRET}\nSequence Code: {SECRET}\n"},
        {INFO: S390, "proc/sysinfo": f"LPAR Name: {SECRET}\nVM00 Control Program: KVM/Linux\n"},
        {"proc/self/mounts": f"lxcfs /proc/cpuinfo fuse.lxcfs rw 0 0\n/dev/{SECRET} / ext4 rw 0 0\n"},
    ],
)
def test_a_document_becomes_a_recorded_machine_with_the_same_facts_and_not_whose(tree, machine, tmp_path):
    root = sysfs_tree.write(tmp_path / "host", {**sysfs_tree.files(Machine(packages=1, cores=2)), **tree})
    _again, text = recorded_again(machine, smt_facts.gather(host_files.HostFs(root)), root, tmp_path)
    assert "SECRET" not in text
    with pytest.raises(machine.RecordingError, match="exists"):
        machine.make(text, tmp_path / "again")


def recorded_again(machine, facts, root, directory):
    """See that the tree that is made of the document has the same facts; return them, and the document."""
    made = json.dumps(document.made(looked(facts, recorded=recording.read(host_files.HostFs(root))), DAY))
    assert machine.make(made, directory / "again").startswith("| ")
    again = smt_facts.gather(host_files.HostFs(str(directory / "again")))
    assert {name: again[name] for name in document.FACTS} == {name: facts[name] for name in document.FACTS}
    return again, made


def test_siblings_that_are_offline_are_recorded_as_they_are_known(machine, tmp_path):
    all_online = sysfs_tree.files(Machine(packages=1, cores=2))
    root = sysfs_tree.write(tmp_path / "host", {**all_online, "etc/machine-id": "0123456789abcdef\n"})
    fs = host_files.HostFs(root)
    cache.save(fs, topology.read_topology(fs))
    now = sysfs_tree.files(Machine(packages=1, cores=2, offline=(2, 3)))
    for path in all_online.keys() - now.keys():
        (tmp_path / "host" / path).unlink()
    sysfs_tree.write(tmp_path / "host", now)
    again, text = recorded_again(machine, smt_facts.gather(host_files.HostFs(root)), root, tmp_path)
    assert again["sibling_groups"] == ["0,2", "1,3"] and again["source"] == "saved"
    # Not even the hash of what identifies the host.
    assert cache.machine_key(fs) not in text


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ({}, "it has no files"),
        ({CPU + "online": f"= {CPU}present"}, "stands for one that is not there"),
        *(({path: "x"}, "not the document of a proof") for path in ("../../etc/passwd", "/etc/passwd", "proc/self")),
        *(({path: "x"}, "not the document of a proof") for path in (CPU + "../../../etc/x", DMI + "product_uuid")),
    ],
)
def test_a_document_of_somebody_else_writes_nowhere_else(recorded, said, machine, facts, tmp_path):
    made = {**document.made(looked(facts), DAY), "recorded": recorded}
    with pytest.raises(machine.RecordingError, match=said):
        machine.make(json.dumps(made), tmp_path / "again")
    assert list(tmp_path.iterdir()) == []


def test_page_and_table_show_what_came_of_each_and_nothing_of_a_hosts_text_acts(facts):
    refused = answer(switch={**NO_SWITCH, "refused": ATTACK, "failed": True}, recorded={})
    proofs = [
        evaluated(looked(facts)),
        host_proof.of_host("evil", facts, refused, None, "not asked"),
        host_proof.HostProof("gone", reason="no route to host"),
    ]
    shown = page.render(proofs, "2026-11-27 10:00 UTC")
    assert "<script>alert" not in shown and "\x1b" not in shown and "49" not in shown.partition("evil")[2][:2000]
    assert shown.index(">evil<") < shown.index(">web01<") and "no route to host" in shown
    assert shown.count("are not in its document: they are more than 2,000,000 characters.") == 1
    lines = page.table(proofs)
    assert [line.split()[0] for line in lines[2:5]] == ["evil", "gone", "web01"]
    counts = "1 on which all holds that was tried, 1 on which something does not, 1 that could not be looked at."
    assert lines[-1] == f"3 hosts: {counts}" and all("\x1b" not in line for line in lines)
