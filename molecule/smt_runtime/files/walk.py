# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take each step after each other one, on the guest itself, and print what the kernel shows after each.

usage: walk.pyz THREADS      (the most threads of a core), packed by ../resources/pack.py
"""

from __future__ import annotations

import subprocess
import sys

from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import change as smt_change


def steps(threads: int) -> list:
    """A de Bruijn sequence, from the Lyndon words of length 1 and 2 in order: it has each step after each step once."""
    names = ["enabled", "disabled", "restored", *list(range(1, threads + 1))]
    words = [
        [first] + [step for second in names[place + 1 :] for step in (first, second)]
        for place, first in enumerate(names)
    ]
    return [step for word in words for step in word] + names[:1]


def run_command(command: list) -> tuple:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def take(step) -> None:
    state, threads = (step, None) if isinstance(step, str) else (None, step)
    smt_change.RuntimeChange(
        smt_change.Request(state=state, threads=threads, affinity_conflicts="warn"), run_command
    ).run()


for one in [*steps(int(sys.argv[1])), "restored"]:
    take(one)
    with open("/sys/devices/system/cpu/online", encoding="ascii") as online:
        print(one, online.read().strip(), flush=True)
