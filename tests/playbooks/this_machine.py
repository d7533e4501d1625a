# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine, for tests that evaluate it or call a playbook for it, also beside a host that is gone."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys

import yaml

LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
GONE = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
HOSTS = {"here": LOCAL, "gone": GONE}

# What an evaluation of this machine takes at least.
SHORT = {
    "smt_eval_arms": ["as_found"], "smt_eval_probe": "never", "smt_eval_budget": 1, "smt_eval_workloads": ["gzip"],
    "smt_eval_placements": ["single"], "smt_eval_sample_seconds": 0.05,
}  # fmt: skip


@contextlib.contextmanager
def this_machine():
    """No other test evaluates this machine at the same time: one evaluation at a time is all that a host allows."""
    # Not below TMPDIR: tests of another call have another one, and this machine.
    with open(f"/tmp/threadwise-smt-tests-{os.geteuid()}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def start(
    place, playbook, *words, hosts=(), python=sys.executable, environment=None, errors=subprocess.STDOUT, **variables
):
    """Start a playbook of the collection, or a file in the directory, as users do."""
    inventory = place / "inventory.yml"
    if hosts:
        found = hosts if isinstance(hosts, dict) else {name: HOSTS[name] for name in hosts}
        inventory.write_text(yaml.safe_dump({"all": {"hosts": found}}, sort_keys=False))
    command = [
        str(pathlib.Path(python).with_name("ansible-playbook")),
        *(("-i", str(inventory)) if hosts else ()),
        *(playbook if playbook.endswith(".yml") else f"threadwise.smt.{playbook}", *words),
        *(("-e", json.dumps(variables)) if variables else ()),
    ]
    known = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "False", **(environment or {})}
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
    return subprocess.Popen(command, cwd=place, env=known, start_new_session=True, **how)


def call(place, playbook, *words, hosts=(), **variables):
    """Do the same to its end. Returns (exit code, what a person sees)."""
    with start(place, playbook, *words, hosts=hosts, **variables) as process:
        seen = process.communicate()[0]
    return process.returncode, seen


def line(seen):
    """What a person sees, without line breaks."""
    return " ".join(seen.split())
