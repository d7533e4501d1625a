# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user calls on the controller, against the guests of a scenario."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time

import yaml

INVENTORY = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
LAB = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "tools" / "lab" / "lab.py"
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
    given = ["-a", json.dumps(options)] if options else []
    said = output("ansible", "-i", str(INVENTORY), guest, "-m", name, *given, *words)
    return json.loads(said.partition("=> ")[2])


def ssh(guest, options=""):
    """The words for a shell that begin an ssh to a guest."""
    about = yaml.safe_load((INVENTORY / f"{guest}.yml").read_text())["lab"]["hosts"][guest]
    words = f"ssh -p {about['ansible_port']} -i {about['ansible_ssh_private_key_file']}"
    return f"{words} {about['ansible_ssh_common_args']} {options} {about['ansible_user']}@{about['ansible_host']}"


def asked(guest, state, *words, **options):
    """Ask smt_state for a state."""
    return run(*_state(guest, state, options), *words)


def state(guest, state, *words, **options):
    """Set a state by smt_state; returns what the terminal shows, as one line."""
    done = asked(guest, state, *words, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(f"{done.stdout} {done.stderr}".split())


def killed(host, guest, mark, state, **options):
    """Ask smt_state for a state, and kill it on the guest when a file is there, which what it runs makes and waits
    then. Returns when its watchdog has ended.
    """
    host.check_output(f"rm -f {mark}")
    with subprocess.Popen(
        _state(guest, state, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_PLAIN
    ) as process:
        try:
            host.check_output(f"for i in $(seq 1500); do test -e {mark} && exit; sleep 0.2; done; exit 1")
            # The lock begins with the pid of its holder.
            host.check_output("kill -9 $(head -n 1 /run/threadwise-smt/lock | cut -d ' ' -f 1)")
            process.wait(timeout=120)
        finally:
            process.kill()
    ended(host, "pgrep -f smt-watchdog")


def ended(host, command):
    """Wait until a command of a guest fails."""
    for _attempt in range(400):
        if host.run(command).rc:
            return
        time.sleep(0.5)
    raise AssertionError(f"{command} succeeds still")


def _state(guest, state, options):
    words = json.dumps({"state": state, **options})
    return ["ansible", "-i", str(INVENTORY), guest, "-b", "-m", "threadwise.smt.smt_state", "-a", words]
