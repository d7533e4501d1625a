# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks compliance in slices of the inventory side by side, each by an ansible-runner of its own.

usage: slices.py [-h] [--slices N] [--forks N] [--directory DIRECTORY] INVENTORY [-- OPTIONS OF ANSIBLE-PLAYBOOK]

Each slice has a directory of its own with its smt_compliance.json. The exit code is 0 when every host of the inventory
is in exactly one of them, whatever its status is, and 1 when not. The call that makes one answer of all slices is
printed at the end: README.md.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import shlex
import sys
import time
from typing import NamedTuple

import ansible_runner

PLAYBOOK = "threadwise.smt.smt_compliance"
# What a check writes. Slices that shared one of these would replace each other's.
FILES = {"json": "smt_compliance.json", "page": "smt_compliance.html", "metrics": "smt_compliance.prom"}


class Slice(NamedTuple):
    """A part of the inventory: its hosts, and the directory of its files."""

    hosts: list[str]
    directory: pathlib.Path


def hosts_of(inventory: str) -> list[str]:
    """Return the names of all hosts; Ansible's own words end the program where it cannot tell them."""
    words = ["all", "-i", inventory, "--list-hosts"]
    # In another mode its warnings are among the names.
    said, errors, code = ansible_runner.run_command("ansible", words, quiet=True, runner_mode="subprocess")
    names = [line.strip() for line in said.splitlines()[1:]]
    if code or not names:
        sys.exit(f"{inventory} has no hosts that could be checked: {errors.strip() or said.strip()}")
    return names


def prepare(hosts: list[str], count: int, directory: pathlib.Path) -> list[Slice]:
    """Deal the hosts out, so that those side by side, which often resemble each other, are in different slices, and
    remove what an earlier call left: a slice that fails before its first task leaves it as it is.
    """
    slices = [Slice(hosts[number::count], directory / str(number + 1)) for number in range(min(count, len(hosts)))]
    for one in slices:
        (one.directory / "runner").mkdir(parents=True, exist_ok=True)
        for name in FILES.values():
            (one.directory / name).unlink(missing_ok=True)
        (one.directory / "hosts").write_text("".join(f"{host}\n" for host in one.hosts))
    return slices


def check(one: Slice, inventory: str, forks: int, options: list[str]) -> int:
    """Check the hosts of a slice. Returns the exit code of ansible-playbook."""
    # A directory for each: ansible-runner keeps the arguments of a call there. The working directory stays what it is,
    # for ansible.cfg and the paths in it.
    return ansible_runner.run(
        private_data_dir=str(one.directory / "runner"),
        project_dir=str(pathlib.Path.cwd()),
        playbook=PLAYBOOK,
        inventory=inventory,
        limit=f"@{one.directory / 'hosts'}",
        forks=forks,
        extravars={f"smt_compliance_{name}": str(one.directory / file) for name, file in FILES.items()},
        cmdline=shlex.join(options),
        rotate_artifacts=1,
        quiet=True,
    ).rc


def missing(one: Slice) -> str:
    """Return what keeps a slice from being an answer about all of its hosts, and nothing else; empty: nothing."""
    try:
        answer = json.loads((one.directory / FILES["json"]).read_text(encoding="utf-8"))
        found = sorted(host["host"] for host in answer["hosts"] or ())
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"it left no answer ({error}); {one.directory / 'runner' / 'artifacts'} has what Ansible said"
    if answer.get("error"):
        return answer["error"]
    return "" if found == sorted(one.hosts) else f"it is about {len(found)} of its {len(one.hosts)} hosts"


def main(words: list[str]) -> int:
    """Run all slices, and say what came of each."""
    words, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="What follows -- goes to Ansible.")
    parser.add_argument("--slices", type=int, default=4, metavar="N", help="default: 4")
    parser.add_argument("--forks", type=int, default=10, metavar="N", help="of each slice, default: 10")
    parser.add_argument("--directory", type=pathlib.Path, default="smt_slices", help="default: smt_slices")
    parser.add_argument("inventory")
    given = parser.parse_args(words)
    if given.slices < 1:
        parser.error("--slices has to be at least 1")
    inventory = str(pathlib.Path(given.inventory).resolve())
    slices = prepare(hosts_of(inventory), given.slices, given.directory.resolve())
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(slices)) as pool:
        codes = list(pool.map(lambda one: check(one, inventory, given.forks, options), slices))
    print(f"{sum(len(one.hosts) for one in slices)} hosts in {len(slices)} slices: {time.monotonic() - begun:.1f} s")
    for one, code in zip(slices, codes, strict=True):
        reason = missing(one)
        print(f"{one.directory}: {len(one.hosts)} hosts, exit code {code}{reason and f': {reason}'}")
    wanted = {"smt_compliance_source": "files", "smt_compliance_files": [str(one.directory) for one in slices]}
    print(shlex.join(["ansible-playbook", "-i", given.inventory, PLAYBOOK, "-e", json.dumps(wanted)]))
    return 1 if any(map(missing, slices)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
