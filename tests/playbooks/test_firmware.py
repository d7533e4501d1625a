# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A play as users write it, with a BMC on loopback: whom it asks, and what of the password is printed."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import bmc_server
import yaml

# A module of somebody else's, whose host says of itself what the user has set.
EVIL = """#!/usr/bin/python
import json, sys
print(json.dumps({"changed": False, "ansible_facts": {"bmc_address": %r, "bmc_ca": "/dev/null"}}))
"""
TASKS = [
    {"name": "Read what the kernel shows", "threadwise.smt.smt_facts": None},
    {
        "name": "Ask the BMC of the same host",
        "threadwise.smt.smt_firmware_facts": {
            "baseuri": "{{ bmc_address }}",
            "username": "{{ bmc_user }}",
            "password": "{{ bmc_password }}",
            "ca_path": "{{ bmc_ca }}",
            "kernel": "{{ ansible_facts['smt'] | combine({'supported': false, 'hypervisor': none}) }}",
        },
        "delegate_to": "localhost",
    },
    {
        "name": "Say what does not fit",
        "ansible.builtin.debug": {
            "msg": "{{ ansible_facts['smt_firmware']['findings'] | map(attribute='sentence') | list }}"
        },
    },
]


def play(place, bmc, *words, tasks=None, password=bmc_server.PASSWORD):
    """Run the play with a BMC; returns all that is printed."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    bmcs = {"bmc_address": bmc.host, "bmc_user": bmc_server.USER, "bmc_password": password}
    hosts = {"db1": {**here, **bmcs, "bmc_ca": bmc_server.certificate()[0]}, "localhost": here}
    (place / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    (place / "play.yml").write_text(yaml.safe_dump([{"hosts": "db1", "gather_facts": False, "tasks": tasks or TASKS}]))
    program = pathlib.Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [str(program), "-i", "inventory.yml", "play.yml", *words],
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=dict(os.environ, ANSIBLE_NOCOLOR="1"),
    ).stdout


def test_a_play_says_what_does_not_fit_and_prints_no_password(tmp_path):
    with bmc_server.serving(bmc_server.recorded("dell_idrac9")) as bmc:
        printed = play(tmp_path, bmc, "--check", "-vvv")
    assert "the firmware says LogicalProc=Enabled, and the kernel shows one thread a core" in printed, printed[-3000:]
    assert "LogicalProc=Disabled is pending until the next boot" in printed and "failed=0" in printed
    assert bmc_server.PASSWORD not in printed and bmc_server.TOKEN not in printed and bmc.sessions == 0


def test_a_host_does_not_say_where_the_password_goes(tmp_path):
    (tmp_path / "library").mkdir()
    with bmc_server.serving({}) as other, bmc_server.serving(bmc_server.recorded("hpe_ilo5")) as bmc:
        (tmp_path / "library/evil.py").write_text(EVIL % other.host)
        shows = {"name": "Show", "ansible.builtin.debug": {"msg": "it is {{ bmc_address }}"}}
        printed = play(tmp_path, bmc, tasks=[{"name": "Ask", "evil": None}, shows, *TASKS])
    # To all others the host has said so; only this task does not listen.
    assert f"it is {other.host}" in printed and "failed=0" in printed, printed[-3000:]
    assert other.asked == [] and bmc.asked


def test_a_loop_over_bmcs_says_what_to_do_instead(tmp_path):
    asks = dict(TASKS[1], loop=["{{ bmc_address }}"])
    asks["threadwise.smt.smt_firmware_facts"] = {
        **asks["threadwise.smt.smt_firmware_facts"],
        "baseuri": "{{ item }}",
        "kernel": "{{ omit }}",
    }
    with bmc_server.serving(bmc_server.recorded("hpe_ilo5")) as bmc:
        printed = play(tmp_path, bmc, tasks=[asks])
    assert "cannot be worked out without facts of hosts" in printed and bmc.asked == []
