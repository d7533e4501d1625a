# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user calls on the controller, against the guests of a scenario."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

INVENTORY = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
LAB = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "lab" / "lab.py"
# Molecule asks for colours.
_PLAIN = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}


def run(*command, cwd=None):
    """Run a command, and return it with what it printed."""
    return subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=_PLAIN
    )


def output(*command, cwd=None):
    """What a command printed that has to succeed."""
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def play(playbook, *words, cwd=None, **variables):
    """Run a playbook for the guests."""
    return run("ansible-playbook", "-i", str(INVENTORY), str(playbook), "-e", json.dumps(variables), *words, cwd=cwd)


def module(guest, name, *words, **options):
    """A module's result, by the ad-hoc command, which shows facts, too."""
    said = output("ansible", "-i", str(INVENTORY), guest, "-m", name, "-a", json.dumps(options), *words)
    return json.loads(said.partition("=> ")[2])


def kill_the_change(host):
    """Kill the module that changes the host, by the pid that its lock begins with; it may have ended."""
    host.run("kill -9 $(head -n 1 /run/threadwise-smt/lock | cut -d ' ' -f 1)")
