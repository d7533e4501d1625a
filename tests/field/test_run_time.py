# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about changes of a running host that did not come back, or came back as something else:
each on a host with a fake kernel.
"""

import os
import pathlib
import stat

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import others, persistence, udev_rules
from fake_host import Host
from fake_kernel import numbered_cores


@pytest.fixture(name="host")
def _host(tmp_path):
    return Host(tmp_path, numbered_cores(4, 2, "adjacent"))


def online(host):
    return smt_state.read(files=host)["online"]


def test_gamemode_197_each_cpu_comes_back_as_it_was_and_not_as_the_first_one(tmp_path):
    host = Host(tmp_path, numbered_cores(4, 2, "adjacent"), offline=(3, 6))
    before = online(host)
    host.ask("disabled")
    assert online(host) != before
    host.ask("restored")
    assert online(host) == before == [0, 1, 2, 4, 5, 7]


def test_netplan_548_files_come_back_with_their_owner_and_mode(host, monkeypatch):
    host.ask("enabled", persist="systemd")
    path = pathlib.Path(host.sysroot, persistence.UNIT_PATH)
    path.chmod(0o640)
    os.chown(path, 65534, 65534)
    before, text = path.stat(), path.read_bytes()
    apply = config_files.apply

    def fail_afterwards(fs, changed):
        apply(fs, changed)
        raise config_files.ConfigFileError("the disk is gone")

    monkeypatch.setattr(config_files, "apply", fail_afterwards)
    with pytest.raises(HostError, match="the disk is gone"):
        host.ask("disabled", persist="systemd")
    after = path.stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (65534, 65534, 0o640)
    assert (after.st_ino, path.read_bytes()) == (before.st_ino, text) and online(host) == list(range(8))


def test_cluster_node_tuning_operator_518_netplan_271_and_245_interrupts_and_what_undoes(host):
    # With SMT off it still has the bits of all CPUs. That is no conflict, and it is as it was afterwards.
    host.put("proc/irq/default_smp_affinity", "ff\n")
    host.ask("disabled")
    assert host.ask("restored")["changed"]
    assert pathlib.Path(host.sysroot, "proc/irq/default_smp_affinity").read_text() == "ff\n"
    # A cap of five seconds inside had ended what was asked to wait for 300.
    seen = {}
    host.before_command = lambda command: seen.setdefault(command[0], online(host))
    host.ask("disabled", rollback_after=3000)
    assert host.pending()["seconds"] == 3000 and seen["systemd-run"] == list(range(8))
    # CPUs that were taken in the order of their numbers left cores idle whose siblings were there.
    assert online(host) == [0, 2, 4, 6], "laptop-mode-tools 71"


def test_cluster_node_tuning_operator_1618_a_rule_that_brings_cpus_back_is_named_and_disabled(host):
    rule = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}!="1", ATTR{online}="1"\n'
    host.put("usr/lib/udev/rules.d/40-redhat-hotplug.rules", rule)
    warned = host.ask("disabled", method="cpu_online", persist="systemd")["warnings"]
    assert any("40-redhat-hotplug.rules" in warning and "neutralise_udev_rules" in warning for warning in warned)
    assert host.ask("disabled", method="cpu_online", persist="systemd", neutralise=True)["warnings"] == []
    # udev takes an empty file for one that was masked by somebody else: ours says whose it is.
    assert pathlib.Path(host.sysroot, "etc/udev/rules.d/40-redhat-hotplug.rules").read_text().startswith("#")
    host.ask("restored")
    assert not pathlib.Path(host.sysroot, "etc/udev/rules.d/40-redhat-hotplug.rules").exists()
    assert udev_rules.active(host_files.HostFs(host.sysroot)) == ["usr/lib/udev/rules.d/40-redhat-hotplug.rules"]


RULES = {
    "linux-mm 2011": """SUBSYSTEM=="cpu", ACTION=="add", RUN+="/bin/sh -c 'echo 1 > /sys$devpath/online'"\n""",
    "by tee": """SUBSYSTEM=="cpu", ACTION=="add", RUN{program}+="/bin/sh -c 'echo 1 | tee /sys/%p/online'"\n""",
    "skipped for others": 'SUBSYSTEM!="cpu", GOTO="end"\nACTION=="add", ATTR{online}="1"\nLABEL="end"\n',
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_linux_mm_2011_rules_that_run_a_program_or_skip_others(host, rule):
    put(host, "etc/udev/rules.d/80-cpu.rules", rule)
    assert udev_rules.active(host_files.HostFs(host.sysroot)) == ["etc/udev/rules.d/80-cpu.rules"]
    assert udev_rules.without_them(udev_rules.without_them(rule)) == udev_rules.without_them(rule) != rule


ON, WANTS = "/sys/devices/system/cpu/smt/control", "etc/systemd/system/multi-user.target.wants/"
WRITERS = {
    "cron": ("etc/crontab", f"@reboot root echo on > {ON}"),
    "rc.local": ("etc/rc.local", "for cpu in 1 3; do echo 1 > /sys/devices/system/cpu/cpu$cpu/online; done"),
    "likwid 320": ("etc/rc.local", 'for n in 1 3\ndo echo 0 > "/sys/devices/system/cpu/cpu${n}/online"\ndone'),
    "a unit": ("etc/systemd/system/smt.service", f"ExecStart=/bin/sh -c 'echo on | tee {ON}'"),
    "powerpc-utils 106": (WANTS + "smtstate.service", "[Service]"),
    "powerpc-utils 11": (WANTS + "smt_off.service", "ExecStart=/usr/sbin/ppc64_cpu --smt=off"),
    "systemd 14753": ("etc/tmpfiles.d/smt.conf", f"w! {ON} - - - - on"),
    "sysfsutils": ("etc/sysfs.d/smt.conf", "devices/system/cpu/smt/control = on"),
    "a folder": ("etc/init.d/cpus", 'for i in /sys/devices/system/cpu/cpu[1-9]*; do\n  echo 1 > "$i/online"\ndone'),
    "aws-parallelcluster 4260": (
        "var/lib/cloud/instance/cloud-config.txt",
        'bootcmd:\n  - "for n in 1 3; do echo 0 > /sys/devices/system/cpu/cpu$n/online; done"\nruncmd:\n  - reboot',
    ),
    "aws-parallelcluster 4260 own": ("etc/cloud/cloud.cfg.d/99-smt.cfg", f"bootcmd:\n- [sh, -c, 'echo 0 > {ON}']"),
}


def put(host, path, text):
    file = pathlib.Path(host.sysroot, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(("path", "line"), WRITERS.values(), ids=WRITERS)
def test_who_turns_siblings_on_again_is_named(host, path, line):
    file = put(host, path, f"# echo off > {ON}\n{line}\n")
    (sentence,) = others.find(host_files.HostFs(host.sysroot))
    assert file.name in sentence


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("etc/systemd/system/ht.service", "ExecStartPre=-/usr/local/sbin/ht on"),
        (WANTS + "ht.service", "ExecStart=/bin/bash -c '/usr/local/sbin/ht on'"),
        ("etc/cron.d/ht", "@reboot root /usr/local/sbin/ht"),
    ],
)
def test_linutil_667_a_script_that_a_unit_starts(host, path, line):
    put(host, path, f"{line}\n")
    script = put(host, "usr/local/sbin/ht", f"#!/bin/sh\n[ $1 = on ] && echo on | sudo tee {ON}\n")
    (sentence,) = others.find(host_files.HostFs(host.sysroot))
    assert f"{script}, which {pathlib.Path(host.sysroot, path)} names, sets the state of CPUs" in sentence


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tuned.conf", f"[sysfs]\n{ON}=off\n"),
        ("tuned.conf", "[cpus]\ntype=sysfs\n/sys/devices/system/cpu/cpu[1357]/online=0\n"),
        ("script.sh", f"#!/bin/sh\nstart() {{\n  echo off > {ON}\n}}\n"),
    ],
)
@pytest.mark.parametrize("active", ["own", "above"])
def test_tuned_848_a_profile_that_switches_siblings(host, name, text, active):
    """Also tuned 366."""
    put(host, "etc/tuned/above/tuned.conf", "[main]\ninclude=own\n")
    put(host, "etc/tuned/own/tuned.conf", "[script]\nscript=${i:PROFILE_DIR}/script.sh\n")
    put(host, f"etc/tuned/own/{name}", text)
    assert others.find(host_files.HostFs(host.sysroot)) == []
    put(host, "etc/tuned/active_profile", f"{active}\n")
    (sentence,) = others.find(host_files.HostFs(host.sysroot))
    assert sentence.startswith("TuneD's profile own (")


NO_WRITERS = {
    # Memory that is added comes online by a file of the same name.
    "memory": ("etc/rc.local", "for i in /sys/devices/system/memory/memory*; do echo 1 > $i/online; done"),
    # Run at the first boot only.
    "cloud-init": ("var/lib/cloud/instance/cloud-config.txt", f"runcmd:\n  - echo off > {ON}\n"),
    "missing": ("etc/systemd/system/x.service", "ExecStart=/usr/local/bin/missing"),
    **{
        line: ("etc/cron.d/smt", line)
        for line in (f"cat {ON}", "ppc64_cpu --smt", "chcpu --configure 1", "# chcpu -e 1", "")
    },
}


@pytest.mark.parametrize(("path", "text"), NO_WRITERS.values(), ids=NO_WRITERS)
def test_who_sets_something_else_or_only_reads_is_not_named(host, path, text):
    put(host, path, f"{text}\n")
    assert others.find(host_files.HostFs(host.sysroot)) == []


@pytest.mark.parametrize("check", [True, False])
def test_lisa_800_cpus_that_serve_channels_of_hyper_v_are_named_before_the_write(host, check):
    for channel, cpu in ((14, 0), (21, 3), (22, 5)):
        put(host, f"sys/bus/vmbus/devices/0a1b/channels/{channel}/cpu", f"{cpu}\n")
    (warning,) = (text for text in host.ask("disabled", check=check)["warnings"] if "VMBus" in text)
    assert warning.startswith("CPUs 3,5 serve channels") and "/sys/bus/vmbus/devices/*/channels/*/cpu" in warning
    assert not any("VMBus" in text for text in host.ask("enabled", check=check)["warnings"])
