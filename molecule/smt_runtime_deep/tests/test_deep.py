# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run-time changes over boots and on a cgroup v1 host. test_state.py has gone before and left all CPUs online."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

INVENTORY = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
ONLINE = "/sys/devices/system/cpu/online"
BOX = "/sys/fs/cgroup/cpuset/box"
testinfra_hosts = ["ansible://v1"]


def smt_state(host, **options):
    """The module's result, also of one that failed."""
    try:
        return host.ansible("threadwise.smt.smt_state", json.dumps(options), check=False)
    except host.ansible.AnsibleException as error:
        return error.result


def reboot(host):
    subprocess.run(
        [
            "ansible",
            "--inventory",
            str(INVENTORY),
            host.backend.get_hostname(),
            "-m",
            "ansible.builtin.reboot",
            "-a",
            "reboot_timeout=900",
        ],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def mask(host, pid):
    return host.check_output("grep Cpus_allowed_list /proc/%s/status", pid).split()[1]


def test_a_v1_cpuset_grows_back(host):
    assert host.file("/sys/fs/cgroup/cpuset/cpuset.cpus").exists, "a cgroup v1 host"
    host.check_output(
        f"mkdir -p {BOX}/inner; for d in {BOX} {BOX}/inner; do echo 6-7 >$d/cpuset.cpus; echo 0 >$d/cpuset.mems; done"
    )
    host.check_output("systemd-run --collect --unit=boxed sleep infinity")
    pid = host.check_output("systemctl show -p MainPID --value boxed")
    host.check_output(f"echo {pid} >{BOX}/inner/cgroup.procs")
    assert "(cgroup v1 cpuset, CPUs 6-7) would shrink to 6" in smt_state(host, state="disabled")["msg"]
    smt_state(host, state="disabled", affinity_conflicts="warn")
    assert host.check_output("cat %s/inner/cpuset.cpus", BOX) == "6"
    done = smt_state(host, state="restored")
    assert done["not_restored"] == []
    assert host.check_output("cat %s/cpuset.cpus %s/inner/cpuset.cpus", BOX, BOX).split() == ["6-7", "6-7"]
    assert mask(host, pid) == "6-7"
    # The next tests would be refused because of them.
    host.check_output(f"systemctl stop boxed pinned && rmdir {BOX}/inner {BOX}")


@pytest.mark.parametrize("way", ["tmpfiles", "systemd"])
def test_kept_over_a_boot_and_taken_back(host, way):
    done = smt_state(host, state="disabled", persist=way)
    assert done["changed"] is True, done
    reboot(host)
    assert host.check_output("cat %s", ONLINE) == "0,2,4,6"
    assert smt_state(host, state="disabled", persist=way)["changed"] is False
    assert smt_state(host, state="restored")["changed"] is True
    assert host.check_output("cat %s", ONLINE) == "0-7"
    assert (
        host.run(
            "ls /etc/tmpfiles.d/threadwise* /etc/systemd/system/threadwise* /etc/systemd/system/*/threadwise*"
        ).stdout
        == ""
    )
