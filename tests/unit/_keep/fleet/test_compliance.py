# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts: held against what `smt_state` and `smt_boot_args` would change on the very same host."""

from __future__ import annotations

import boot_maker
import facts_maker
import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.scope import Scope
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import (
    compliance,
    compliance_report,
    rollout,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Change, Rollback
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.policy import DesiredState
from fake_host import Host
from fake_kernel import numbered_cores

ENABLED, DISABLED = DesiredState("enabled"), DesiredState("disabled")
PARTS = [DesiredState("disabled", cores=Scope("cpus", cpus)) for cpus in ("0", "5", "0-3", "4-7", "0,2,4,6")]
DESIRED_STATES = [ENABLED, DISABLED, *(DesiredState(threads=count) for count in (1, 2, 4)), *PARTS]
TWO_PACKAGES = sysfs_tree.Machine(packages=2, cores=2, threads=2, numbering="adjacent")
ON_PACKAGE_1 = DesiredState("disabled", cores=Scope("package", "1"))
OFF = sysfs_tree.Machine(offline=(2, 3), control="off")
FORCED = sysfs_tree.Machine(offline=(2, 3), control="forceoff")
PLAIN = sysfs_tree.Machine(threads=1, control="notsupported")


def gathered(root):
    return smt_facts.gather(host_files.HostFs(str(root)))


def known(root, machine=None, running=(), configured=(), reboot=False, **change):
    """The facts of a host that can be switched."""
    found = gathered(sysfs_tree.write(root, sysfs_tree.files(machine or sysfs_tree.Machine())))
    boot = {"running": [*running], "loader": "grub_debian", "reboot_required": reboot}
    boot["configured"] = None if configured is None else [*configured]
    methods = {"runtime": {"chosen": "smt_control"}, "boot": {"chosen": "grub_debian"}}
    return facts_maker.over(found, {"methods": methods, "boot": boot, **change})


@pytest.fixture(scope="module", name="usual")
def _usual(tmp_path_factory):
    return known(tmp_path_factory.mktemp("usual"))


def judge(found, desired, scope="both", memory=None, consumers=None):
    return compliance.judge(facts_maker.made(found), desired, scope, memory, consumers)


def change(running=None, configured=None, memory=False, reboot=False):
    return Change(running, configured, memory, reboot)


@pytest.mark.night(after=6)
@pytest.mark.parametrize(("threads", "modern", "numeric"), [(2, False, False), (4, True, True), (2, True, False)])
@pytest.mark.parametrize("offline", [(5, 7), (), (1,), (4, 5)])
@pytest.mark.parametrize("state", ["on", "off", "forceoff", None])
def test_compliant_is_where_smt_state_would_change_nothing(tmp_path, state, offline, threads, modern, numeric):
    host = Host.__new__(Host)
    cores = numbered_cores(8 // threads, threads, "adjacent")
    super(Host, host).__init__(tmp_path, cores, control=state, modern=modern, numeric=numeric, offline=offline)
    host.put("proc/self/mounts", "")
    host.boot("first")
    host.commands = []
    found = facts_maker.made(gathered(tmp_path))
    for desired in DESIRED_STATES:
        actual = compliance.running(found, desired)
        options = {"threads": desired.threads, "cores": desired.cores.given, "affinity_conflicts": "warn"}
        try:
            changes = host.ask(desired.state, check=True, **options)["changed"]
            expected = "drifted" if changes else "compliant", actual.blocked_by
        except smt_state.StateError as error:
            expected = "drifted", str(error)
        assert (actual.status, actual.blocked_by) == expected, desired


# What is offline: as wanted; one sibling came back; one went offline elsewhere after the first change.
@pytest.mark.parametrize(
    ("offline", "sentence"),
    [("5,7", ""), ("5", "running: CPUs 7 are online"), ("3,5,7", "running: CPUs 3 are offline")],
)
def test_a_part_of_the_machine(tmp_path, offline, sentence):
    found = known(tmp_path, TWO_PACKAGES, online_before="0-7")
    online = ",".join(cpu for cpu in "01234567" if cpu not in offline)
    found["cpus"].update(offline=offline, online=online)
    verdict = judge(found, ON_PACKAGE_1, "runtime")
    assert (verdict.sentence, verdict.wanted) == (sentence, "disabled on package 1")
    assert verdict.change.running == ({"state": "disabled", "cores": {"package": 1}} if sentence else None)
    assert verdict.status == ("drifted" if sentence else "compliant")
    # Without a change of its own what is offline elsewhere is off on purpose.
    del found["online_before"]
    found["sibling_groups"] = ["0-1", "2-3", "4-5", "6-7"]
    assert judge(found, ON_PACKAGE_1, "runtime").status == ("drifted" if offline == "5" else "compliant")


# ---- each difference in words, and what is changed -------------------------------------------------------------------

NO_SMT = "no SMT here (the CPUs have none, it is off in the firmware, or the hypervisor hides it), so nothing can be"
NO_SMT += " otherwise"
OF_PART = "configured: no boot argument turns SMT off on a part of the machine (package 1): use smt_policy_scope"
OF_TWO = "configured: no boot argument leaves 2 of 4 threads per core: use smt_policy_scope"
REST = " runtime, with smt_runtime_persist to keep it over boots"
NO_SIBLINGS = "running: the kernel does not report which online CPUs share a core"
NO_BOOT = "configured: the next boot's arguments are not known (boot loader: grub_debian)"
ALL = "running: smt/control reads 'on' instead of off; CPUs 2-3 are online. configured: nosmt is missing; maxcpus=2 is"
PARTLY = "running: smt/control reads 'off' instead of on; CPUs 1,3 are offline"
WHOLE_OFF = {"control": "off", "active": False, "cpus": {"online": "0,2,4,6", "offline": "1,3,5,7"}}
BY_FORCE = {"running": ["nosmt=force"], "configured": ["nosmt=force"]}
RUN_OFF, BOOT_OFF, BOOT_ON = {"state": "disabled"}, {"smt": "disabled"}, {"smt": "enabled"}
ON_ONE = {**RUN_OFF, "cores": ON_PACKAGE_1.cores.given}
REBOOT = "in force after the next reboot"
MAX = ["maxcpus=2"]
NOSMT, FOUR, ARM = {"configured": ["nosmt"]}, sysfs_tree.Machine(threads=4), "aarch64-1s4c4t-split-00000000"
NEXT, NODES, PACKAGES = {**NOSMT, "reboot": True}, "it has nodes 0", "it has packages 0-1"
row = pytest.param


NODE_0, NODE_9, PACKAGE_2, CPU_8 = (
    DesiredState("disabled", cores=Scope(*one.split())) for one in ("node 0", "node 9", "package 2", "cpus 6-9")
)
THREADS_1, THREADS_2 = DesiredState(threads=1), DesiredState(threads=2)
NONE_9, NONE_2 = f"no node 9 on this host: {NODES}", f"no package 2 on this host: {PACKAGES}"


@pytest.mark.parametrize(
    ("machine", "facts", "desired", "scope", "status", "sentence", "changed"),
    [
        row(None, {"configured": MAX}, DISABLED, "both", "drifted", f"{ALL} still there", change(RUN_OFF, BOOT_OFF)),
        row(None, NOSMT, DISABLED, "both", "drifted", None, change(RUN_OFF)),
        row(None, {}, DesiredState(decided_by="x"), "both", "compliant", "", change()),
        row(None, NEXT, DISABLED, "boot", "compliant", REBOOT, change(None, BOOT_OFF, reboot=True)),
        row(FORCED, BY_FORCE, ENABLED, "both", "drifted", None, change(None, BOOT_ON, reboot=True)),
        row(TWO_PACKAGES, WHOLE_OFF, ON_PACKAGE_1, "runtime", "drifted", PARTLY, change(ON_ONE)),
        row(TWO_PACKAGES, {}, ON_PACKAGE_1, "boot", "unknown", OF_PART + REST, change()),
        row(FOUR, {}, THREADS_2, "boot", "unknown", OF_TWO + REST, change()),
        row(FOUR, {}, THREADS_1, "boot", "drifted", None, change(None, BOOT_OFF, reboot=True)),
        row(None, {"configured": None}, ENABLED, "boot", "unknown", NO_BOOT, change()),
        row(None, {"configured": None}, DISABLED, "both", "drifted", None, change(RUN_OFF)),
        row(OFF, {"configured": None}, DISABLED, "both", "unknown", None, change()),
        row(OFF, {}, DISABLED, "runtime", "compliant", "", change()),
        row(None, {"active": None}, DISABLED, "runtime", "unknown", NO_SIBLINGS, change()),
        # Without SMT it is off, and boot arguments are still checked.
        row(PLAIN, {"hypervisor": "kvm"}, ENABLED, "both", "compliant", NO_SMT, change()),
        row(PLAIN, {}, THREADS_1, "runtime", "compliant", NO_SMT, change()),
        row(PLAIN, {}, DISABLED, "both", "drifted", "configured: nosmt is missing", change(None, BOOT_OFF)),
        row(PLAIN, NOSMT, ENABLED, "both", "drifted", "configured: nosmt is still there", change(None, BOOT_ON)),
        # Two threads of a core are wanted, and there is one.
        row(PLAIN, {}, THREADS_2, "runtime", "drifted", None, None),
        row(PLAIN, {"hardware_class": ARM}, ENABLED, "runtime", "compliant", NO_SMT, change()),
        row(PLAIN, {}, NODE_0, "runtime", "compliant", NO_SMT, change()),
        # What the host does not have is a bad policy.
        row(PLAIN, {}, NODE_9, "runtime", "bad_policy", NONE_9, None),
        row(TWO_PACKAGES, {}, PACKAGE_2, "both", "bad_policy", NONE_2, None),
        row(TWO_PACKAGES, {}, CPU_8, "both", "bad_policy", "no CPU 8 on this host: it has CPUs 0-7", None),
    ],
)
def test_what_differs_is_named_and_only_that_is_changed(
    tmp_path, machine, facts, desired, scope, status, sentence, changed
):
    verdict = judge(known(tmp_path, machine, **facts), desired, scope)
    assert (verdict.status, verdict.change if changed else None) == (status, changed)
    prefix = "disabled_on: there is " if status == "bad_policy" else ""
    assert sentence is None or verdict.sentence == prefix + sentence
    # Forced off is final until a reboot.
    assert machine is not FORCED or verdict.running.blocked_by


@pytest.mark.parametrize(
    "configured", ["", "nosmt", "nosmt=force", "maxcpus=4", "mitigations=auto,nosmt", "mds=full,nosmt", "nosmt nosmt"]
)
@pytest.mark.parametrize("state", ["enabled", "disabled"])
def test_compliant_is_where_smt_boot_args_would_change_no_argument(tmp_path, configured, state):
    boot_maker.grub_tree(tmp_path, settings=f'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="{configured}"\n')
    boot_maker.running(tmp_path)
    fs = host_files.HostFs(str(tmp_path))
    actual = compliance.configured(facts_maker.made(gathered(tmp_path)), DesiredState(state)).status
    result = boot_change.run(fs, boot_change.Request(state, None, False, False), "x86_64", "6.1.0-13-amd64")
    assert actual == ("compliant" if result["configured_before"] == result["configured"] else "drifted")
    assert compliance.configured(facts_maker.made(gathered(tmp_path)), DesiredState(state)).status == "compliant"


def test_smt_that_is_wanted_and_off_in_firmware_is_said_and_counted(tmp_path):
    for control, desired, hypervisor, booted, of_firmware in (
        ("on", ENABLED, None, [], "known"),
        ("notsupported", ENABLED, None, [], "possible"),
        # Somebody else's firmware, CPUs that the kernel did not look at, and what nobody wants.
        ("notsupported", ENABLED, "kvm", [], None),
        ("on", ENABLED, None, ["maxcpus=4"], None),
        ("on", DISABLED, None, [], None),
    ):
        machine = sysfs_tree.Machine(threads=1, control=control)
        verdict = judge(known(tmp_path / f"{control}", machine, booted, hypervisor=hypervisor), desired, "runtime")
        assert verdict.sentence.startswith(compliance.LACKING) == bool(of_firmware), verdict
        assert (verdict.sentence == compliance.LACKING) == (of_firmware == "known"), verdict
        assert ("1 host" in compliance_report.sentence([("a", verdict)]).partition(".")[2]) == bool(of_firmware)


def test_only_what_can_have_no_other_state_is_without_smt(tmp_path):
    found = known(tmp_path, PLAIN)
    # A measurement found siblings that the hypervisor hides.
    hidden = {**found, "measured": {"agrees_with_kernel": False, "pairs": ["0-1"]}}
    hosts = found, known(tmp_path / "a", FORCED), {**found, "supported": None}, hidden
    assert [facts_maker.made(one).without_smt for one in hosts] == [True, False, False, False]


BY_BOOT = {"boot_differences": ["z.conf makes it 0"], "boot_blocked_by": "take it out"}


@pytest.mark.parametrize(
    ("wanted", "status", "memory", "later", "sentence"),
    [
        ({"differences": ["x reads 0"]}, "drifted", "drifted", "compliant", "memory: x reads 0"),
        ({"refusal": "no", "differences": ["x"]}, "drifted", "drifted", "compliant", "memory: no"),
        ({"differences": []}, "compliant", "compliant", "compliant", ""),
        (BY_BOOT, "drifted", "compliant", "drifted", "memory configured: z.conf makes it 0"),
        # Services alone say nothing of the next boot.
        (None, "drifted", "drifted", None, "memory: db is not"),
    ],
)
def test_memory_counts_beside_it_and_at_the_next_boot(tmp_path, wanted, status, memory, later, sentence):
    found = facts_maker.of_memory(wanted, protect_differences=None if wanted else ["db is not"])
    verdict = judge(known(tmp_path), ENABLED, memory=compliance.memory_aspects(found))
    assert (verdict.status, verdict.sentence, verdict.memory.status) == (status, sentence, memory)
    found = verdict.memory_configured
    assert (found and found.status) == later and verdict.change.memory == (status == "drifted")
    assert (found and found.blocked_by) == ("take it out" if later == "drifted" else None)


def test_a_pending_rollback_is_named_in_one_line(usual):
    saved, evil = {"since": "2026-03-01T12:00:00Z", "back_to": "CPUs 0-4"}, "x\x1b[2J y{{ 7 }}"
    given = [None, dict.fromkeys(saved), saved, {"since": None, "back_to": evil}]
    taken = [judge({**usual, "pending_rollback": one}, ENABLED).pending_rollback for one in given]
    assert taken == [None, Rollback(), Rollback(**saved), Rollback(None, text.line(evil, 500))]


SAYS = (
    "a change for user jo waits for its confirmation, and is rolled back in about 90 s without it: confirm it, or wait"
)
SAYS += " for that"


def test_a_host_whose_change_waits_for_its_confirmation_is_left_alone(tmp_path, usual):
    waiting = {"by": "for user jo", "seconds_left": 90}
    found = known(tmp_path, FORCED, pending_change=waiting)
    for scope in ("runtime", "both", "boot"):
        verdict = judge(found, ENABLED, scope, compliance.memory_aspects(facts_maker.of_memory({"differences": ["x"]})))
        assert verdict.status == "drifted" and verdict.sentence.endswith(f". {SAYS}")
        assert (verdict.pending_change, verdict.change) == (SAYS, change())
        assert rollout.blocked_by(verdict, reboot_ok=True) == SAYS and not rollout.is_pending(verdict, reboot_ok=True)
    fine = judge({**usual, "pending_change": waiting}, ENABLED)
    assert (fine.status, fine.sentence) == ("compliant", SAYS), "it is as wanted, for now"
    hostile = {**usual, "pending_change": {"by": "\x1b[2J{{ 7 }}\nfatal", "seconds_left": 9}}
    assert judge(hostile, ENABLED).pending_change.isprintable()


def test_the_number_that_powers_control_would_read(tmp_path):
    found = known(tmp_path, sysfs_tree.Machine(threads=4), hardware_class="ppc64le-1s2c8t-split-00000000")
    reasons = judge(found, DesiredState(threads=2), "runtime").running.reasons
    assert [*reasons] == ["smt/control reads 'on' instead of 2", "CPUs 4-7 are online"]


def test_what_is_said_of_a_host_is_the_same_with_each_release_of_ansible():
    for message in ("no route", "Task failed: no route", "Task failed: Action failed: no route"):
        assert compliance.from_registered({"unreachable": True, "msg": message}).sentence == "no route"
        assert compliance.from_registered({"failed": True, "msg": f"web: {message}"}).sentence == f"web: {message}"


SERVICE = {"program": "nginx", "unit": "nginx.service", "is_service": True, "counted": 8, "cpus": 4}
SAID = "nginx.service has 8 worker processes for 8 CPUs, and has 4: restart it"


@pytest.mark.parametrize(
    ("is_service", "scope", "consumers", "status"),
    [
        (True, "runtime", {"nginx": "restart"}, "drifted"),
        (True, "runtime", {"java": "restart"}, "compliant"),
        (True, "runtime", {"nginx": "none"}, "compliant"),
        # What runs in a container, or what a user calls nginx, is not for smt_state.
        (False, "runtime", {"nginx": "restart"}, "compliant"),
        (True, "boot", {"nginx": "restart"}, None),
    ],
)
def test_a_service_that_believes_in_another_number_is_named_and_is_drift_where_it_has_to_follow(
    tmp_path, is_service, scope, consumers, status
):
    machine = sysfs_tree.Machine(cores=4, numbering="adjacent", control="off", offline=(1, 3, 5, 7))
    service = {**SERVICE, "has": SAID.partition(",")[0], "remedy": "restart it", "is_service": is_service}
    found = known(tmp_path, machine, configured=["nosmt"], online_before="0-7", consumers=[service])
    verdict = judge(found, DISABLED, scope, None, consumers)
    assert (verdict.running and verdict.status, verdict.services) == (status, (SAID,))
    assert verdict.change.running == ({"state": "disabled"} if status == "drifted" else None)
    # It is said once.
    assert compliance_report.how(verdict) == f"{'running' if status == 'drifted' else 'services'}: {SAID}"
