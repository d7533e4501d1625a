# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a proof says of a host and what other sources say of its CPUs; the document names nobody."""

import contextlib
import errno
import gzip
import importlib.util
import json
import math
import os
import pathlib
import random
import shutil

import answer_maker
import facts_maker
import jsonschema_rs
import pytest
import result_maker
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks, processes
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import order
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import (
    instruments,
    recording,
    switching,
    views,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import change as smt_change
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts as border, parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import document, findings, host_proof, page
from fake_host import Host
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
COARSE = {**CLOCK, "reason": "it is coarse"}
MEASURED = {"cpus": "0-3", "pairs": ["0-1", "2-3"], "singles": "", "unclear": "", "rounds": 4, "seconds": 12.5}
MEASURED |= {"confidence": 0.99, "agrees_with_kernel": True, "measured_at": "2026-11-27T10:00:00Z"}
MEASURED |= {"ratios": [{"pair": "0-1", "result": "shares", "ratio": 0.55, "low": 0.53, "high": 0.57}]}
LYING = {**MEASURED, "pairs": ["0,2", "1,3"], "agrees_with_kernel": False}
ATTACK = "<script>alert(1)</script>\x1b[2J{{ 7 * 7 }}"
EFFECTS = {"as_found": 1.0, "again": 1.0, "more_work_5": 1.05}
DAY = "2026-11-27"
CPU = "sys/devices/system/cpu/"


@pytest.fixture(name="facts", scope="module")
def facts_of_a_machine(tmp_path_factory):
    root = sysfs_tree.write(tmp_path_factory.mktemp("host"), sysfs_tree.files(Machine(packages=1, cores=2)))
    return smt_facts.gather(host_files.HostFs(root))


def answer(**changes):
    given = {"kernel": "6.1.0-28-amd64", "views": [VIEW], "instruments": [CLOCK], "switch": SWITCH}
    given["recorded"] = {"sys/devices/system/cpu/online": "0-3\n"}
    return answer_maker.made("smt_proof_host", **{**given, **changes})


def looked(facts, reason=None, **changes):
    measured = None if reason else changes.pop("measured", MEASURED)
    siblings = parts.converted(measured, border.Measured | None)
    return host_proof.of_host("web01", facts_maker.made(facts), answer(**changes), siblings, reason)


def evaluated(proof, effects=None, noise=0.004, blocks=30, disturb=lambda _made: None):
    """The proof with a result: arm -> what it multiplies the time by; ``disturb`` changes the document."""
    effects = effects or EFFECTS
    loop = {"python_loop": {"rate": 100.0, "share": 0.625, "unit": "loops/s", "title": "loop"}}
    usual = {"workloads": loop, "names": ("all_threads",), "blocks": blocks, "noise": noise}
    made = result_maker.result(arms=dict.fromkeys(effects, 1.0), **usual)
    source = random.Random(5)
    made["plan"]["workloads"][0]["metrics"]["wall_time"] = {"unit": "s", "better": "lower", "aggregate": "mean"}
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
ALL_SAID = "CPUs and cores: lscpu. Not known: /proc/stat (it does not exist); topology/core_cpus_list (of CPUs 2 it is "
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
        ({}, "siblings", HOLDS, "By measuring, CPUs 0-1 and 2-3 share cores, as the kernel says."),
        ({"measured": LYING}, "siblings", FAILS, "CPUs 0,2 and 1,3 share a core; the kernel says otherwise."),
        ({"reason": "needs two CPUs"}, "siblings", OPEN, "Siblings were not measured: needs two CPUs."),
        ({"instruments": [COARSE]}, "instruments", FAILS, "Not of use: clock (it is coarse)."),
        ({"views": [SILENT, PART, VIEW, MISSING]}, "facts", HOLDS, ALL_SAID),
        ({"views": [SILENT, MISSING]}, "facts", OPEN, "Not known: /proc/stat (it does not exist)."),
        # A tool that differs from the kernel is no fault of the host.
        ({"views": [{**VIEW, **WRONG}, OF_KERNEL]}, "facts", HOLDS, "it has CPUs 0 and 1. The facts say what "),
        ({"views": [{**PART, **WRONG}, VIEW]}, "facts", FAILS, "it has CPUs 0 and 1. Not known: topology/core_cpus_li"),
    ],
)
def test_what_was_looked_at_is_said_with_what_came_of_it(changes, part, state, said, facts):
    proof = looked(facts, **changes)
    assert (states(proof)[part], said in sentence(proof, part)) == (state, True), sentence(proof, part)
    assert (findings.verdict(proof) == f"{part.capitalize()}: does not hold here.") == (state == FAILS)


@pytest.mark.parametrize(
    ("how", "part", "state", "said"),
    [
        ({}, "equal arms", HOLDS, "Two equal arms were not called different: "),
        ({}, "known effect", HOLDS, "5 % more work was found: its time changed by +5."),
        ({"effects": {**EFFECTS, "again": 1.02}}, "equal arms", FAILS, "Two equal arms were called different, +2."),
        ({"effects": {**EFFECTS, "more_work_5": 1.0}}, "known effect", FAILS, "5 % more work was not found"),
        ({"effects": {**EFFECTS, "more_work_5": 1.2}}, "known effect", FAILS, "its interval does not have the planted"),
        *(({"blocks": 3}, part, OPEN, "(3 of at least 4 blocks)") for part in ("equal arms", "known effect")),
    ],
)
def test_what_an_evaluation_of_equal_arms_and_a_planted_effect_says(how, part, state, said, facts):
    proof = evaluated(looked(facts), **how)
    assert states(proof)[part] == state and said in sentence(proof, part), sentence(proof, part)
    if not how:
        assert findings.verdict(proof) == "All that was tried holds."


NOT_DISTURBED = [
    {"environment": {"hypervisor": "kvm"}},
    {"facts": {"measured": {**MEASURED, "agrees_with_kernel": False}}},
]
QUOTA = [quotas.Quota("/a.slice", 2.0, 0.0)], [quotas.Quota("/a.slice", 2.0, 9.0)]


def _each_fifth(**changes):
    return lambda made: [sample.update(changes) for sample in made["samples"][::5]]


def _of_telemetry(**changes):
    return lambda made: [sample["telemetry"].update(changes) for sample in made["samples"]]


def _busy(made, one=False):
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
        (_each_fifth(ok=False, metrics={}, error=quotas.refusal(*QUOTA, 1.0)), "samples failed: the CPU quota of "),
    ],
)
def test_what_disturbed_is_named_with_advice_that_this_playbook_can_follow(disturb, said, facts):
    proof = evaluated(looked(facts), disturb=disturb)
    assert states(proof)["quiet"] == (HOLDS if said is None else FAILS), sentence(proof, "quiet")
    assert (said or "") in sentence(proof, "quiet") and "smt_eval" not in sentence(proof, "quiet")


def test_on_recorded_noise_equal_arms_are_called_equal_and_five_percent_are_found():
    """A dozen blocks of 50 ms; a proof on a host has some hundred of half a second and more."""
    arms, proofs = (host_proof.AS_FOUND, host_proof.AGAIN, host_proof.PLANTED), []
    spots = [arm for block in range(12) for arm in order.of_block(arms, block)]
    with gzip.open(TESTS / "calibration" / "data" / "equal_work.json.gz") as file:
        found = [one for one in json.load(file)["series"] if (one["kind"], one["series"]) == ("quiet", "same")]
    for one in found:
        taken = {arm: [] for arm in arms}
        for arm, time in zip(spots, one["microseconds"]):
            taken[arm].append([time * (1 + host_proof.EFFECT * (arm == host_proof.PLANTED))])
        family = paired.compare_family([(taken[arms[0]], taken[arm], "lower") for arm in arms[1:]])
        proofs.append([host_proof.Measured.read(pair) for pair in family])
    called = sum(equal.is_called for equal, _planted in proofs) / len(proofs)
    found = sum(planted.is_called for _equal, planted in proofs) / len(proofs)
    held = sum(planted.holds_the_effect for _equal, planted in proofs) / len(proofs)
    assert len(proofs) >= 300 and called <= 0.05 and found >= 0.95 and held >= 0.95, (called, found, held)


def test_of_a_kernels_release_the_document_has_the_numbers(facts):
    numbers = {"6.1.0-28-amd64": "6.1.0-28", "5.14.0-503.11.1.el9_5.x86_64": "5.14.0-503.11.1", "acme": ""}
    numbers.update({"6.8.0-acme-db-prod": "6.8.0", "5.10acme": "5"})
    assert {of: document.made(looked(facts, kernel=of), DAY)["kernel"] for of in numbers} == numbers


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


DMI = "sys/class/dmi/id/"
SECRET = "SECRET-1234"
GUEST = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nflags\t\t: lm hypervisor\n\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n\n"
S390 = "vendor_id       : IBM/S390\nprocessor 0: version = FF,  identification = SECRET,  machine = 2964\n"
SMBIOS = "\0" * 19
INFO, RAW = "proc/cpuinfo", "sys/firmware/dmi/entries/0-0/raw"
SOURCES = f"{CPU[:-4]}clocksource/clocksource0/available_clocksource"


def of_vendor(vendor, product):
    return {DMI + "sys_vendor": f"{vendor}\n", DMI + "product_name": f"{product}\n"}


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {INFO: GUEST, **of_vendor(f"QEMU {SECRET}", SECRET)},
        {INFO: GUEST, SOURCES: "kvm-clock tsc acpi_pm\n"},
        *({INFO: ARM, **of_vendor("Amazon EC2", f"c7g.{size}")} for size in ("metal", "large")),
        {INFO: ARM, RAW: SMBIOS + f"\x10{SECRET}"},
        {INFO: ARM, "proc/device-tree/compatible": "linux,dummy-virt\0", "proc/device-tree/model": SECRET},
        {INFO: S390, "proc/sysinfo": f"LPAR Name: {SECRET}\nVM00 Name: {SECRET}\nSequence Code: {SECRET}\n"},
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
    made = json.dumps(document.made(looked(facts, recorded=recording.read(host_files.HostFs(root))), DAY))
    assert machine.make(made, directory / "again").startswith("| ")
    again = smt_facts.gather(host_files.HostFs(str(directory / "again")))
    assert {name: again[name] for name in document.FACTS} == {name: facts[name] for name in document.FACTS}
    return again, made


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
    evil = host_proof.of_host("evil", facts_maker.made(facts), refused, None, "not asked")
    proofs = [evaluated(looked(facts)), evil, host_proof.HostProof("gone", reason="no route to host")]
    shown = page.render(proofs, "2026-11-27 10:00 UTC")
    assert "<script>alert" not in shown and "\x1b" not in shown and "49" not in shown.partition("evil")[2][:2000]
    assert shown.index(">evil<") < shown.index(">web01<") and "no route to host" in shown
    assert shown.count("are not in its document: they are more than 2,000,000 characters.") == 1
    lines = page.table(proofs)
    assert [line.split()[0] for line in lines[2:5]] == ["evil", "gone", "web01"]
    counts = "1 on which all holds that was tried, 1 on which something does not, 1 that could not be looked at."
    assert lines[-1] == f"3 hosts: {counts}" and all("\x1b" not in line for line in lines)


RECORDED = pathlib.Path(__file__).with_name("recorded")
MACHINE = Machine(packages=1, cores=2)


def tools(**output):
    """Run nothing, and answer for the tools that are installed: name -> output, or (status, output)."""

    def run(argv, _seconds):
        found = output.get(argv[0].partition("-")[0])
        if found is None:
            return 127, "", f"{argv[0]} is not installed"
        return (*found, "") if isinstance(found, tuple) else (0, found, "")

    return run


def read(root, run, machine=MACHINE, **tree):
    files = {**sysfs_tree.files(machine), **tree}
    fs = host_files.HostFs(sysfs_tree.write(root, {name: text for name, text in files.items() if text is not None}))
    shown = topology.read_topology(fs)
    return shown, {view.source: view for view in views.read(fs, shown.online, run)}


def test_a_recording_names_no_serial_number_and_is_left_out_where_nobody_reads_so_much(tmp_path, monkeypatch):
    text = "processor\t: 0\nmodel name\t: X\nSerial\t\t: 10000000abcdef01\n\n"
    text += "processor 0: version = FF,  identification = 1A2B3C,  machine = 2964\n"
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, {"proc/cpuinfo": text}))
    kept = recording.read(fs)["proc/cpuinfo"]
    assert "model name" in kept and "machine = 2964" in kept and "Serial" not in kept and "1A2B3C" not in kept
    monkeypatch.setattr(recording, "MAX_CHARACTERS", 50)
    assert recording.read(fs) == {}


def test_the_cores_of_a_real_hwloc(tmp_path):
    _shown, found = read(tmp_path, tools(lstopo=(RECORDED / "hwloc-2.9.0.xml").read_text()))
    cores = found["hwloc"].cores
    assert len(cores) == 32 and cores[0] == (0, 32) and cores[-1] == (31, 63)


def test_a_source_that_differs_is_named_with_both(tmp_path):
    """The two lists of siblings have other names since Linux 5.3, and could say different things."""
    lscpu = "# comment\n0,0,0\n1,0,0\n2,1,0\n3,1,0\n"
    ppc64_cpu = "Core   0:    0*    2*\nCore   1:    1*    3 \nno core: 7\n"
    files = {f"{CPU}cpu0/topology/thread_siblings_list": "0-1\n", "proc/stat": "cpu  1\ncpu0 1 2 3\ncpu1 1 2 3\n"}
    shown, found = read(tmp_path, tools(lscpu=lscpu, ppc64_cpu=ppc64_cpu), **files)
    said = {name: views.differences(shown, view) for name, view in found.items()}
    assert len(said["lscpu"]) == 4 and said["lscpu"][0] == "lscpu has CPUs 0-1 on one core, and the facts have 0,2"
    assert said["ppc64_cpu"] == ["ppc64_cpu has CPUs 0-2 online, and the facts have 0-3"]
    assert said["/proc/stat"] == ["/proc/stat has CPUs 0-1 online, and the facts have 0-3"]
    name = "topology/thread_siblings_list"
    assert f"{name} has CPUs 0-1 on one core, and the facts have 0,2" in said[name]
    assert found["hwloc"].reason == "it is not installed"


ONLINE = f"/{CPU}online"
CORE = f"{CPU}cpu2/topology/core_cpus_list"


@pytest.mark.parametrize(
    ("source", "path", "text", "reason"),
    [
        ("/proc/stat", "proc/stat", None, "it does not exist"),
        (ONLINE, ONLINE[1:], "garbage\n", "it is no list of CPUs"),
        ("topology/core_cpus_list", CORE, "xx\n", "of CPUs 2 it is no list of CPUs"),
        ("topology/core_cpus_list", CORE, None, "of CPUs 2 it does not exist"),
    ],
)
def test_a_source_that_says_nothing_has_a_reason(source, path, text, reason, tmp_path):
    tree = {**sysfs_tree.files(MACHINE), "proc/stat": "cpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n", path: text}
    root = sysfs_tree.write(tmp_path, {name: was for name, was in tree.items() if was is not None})
    found = {view.source: view for view in views.read(host_files.HostFs(root), range(4), tools())}
    assert {name: view.reason for name, view in found.items() if "/" in name and view.reason} == {source: reason}
    # What is known of other CPUs is compared all the same.
    assert (found[source].cores == ((0, 2), (1, 3))) == source.startswith("topology")


def test_a_tool_that_hangs_or_may_not_be_run_is_not_one_that_is_missing(tmp_path, monkeypatch):
    for name, script, mode in (("lscpu", "#!/bin/sh\nexec sleep 9\n", 0o755), ("ppc64_cpu", "#!/bin/sh\n", 0o644)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(mode)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(views, "SECONDS", 0.3)
    found = {view.source: view.reason for view in views.read(host_files.HostFs(str(tmp_path)), [0], processes.run)}
    for name, why in (("lscpu", "timed out"), ("ppc64_cpu", "Permission denied")):
        assert found[name].startswith("it cannot be run: ") and why in found[name]
    assert found["hwloc"] == "it is not installed"


NONE_PRINTS = ["\x1b[31m0,0,0\x1b[0m\n", '<object type="Core" cpuset="0xffffffff,,0x1zz"/>', "Core 0: " + "9" * 100_000]
NONE_PRINTS += [(1, "0,0,0\n"), "0,0,0\nCore 0: 0*\n" + "x" * (views.MAX_OUTPUT + 1)]


@pytest.mark.parametrize("printed", NONE_PRINTS, ids=range(5))
def test_what_no_tool_prints_says_nothing(printed, tmp_path):
    shown, found = read(tmp_path, tools(lscpu=printed, lstopo=printed, ppc64_cpu=printed))
    for name in ("lscpu", "hwloc", "ppc64_cpu"):
        assert found[name].reason is not None and views.differences(shown, found[name]) == []


def test_what_is_coarse_or_switched_off_is_no_instrument(tmp_path, monkeypatch):
    fs = host_files.HostFs(str(tmp_path))
    assert "CONFIG_SCHEDSTATS" in instruments._schedstat(fs).reason and instruments._clock(fs).reason is None
    for switch, reason in (("1\n", None), ("0\n", "kernel.sched_schedstats is 0")):
        sysfs_tree.write(tmp_path, {"proc/schedstat": "version 15\n", "proc/sys/kernel/sched_schedstats": switch})
        assert instruments._schedstat(fs).reason == reason
    monkeypatch.setattr(instruments, "MAX_STEP_SECONDS", 1e-12)
    reason = instruments._clock(fs).reason
    assert reason.startswith("it is coarse, ") and "times as long" in reason


SIBLINGS = "1,3,5,7"
TICKS = 100


@pytest.fixture(name="host")
def make_host(tmp_path, monkeypatch):
    host = Host(tmp_path)
    host.stand_in(switching, monkeypatch)
    return host


def there_and_back(host, check=False):
    return switching.there_and_back(host.run_command, TICKS, check, host.sysroot)


def test_siblings_go_and_the_host_is_as_before(host):
    found = there_and_back(host, check=True)
    assert (found.refused, found.cpus, found.seconds_off) == (None, SIBLINGS, None)
    assert host.writes == [] and host.commands == []
    host.put("proc/irq/30/smp_affinity_list", "0-7")
    found = there_and_back(host)
    assert (found.refused, found.cpus) == (None, SIBLINGS) and host.online == set(range(8))
    assert found.different == {"cpus": [], "masks": [], "cpusets": [], "interrupts": []}
    assert found.seconds_off is not None and found.seconds_back is not None
    # Until then a timer would have brought the host back. Nothing waits now, and the next change is a first one.
    assert [command[0] for command in host.commands].count("systemd-run") == 1
    assert host.pending() is None and host.saved() is None and not host.is_waiting
    # Interrupts are irqbalance's where it runs, and not called as before.
    host.put("proc/77/comm", "irqbalance")
    host.put("proc/77/status", "Name:\tirqbalance\nUid:\t0\t0\t0\t0\n")
    assert set(there_and_back(host).different) == {"cpus", "masks", "cpusets"}


def test_a_host_that_was_changed_before_is_as_it_was_then(host):
    """One sibling is off on purpose, by smt_state, which can still restore it."""
    host.ask("disabled", cores={"cpus": "0-1"})
    found = there_and_back(host)
    assert found.refused is None and not any(found.different.values()) and host.online == {0, 2, 3, 4, 5, 6, 7}
    host.ask("restored")
    assert host.online == set(range(8))


def test_a_cpu_that_the_kernel_refuses_is_named_and_nothing_is_left(host):
    host.control = None
    host.refusals[5, False] = errno.EBUSY
    host._show()
    found = there_and_back(host)
    assert found.failed and found.refused.startswith("CPU 5: EBUSY"), found
    assert host.online == set(range(8)) and host.pending() is None and not host.is_waiting


def _hold_the_lock(host, monkeypatch):
    monkeypatch.setattr(locks, "CHANGE_SECONDS", 0.1)
    return locks.HostLock(host.sysroot, "smt_benchmark")


def _no_systemd(host, _patch):
    shutil.rmtree(os.path.join(host.sysroot, "run/systemd"))


def _full_disk(_host, monkeypatch):
    def save(_fs, _saved):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/threadwise-smt/snapshot.json")

    monkeypatch.setattr(smt_change.smt_snapshot, "save", save)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (_hold_the_lock, "this host is being changed by smt_benchmark"),
        (_no_systemd, "its rollback timer needs systemd (systemd-run), which does not run on this host. Try it with"),
        (lambda host, _patch: host.status.update({"systemd-run": 1}), "systemd-run did not start the rollback timer"),
        (_full_disk, "/var/lib/threadwise-smt/snapshot.json: No space left on device. The host is as it was before. M"),
        (lambda host, _patch: setattr(host, "read_only", True), "EROFS: sysfs is mounted read-only, as in a container"),
        (lambda host, _patch: put_thread(host, 41, "3"), "1 affinity conflict(s). Move what is bound to these CPUs"),
    ],
)
def test_what_keeps_the_kernel_from_being_asked_is_no_fault_of_it(prepare, said, host, monkeypatch):
    context = prepare(host, monkeypatch)
    with context if hasattr(context, "__enter__") else contextlib.nullcontext():
        found = there_and_back(host)
    assert found.refused.startswith(said) and not found.failed, found
    assert not any(option in found.refused for option in ("rollback_after", "affinity_conflicts", "state:"))
    assert host.online == set(range(8)) and host.pending() is None and not host.is_waiting


def put_thread(host, pid, mask):
    start = f"{pid} (worker) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 {10 * pid} 0"
    for folder in (f"proc/{pid}", f"proc/{pid}/task/{pid}"):
        host.put(f"{folder}/stat", start)
        host.put(f"{folder}/status", f"Name:\tworker\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t{mask}\n")
        host.put(f"{folder}/cgroup", "0::/system.slice/db.service\n")


V1 = ("cgroup /cpu cgroup rw,cpuset 0 0", "cpuset.cpus")
V2 = ("cgroup2 /cpu cgroup2 rw 0 0", "cpuset.cpus.effective")


INVALID = (V2[0], "cpuset.cpus.partition", "root", "root invalid (Cpu list in cpuset.cpus not exclusive)")


# The last CPU may be gone for good.
@pytest.mark.parametrize(("hierarchy", "file", "had", "has"), [(*V1, "3", "\n"), (*V2, "2-3", "2"), INVALID])
def test_a_cpuset_that_is_narrower_is_named_whether_it_bound_or_not(hierarchy, file, had, has, host):
    host.put("proc/self/mounts", hierarchy + "\n")
    host.put("cpu/cpuset.cpus.effective", "0-7")
    host.put("cpu/docker/cpuset.cpus", "\n")
    host.put(f"cpu/docker/a/{file}", had)
    before = switching.picture(host)
    host.put(f"cpu/docker/a/{file}", has)
    found = switching.differences(before, switching.picture(host), TICKS)["cpusets"]
    name = file.rpartition(".")[2]
    assert found == [f"/cpu/docker/a has {name} {has.strip() or 'none'} (before: {name} {had})"]


def picture(masks, cpusets, interrupts, online=(0, 1, 2, 3)):
    state = {"control": "on", "active": True, "online": list(online), "present": [0, 1, 2, 3]}
    return switching.Picture(100.0, state, masks, cpusets, interrupts)


def test_each_difference_is_said_with_what_was_before_and_what_began_or_ended_since_is_none():
    before = picture({(7, "10"): "0"}, {"a": "cpus 0-1"}, {"9": "0-3"})
    now = picture({(7, "10"): "2", (8, "9000"): "0-2"}, {"a": "cpus 0"}, {"9": "0"}, online=(0, 1, 2))
    found = switching.differences(before, now, TICKS)
    assert found.pop("cpus") and found == {
        "masks": ["thread 7 may run on 2, before on 0", "thread 8 may run on 0-2, before on all CPUs"],
        "cpusets": ["/a has cpus 0 (before: cpus 0-1)"],
        "interrupts": ["interrupt 9 is on 0, before on 0-3"],
    }
    after = picture({(8, "10100"): "0"}, {"b": "cpus 0"}, {"10": "0"})
    assert not any(switching.differences(before, after, TICKS).values())
