# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine, for tests that evaluate it or call a playbook for it, also beside a host that is gone."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys

import yaml

HOSTS = {
    "here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
    "gone": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
}

# What an evaluation of this machine takes at least.
SHORT = {
    "smt_eval_arms": ["as_found"],
    "smt_eval_probe": "never",
    "smt_eval_budget": 1,
    "smt_eval_workloads": ["gzip"],
    "smt_eval_placements": ["single"],
    "smt_eval_sample_seconds": 0.05,
}


@contextlib.contextmanager
def this_machine():
    """No other test evaluates this machine at the same time: one evaluation at a time is all that a host allows."""
    # Not below TMPDIR: tests of another call have another one, and this machine.
    with open(f"/tmp/threadwise-smt-tests-{os.geteuid()}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def call(place, playbook, *words, hosts=(), **variables):
    """Call a playbook of the collection in a directory, as users do.

    Args:
        place: the directory; the inventory of some hosts is written into it.
        playbook: its name.
        words: more of the command line.
        hosts: of HOSTS; without any there is no inventory.
        variables: extra variables.
    """
    inventory = place / "inventory.yml"
    if hosts:
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {name: HOSTS[name] for name in hosts}}}))
    return subprocess.run(
        [
            str(pathlib.Path(sys.executable).with_name("ansible-playbook")),
            *(("-i", str(inventory)) if hosts else ()),
            *(f"threadwise.smt.{playbook}", "-e", json.dumps(variables), *words),
        ],
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ, ANSIBLE_NOCOLOR="1"),
    )
