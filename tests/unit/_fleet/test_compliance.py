# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts: held against what `smt_state` and `smt_boot_args` would change on the very same host."""

from __future__ import annotations

import itertools
import json
import string

import boot_maker
import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._smt.scope import Scope
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import (
    compliance,
    compliance_report,
    policy,
    rollout,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.policy import DesiredState
from fake_host import Host
from fake_kernel import numbered_cores
from hypothesis import HealthCheck, given, settings, strategies as st

WHOLE_STATES = [
    DesiredState("enabled"),
    DesiredState("disabled"),
    DesiredState(threads=1),
    DesiredState(threads=2),
    DesiredState(threads=4),
]
PARTS = [DesiredState("disabled", cores=Scope("cpus", cpus)) for cpus in ("0", "5", "0-3", "4-7", "0,2,4,6")]
DESIRED_STATES = WHOLE_STATES + PARTS
SWITCHABLE = {"runtime": {"chosen": "smt_control"}, "boot": {"chosen": "grub_debian"}}


def known(root, machine=None, **change):
    machine = machine or sysfs_tree.Machine()
    found = smt_facts.gather(host_files.HostFs(sysfs_tree.write(root, sysfs_tree.files(machine))))
    return dict(
        found,
        methods=SWITCHABLE,
        boot={"running": [], "configured": [], "loader": "grub_debian", "reboot_required": False},
        **change,
    )


def judge(found, desired, scope="both", memory=None, consumers=None):
    verdict = compliance.judge(found, desired, scope, memory, consumers)
    assert json.loads(json.dumps(verdict)) == verdict
    return verdict


@pytest.mark.parametrize("state", ["on", "off", "forceoff", "absent"])
@pytest.mark.parametrize("offline", [(), (1,), (5, 7), (4, 5)])
@pytest.mark.parametrize(("threads", "modern", "numeric"), [(2, False, False), (2, True, False), (4, True, True)])
def test_compliant_is_where_smt_state_would_change_nothing(tmp_path, state, offline, threads, modern, numeric):
    options = {
        "control": None if state == "absent" else state,
        "modern": modern,
        "numeric": numeric,
        "offline": offline,
    }
    host = _host(tmp_path, numbered_cores(8 // threads, threads, "adjacent"), options)
    found = smt_facts.gather(host_files.HostFs(str(tmp_path)))
    for desired in DESIRED_STATES:
        actual = compliance.running(found, desired)
        changes, reason = _asked(host, desired)
        if reason is not None:
            assert (actual["status"], actual["blocked_by"]) == ("drifted", reason), desired
        else:
            assert actual["status"] == ("drifted" if changes else "compliant"), (desired, actual)


def _asked(host, desired):
    """Return whether smt_state would change something, or why it refuses: ``(changed, reason)``, one of them None."""
    try:
        return (
            host.ask(
                desired.state, threads=desired.threads, cores=desired.cores.given, check=True, affinity_conflicts="warn"
            )["changed"],
            None,
        )
    except smt_state.StateError as error:
        return None, str(error)


def _host(root, cores, options):
    host = Host.__new__(Host)
    super(Host, host).__init__(root, cores, **options)
    host.put("proc/self/mounts", "")
    host.boot("first")
    host.commands = []
    return host


@pytest.mark.night(after=3)
@pytest.mark.parametrize("options", [{"modern": True}, {"control": None}])
@pytest.mark.parametrize("offline", [(), (1,)])
def test_compliant_is_where_smt_state_would_change_nothing_whatever_it_changed_before(tmp_path, options, offline):
    """From each state to each other one: what was off on purpose is what was off before the first change,
    not before the last.
    """
    steps = [DesiredState("enabled"), DesiredState("disabled"), DesiredState(threads=2), PARTS[1], PARTS[2], PARTS[4]]
    for number, (first, second) in enumerate(itertools.product(steps, steps)):
        host = _host(tmp_path / str(number), numbered_cores(4, 2, "adjacent"), dict(options, offline=offline))
        fs = host_files.HostFs(host.sysroot)
        host.ask(first.state, threads=first.threads, cores=first.cores.given)
        changes, reason = _asked(host, second)
        found = smt_facts.gather(fs)
        assert reason is None and compliance.running(found, second)["status"] == (
            "drifted" if changes else "compliant"
        ), (first, second)
        host.ask(second.state, threads=second.threads, cores=second.cores.given)
        assert compliance.running(smt_facts.gather(fs), second)["status"] == "compliant", (first, second)


TWO_PACKAGES = sysfs_tree.Machine(packages=2, cores=2, threads=2, numbering="adjacent")
ON_PACKAGE_1 = DesiredState("disabled", cores=Scope("package", "1"))


@pytest.mark.parametrize(
    ("offline", "cores", "sentence"),
    [
        ((5, 7), Scope("package", "1"), ""),
        ((5, 7), Scope("node", "1"), ""),
        ((5, 7), Scope("cpus", "4,7"), ""),
        # One sibling came back, and one went offline elsewhere after the first change.
        ((5,), Scope("package", "1"), "running: CPUs 7 are online"),
        ((3, 5, 7), Scope("package", "1"), "running: CPUs 3 are offline"),
        ((), Scope("node", "0"), "running: CPUs 1,3 are online"),
    ],
)
def test_a_part_of_the_machine(tmp_path, offline, cores, sentence):
    found = known(tmp_path, TWO_PACKAGES)
    cpus = found["cpus"]
    cpus.update(
        offline=",".join(map(str, offline)), online=",".join(str(cpu) for cpu in range(8) if cpu not in offline)
    )
    verdict = judge(dict(found, online_before="0-7"), DesiredState("disabled", cores=cores), "runtime")
    assert (verdict["sentence"], verdict["wanted"]) == (sentence, f"disabled on {cores.title}")
    assert verdict["change"]["running"] == ({"state": "disabled", "cores": cores.given} if sentence else None)
    assert verdict["status"] == ("drifted" if sentence else "compliant")


def test_without_a_change_of_its_own_what_is_offline_elsewhere_is_off_on_purpose(tmp_path):
    found = known(tmp_path, sysfs_tree.Machine(packages=2, cores=2, threads=2, numbering="adjacent", offline=(3, 5, 7)))
    found["sibling_groups"] = ["0-1", "2-3", "4-5", "6-7"]
    assert judge(found, ON_PACKAGE_1, "runtime")["status"] == "compliant"
    assert judge(dict(found, online_before="0-7"), ON_PACKAGE_1, "runtime")["status"] == "drifted"


def test_smt_off_on_the_whole_machine_is_not_off_on_a_part(tmp_path):
    found = known(tmp_path, TWO_PACKAGES, control="off", active=False)
    found["cpus"].update(online="0,2,4,6", offline="1,3,5,7")
    assert (
        judge(found, ON_PACKAGE_1, "runtime")["sentence"]
        == "running: smt/control reads 'off' instead of on; CPUs 1,3 are offline"
    )


@pytest.mark.parametrize(
    ("cores", "sentence"),
    [
        (Scope("node", "3"), "disabled_on: there is no node 3 on this host: it has nodes 0-1"),
        (Scope("package", "2"), "disabled_on: there is no package 2 on this host: it has packages 0-1"),
        (Scope("cpus", "6-9"), "disabled_on: there is no CPU 8 on this host: it has CPUs 0-7"),
    ],
)
def test_a_part_that_the_host_does_not_have_is_a_bad_policy(tmp_path, cores, sentence):
    verdict = judge(known(tmp_path, TWO_PACKAGES), DesiredState("disabled", cores=cores))
    assert (verdict["status"], verdict["sentence"], verdict["change"]) == ("bad_policy", sentence, None)
    assert verdict["hardware_class"].startswith("x86_64-2s4c8t-adjacent")


@pytest.mark.parametrize(("node", "status"), [("0", "compliant"), ("9", "bad_policy")])
def test_so_it_is_without_smt(tmp_path, node, status):
    found = known(tmp_path, sysfs_tree.Machine(threads=1, control="notsupported"))
    assert judge(found, DesiredState("disabled", cores=Scope("node", node)), "runtime")["status"] == status


def test_no_boot_argument_turns_smt_off_on_a_part(tmp_path):
    verdict = judge(known(tmp_path, TWO_PACKAGES), ON_PACKAGE_1, "boot")
    assert (
        verdict["status"] == "unknown"
        and "no boot argument turns SMT off on a part of the machine (package 1)" in verdict["sentence"]
    )
    assert judge(known(tmp_path, TWO_PACKAGES), ON_PACKAGE_1, "both")["change"]["configured"] is None


@pytest.mark.parametrize(
    "configured",
    ["", "nosmt", "nosmt=force", "maxcpus=4", "nr_cpus=4", "mitigations=auto,nosmt", "mds=full,nosmt", "nosmt nosmt"],
)
@pytest.mark.parametrize("state", ["enabled", "disabled"])
def test_compliant_is_where_smt_boot_args_would_change_no_argument(tmp_path, configured, state):
    boot_maker.grub_tree(tmp_path, settings=f'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="{configured}"\n')
    boot_maker.running(tmp_path)
    fs = host_files.HostFs(str(tmp_path))
    actual = compliance.configured(smt_facts.gather(fs), DesiredState(state))["status"]
    result = boot_change.run(fs, boot_change.Request(state, None, False, False), "x86_64", "6.1.0-13-amd64")
    assert actual == ("compliant" if result["configured_before"] == result["configured"] else "drifted")
    assert compliance.configured(smt_facts.gather(fs), DesiredState(state))["status"] == "compliant"


@pytest.mark.parametrize(
    ("scope", "run", "boot", "status"),
    [
        ("both", "on", [], "drifted"),
        ("both", "off", ["nosmt"], "compliant"),
        ("both", "off", [], "drifted"),
        ("both", "on", ["nosmt"], "drifted"),
        ("runtime", "off", [], "compliant"),
        ("boot", "on", ["nosmt"], "compliant"),
        ("boot", "off", [], "drifted"),
        ("both", "off", None, "unknown"),
        ("both", "on", None, "drifted"),
        ("runtime", "off", None, "compliant"),
    ],
)
def test_the_scope_says_what_counts(tmp_path, scope, run, boot, status):
    offline = () if run == "on" else (2, 3)
    found = known(tmp_path, sysfs_tree.Machine(offline=offline, control=run))
    found["boot"]["configured"] = boot
    assert judge(found, DesiredState("disabled"), scope)["status"] == status


def test_what_drifted_is_named_with_its_remedy(tmp_path):
    found = known(tmp_path)
    found["boot"]["configured"] = ["maxcpus=2"]
    verdict = judge(found, DesiredState("disabled"))
    assert (
        verdict["sentence"]
        == "running: smt/control reads 'on' instead of off; CPUs 2-3 are online. configured: nosmt is missing;"
        " maxcpus=2 is still there"
    )
    assert verdict["change"] == {
        "running": {"state": "disabled"},
        "configured": {"smt": "disabled"},
        "memory": False,
        "reboot": False,
    }


def test_only_what_drifted_is_changed(tmp_path):
    found = known(tmp_path)
    found["boot"]["configured"] = ["nosmt"]
    assert judge(found, DesiredState("disabled"))["change"] == {
        "running": {"state": "disabled"},
        "configured": None,
        "memory": False,
        "reboot": False,
    }


def test_a_boot_policy_waits_for_a_reboot(tmp_path):
    found = known(tmp_path)
    found["boot"].update(configured=["nosmt"], reboot_required=True)
    verdict = judge(found, DesiredState("disabled"), "boot")
    assert (verdict["status"], verdict["sentence"]) == ("compliant", "in force after the next reboot")
    assert verdict["change"] == {"running": None, "configured": {"smt": "disabled"}, "memory": False, "reboot": True}


def test_forced_off_takes_boot_arguments_and_a_reboot(tmp_path):
    found = known(tmp_path, sysfs_tree.Machine(offline=(2, 3), control="forceoff"))
    found["boot"].update(running=["nosmt=force"], configured=["nosmt=force"])
    verdict = judge(found, DesiredState("enabled"))
    assert "forceoff is final until a reboot" in verdict["running"]["blocked_by"]
    assert verdict["change"] == {"running": None, "configured": {"smt": "enabled"}, "memory": False, "reboot": True}


def test_no_boot_argument_leaves_two_of_four(tmp_path):
    found = known(tmp_path, sysfs_tree.Machine(threads=4))
    assert judge(found, DesiredState(threads=4))["status"] == "compliant"
    verdict = judge(found, DesiredState(threads=2), "boot")
    assert verdict["status"] == "unknown" and "2 of 4 threads" in verdict["sentence"]
    assert judge(found, DesiredState(threads=1), "boot")["change"]["configured"] == {"smt": "disabled"}


def test_where_any_state_will_do_nothing_drifts(tmp_path):
    assert judge(known(tmp_path), DesiredState(decided_by="x"))["status"] == "compliant"


WITHOUT = (
    "no SMT here (the CPUs have none, it is off in the firmware, or the hypervisor hides it), so nothing can be"
    " otherwise"
)
PLAIN = sysfs_tree.Machine(threads=1, control="notsupported")


@pytest.mark.parametrize("scope", policy.SCOPES)
@pytest.mark.parametrize("desired", [DesiredState("enabled"), DesiredState(decided_by=None)])
@pytest.mark.parametrize("control", ["notsupported", "notimplemented", None])
def test_a_host_without_smt_is_as_wanted_and_says_so(tmp_path, control, desired, scope):
    found = known(tmp_path, sysfs_tree.Machine(threads=1, control=control), hypervisor="kvm")
    verdict = judge(found, desired, scope)
    assert (verdict["status"], verdict["sentence"]) == ("compliant", WITHOUT)
    assert verdict["change"] == {"running": None, "configured": None, "memory": False, "reboot": False}


@pytest.mark.parametrize(
    ("control", "desired", "hypervisor", "booted", "of_firmware"),
    [
        ("on", "enabled", None, [], "known"),
        ("notsupported", "enabled", None, [], "possible"),
        # Somebody else's firmware, CPUs that the kernel did not look at, and what nobody wants.
        ("notsupported", "enabled", "kvm", [], None),
        ("on", "enabled", None, ["maxcpus=4"], None),
        ("notimplemented", "enabled", None, [], None),
        ("on", "disabled", None, [], None),
    ],
)
def test_smt_that_is_wanted_and_off_in_firmware_is_said_and_counted(
    tmp_path, control, desired, hypervisor, booted, of_firmware
):
    found = known(tmp_path, sysfs_tree.Machine(threads=1, control=control), hypervisor=hypervisor)
    found["boot"]["running"] = booted
    verdict = judge(found, DesiredState(desired), "runtime")
    assert verdict["status"] == "compliant" and verdict["change"]["running"] is None
    assert verdict["sentence"].startswith(compliance.LACKING) == bool(of_firmware)
    assert (verdict["sentence"] == compliance.LACKING) == (of_firmware == "known")
    fleet = compliance_report.sentence([("a", verdict), ("b", judge(known(tmp_path / "b"), DesiredState("enabled")))])
    assert ("1 host" in fleet) == bool(of_firmware) and fleet.startswith("2 hosts: 2 compliant.")


def test_arm_has_no_firmware_that_switches_smt(tmp_path):
    found = known(tmp_path, PLAIN)
    of_arm = dict(found, hardware_class=found["hardware_class"].replace("x86_64", "aarch64"))
    assert judge(of_arm, DesiredState("enabled"), "runtime")["sentence"] == WITHOUT


@pytest.mark.parametrize("desired", [DesiredState("disabled"), DesiredState(threads=1)])
def test_a_host_without_smt_has_it_off_and_boot_arguments_are_still_checked(tmp_path, desired):
    found = known(tmp_path, PLAIN)
    assert judge(found, desired, "runtime")["sentence"] == WITHOUT
    assert judge(found, desired, "both")["sentence"] == "configured: nosmt is missing"
    found["boot"]["configured"] = ["nosmt"]
    assert judge(found, desired, "both")["sentence"] == WITHOUT
    assert judge(found, DesiredState("enabled"), "both")["sentence"] == "configured: nosmt is still there"


def test_only_what_can_have_no_other_state_is_without_smt(tmp_path):
    found = known(tmp_path, PLAIN)
    assert judge(found, DesiredState(threads=2), "runtime")["status"] == "drifted", (
        "two threads of a core are wanted, and there is one"
    )
    assert not compliance.without_smt(known(tmp_path / "a", sysfs_tree.Machine(offline=(2, 3), control="forceoff")))
    measured = {"agrees_with_kernel": False, "pairs": ["0-1"]}
    assert not compliance.without_smt(dict(found, supported=None))
    assert not compliance.without_smt(dict(found, measured=measured)), (
        "a measurement found siblings that the hypervisor hides"
    )


def test_memory_counts_beside_it(tmp_path):
    wanted = {
        "refusal": None,
        "differences": ["vm.overcommit_memory reads 0 instead of 2"],
        "boot_differences": [],
        "boot_blocked_by": None,
    }
    verdict = judge(known(tmp_path), DesiredState("enabled"), memory=compliance.memory_aspects({"wanted": wanted}))
    assert (verdict["status"], verdict["sentence"]) == ("drifted", "memory: vm.overcommit_memory reads 0 instead of 2")
    verdict = judge(
        known(tmp_path),
        DesiredState("enabled"),
        memory=compliance.memory_aspects({"wanted": dict(wanted, differences=[])}),
    )
    assert verdict["status"] == "compliant"


def test_memory_counts_at_the_next_boot_too(tmp_path):
    wanted = {
        "differences": [],
        "boot_differences": ["/etc/sysctl.d/z.conf makes it 0"],
        "boot_blocked_by": "take the line out",
    }
    verdict = judge(known(tmp_path), DesiredState("enabled"), memory=compliance.memory_aspects({"wanted": wanted}))
    assert (verdict["memory"]["status"], verdict["memory_configured"]["status"], verdict["change"]["memory"]) == (
        "compliant",
        "drifted",
        True,
    )
    assert verdict["sentence"] == "memory configured: /etc/sysctl.d/z.conf makes it 0"
    assert verdict["memory_configured"]["blocked_by"] == "take the line out"


def test_services_alone_say_nothing_of_the_next_boot(tmp_path):
    aspects = compliance.memory_aspects({"wanted": None, "protect_differences": ["db.service is not spared"]})
    assert (
        aspects["memory"] == {"status": "drifted", "reasons": ["db.service is not spared"], "blocked_by": None}
        and aspects["memory_configured"] is None
    )


@pytest.mark.parametrize(
    ("actual", "way"),
    [
        (None, None),
        ("x", None),
        ([], None),
        ({}, {"since": None, "back_to": None}),
        (
            {"since": "2026-03-01T12:00:00Z", "back_to": "CPUs 0-4,6 online"},
            {"since": "2026-03-01T12:00:00Z", "back_to": "CPUs 0-4,6 online"},
        ),
        (
            {"since": 7, "back_to": "x\x1b[2J\ny{{ 7 }}", "running": {"state": "enabled"}},
            {"since": None, "back_to": text.line("x\x1b[2J\ny{{ 7 }}", 500)},
        ),
    ],
)
def test_of_what_a_host_calls_a_pending_rollback_only_what_is_one_is_taken(tmp_path, actual, way):
    assert judge(known(tmp_path, pending_rollback=actual), DesiredState("enabled"))["pending_rollback"] == way


WAITING = {"by": "for user jo from 192.0.2.7 port 22", "seconds_left": 90}
SAYS = (
    "a change for user jo from 192.0.2.7 port 22 waits for its confirmation, and is rolled back in about 90 s without"
    " it: confirm it, or wait for that"
)


def test_a_host_whose_change_waits_for_its_confirmation_is_left_alone(tmp_path):
    found = known(tmp_path, sysfs_tree.Machine(offline=(2, 3), control="forceoff"), pending_change=WAITING)
    memory = compliance.memory_aspects({"wanted": {"differences": ["x"]}})
    for scope in ("runtime", "both", "boot"):
        verdict = compliance.judge(found, DesiredState("enabled"), scope, memory)
        assert (
            verdict["status"] == "drifted"
            and verdict["sentence"].endswith(f". {SAYS}")
            and verdict["pending_change"] == SAYS
        )
        assert verdict["change"] == {"running": None, "configured": None, "memory": False, "reboot": False}
        assert rollout.blocked_by(verdict, reboot_ok=True) == SAYS and not rollout.is_pending(verdict, reboot_ok=True)
    fine = judge(dict(known(tmp_path / "on"), pending_change=WAITING), DesiredState("enabled"))
    assert (fine["status"], fine["sentence"]) == ("compliant", SAYS), "it is as wanted, for now"


@pytest.mark.parametrize("change", [None, "x", [], 7])
def test_what_is_no_change_that_waits_is_none(tmp_path, change):
    assert judge(known(tmp_path, pending_change=change), DesiredState("enabled"))["pending_change"] is None


def test_what_a_host_says_of_a_change_that_waits_is_one_line(tmp_path):
    said = judge(
        known(tmp_path, pending_change={"by": "\x1b[2J{{ 7 }}\nfatal", "seconds_left": "x"}), DesiredState("enabled")
    )["pending_change"]
    assert said.isprintable() and said.endswith("is rolled back some time without it: confirm it, or wait for that")


def test_what_nothing_tells_is_unknown(tmp_path):
    assert judge(known(tmp_path, active=None), DesiredState("disabled"), "runtime")["status"] == "unknown"
    assert judge(known(tmp_path, cpus={"online": None}), DesiredState("disabled"), "runtime")["status"] == "unknown"
    assert judge(known(tmp_path, sibling_groups=["0-x"]), DesiredState("disabled"), "runtime")["status"] == "unknown"


NAMES = st.sampled_from(
    [
        "online",
        "present",
        "offline",
        "runtime",
        "running",
        "configured",
        "max",
        "chosen",
        "impossible",
        "state",
        "smt",
        "maxcpus",
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.text(string.digits + "-,", max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "supported",
    "control",
    "active",
    "threads_per_core",
    "cpus",
    "sibling_groups",
    "boot",
    "methods",
    "hardware_class",
    "complete",
    "pending_rollback",
    "pending_change",
]
FIELDS += ["nodes", "packages", "online_before"]


@pytest.fixture(scope="module", name="usual")
def _usual(tmp_path_factory):
    return known(tmp_path_factory.mktemp("usual"))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    change=st.dictionaries(st.sampled_from(FIELDS), JSON),
    desired=st.sampled_from([*DESIRED_STATES, ON_PACKAGE_1, DesiredState()]),
    scope=st.sampled_from(policy.SCOPES),
)
def test_facts_of_any_shape_get_a_verdict(usual, change, desired, scope):
    for found in (change, dict(usual, **change)):
        verdict = judge(found, desired, scope)
        assert verdict["status"] in compliance.STATUSES and verdict["sentence"].isprintable()
        assert len(json.dumps(verdict)) < 20_000


@pytest.mark.parametrize("value", [None, [], "x", 7])
def test_what_is_no_facts_is_unknown(value):
    assert judge(value, DesiredState("enabled"))["status"] == "unknown"


def test_a_large_machine_has_a_short_verdict(tmp_path):
    found = known(tmp_path, sysfs_tree.Machine(packages=2, cores=256))
    found["boot"]["configured"] = ["nosmt=" + "x" * 10**6] * 100
    assert len(json.dumps(judge(found, DesiredState("disabled")))) < 20_000


@pytest.mark.parametrize(("machine", "control"), [("ppc64le", "2"), ("x86_64", None)])
def test_the_number_that_powers_control_would_read(tmp_path, machine, control):
    found = known(tmp_path, sysfs_tree.Machine(threads=4), hardware_class=f"{machine}-1s2c8t-split-00000000")
    reasons = judge(found, DesiredState(threads=2), "runtime")["running"]["reasons"]
    assert reasons == [f"smt/control reads 'on' instead of {control}"] * bool(control) + ["CPUs 4-7 are online"]


@pytest.mark.parametrize(
    "message", ["no route to it", "Task failed: no route to it", "Task failed: Action failed: no route to it"]
)
def test_what_is_said_of_a_host_is_the_same_with_each_release_of_ansible(message):
    assert compliance.from_registered({"unreachable": True, "msg": message})["sentence"] == "no route to it"
    assert compliance.from_registered({"failed": True, "msg": f"web: {message}"})["sentence"] == f"web: {message}"


SERVICE = {"program": "nginx", "unit": "nginx.service", "is_service": True, "counted": 8, "cpus": 4}
WRONG = {**SERVICE, "has": "nginx.service has 8 worker processes for 8 CPUs", "remedy": "restart it"}
SAID = "nginx.service has 8 worker processes for 8 CPUs, and has 4: restart it"


def off(root, *consumers):
    machine = sysfs_tree.Machine(cores=4, numbering="adjacent", control="off", offline=(1, 3, 5, 7))
    return known(root, machine, online_before="0-7", consumers=list(consumers))


@pytest.mark.parametrize("consumers", [None, {}, {"java": "restart"}, {"nginx": "none"}])
def test_a_service_that_believes_in_another_number_is_named_and_no_drift(tmp_path, consumers):
    verdict = judge(off(tmp_path, WRONG), DesiredState("disabled"), "runtime", None, consumers)
    assert (verdict["status"], verdict["services"], verdict["change"]["running"]) == ("compliant", [SAID], None)
    assert compliance_report.how(verdict) == f"services: {SAID}"


def test_a_service_that_has_to_follow_is_drift_which_the_role_takes_away(tmp_path):
    verdict = judge(off(tmp_path, WRONG), DesiredState("disabled"), "runtime", None, {"nginx": "restart"})
    assert (verdict["status"], verdict["change"]["running"]) == ("drifted", {"state": "disabled"})
    # It is said once.
    assert compliance_report.how(verdict) == f"running: {SAID}"
    # What runs in a container, or what a user calls nginx, is not for smt_state.
    other = off(tmp_path / "other", {**WRONG, "is_service": False})
    assert judge(other, DesiredState("disabled"), "runtime", None, {"nginx": "restart"})["status"] == "compliant"
    boot = judge(off(tmp_path / "boot", WRONG), DesiredState("disabled"), "boot", None, {"nginx": "restart"})
    assert boot["running"] is None


@pytest.mark.parametrize("consumers", [None, "x", ["x"], [{}], [{"has": "\x1b[31m", "cpus": {}}], {"a": 1}])
def test_consumers_of_any_kind_are_one_line_each(tmp_path, consumers):
    verdict = judge(dict(off(tmp_path), consumers=consumers), DesiredState("disabled"), "runtime", None, {"x": "y"})
    assert verdict["status"] == "compliant" and all(one.isprintable() for one in verdict["services"])
