# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A play as users write it, with a BMC on loopback: whom it asks, and what of the password is printed."""

import bmc_server
import yaml
from this_machine import LOCAL, call

# A module of somebody else's, whose host says of itself what the user has set.
EVIL = """#!/usr/bin/python
import json, sys
print(json.dumps({"changed": False, "ansible_facts": {"bmc_address": %r, "bmc_ca": "/dev/null"}}))
"""
ASKED = {
    "baseuri": "{{ bmc_address }}",
    "username": "{{ bmc_user }}",
    "password": "{{ bmc_password }}",
    "ca_path": "{{ bmc_ca }}",
    "kernel": "{{ ansible_facts['smt'] | combine({'supported': false, 'hypervisor': none}) }}",
}
FINDINGS = "{{ ansible_facts['smt_firmware']['findings'] | map(attribute='sentence') | list }}"
TASKS = [
    {"threadwise.smt.smt_facts": None},
    {"threadwise.smt.smt_firmware_facts": ASKED, "delegate_to": "localhost"},
    {"ansible.builtin.debug": {"msg": FINDINGS}},
]


def play(place, bmc, *words, tasks=None):
    """Run the play with a BMC; returns all that is printed."""
    bmcs = {"bmc_address": bmc.host, "bmc_user": bmc_server.USER, "bmc_password": bmc_server.PASSWORD}
    hosts = {"db1": {**LOCAL, **bmcs, "bmc_ca": bmc_server.certificate()[0]}, "localhost": LOCAL}
    (place / "play.yml").write_text(yaml.safe_dump([{"hosts": "db1", "gather_facts": False, "tasks": tasks or TASKS}]))
    return call(place, "play.yml", *words, hosts=hosts)[1]


def test_a_play_says_what_does_not_fit_and_a_host_does_not_say_where_the_password_goes(tmp_path):
    (tmp_path / "library").mkdir()
    with bmc_server.serving({}) as other, bmc_server.serving(bmc_server.recorded("dell_idrac9")) as bmc:
        (tmp_path / "library/evil.py").write_text(EVIL % other.host)
        shows = {"ansible.builtin.debug": {"msg": "it is {{ bmc_address }}"}}
        printed = play(tmp_path, bmc, "-vvv", tasks=[{"evil": None}, shows, *TASKS])
    # To all others the host has said so; only this task does not listen.
    assert f"it is {other.host}" in printed and "failed=0" in printed, printed[-3000:]
    assert other.asked == [] and bmc.asked and bmc.sessions == 0
    assert "the firmware says LogicalProc=Enabled" in printed and "LogicalProc=Disabled is pending" in printed
    assert bmc_server.PASSWORD not in printed and bmc_server.TOKEN not in printed
