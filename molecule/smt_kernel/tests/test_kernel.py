# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kernel shows after the role has turned SMT off, and after the role has restored it. Each test needs the one
before.
"""

from __future__ import annotations

import os
import pathlib

import calls

PLAYBOOK = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"]) / "converge.yml"
STATE = "/var/lib/threadwise-smt"


def seen(host):
    """smt/control, smt/active, CPUs online, and of how many CPUs /proc/cpuinfo tells."""
    cpu = "/sys/devices/system/cpu"
    return host.check_output(
        f"cat {cpu}/smt/control {cpu}/smt/active {cpu}/online; grep -c ^processor /proc/cpuinfo"
    ).split()


def test_one_thread_of_each_core_is_online(host):
    assert seen(host) == ["off", "0", "0,2,4,6", "4"]
    assert host.file(f"{STATE}/smt-snapshot.json").mode == 0o600


def test_restored_exactly(host):
    done = calls.play(PLAYBOOK, smt_runtime_state="restored")
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen(host) == ["on", "1", "0-7", "8"]
    # What is known of the machine, and the log of what has watched the change and ended.
    assert host.check_output(f"ls {STATE}").split() == ["topology.json", "watchdog.log"]
    assert "python" not in host.check_output("ps")
