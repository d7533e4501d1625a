# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes a guest through the states in which its facts are read, and prints as JSON what is seen in each;
it is left as it was found.

State -> {facts, control, lscpu, parse: what ``lscpu --parse=CPU,CORE`` says, map_owner: of the sibling map, or null}
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import change as smt_change

CPUS = "/sys/devices/system/cpu"
CONTROL = f"{CPUS}/smt/control"
MAP = "/var/lib/threadwise-smt/topology.json"
SEEN_CORES = "/var/lib/threadwise-smt/seen-cores.json"
DAMAGES = (
    "chmod 666 {0}",
    "chown nobody {0}",
    "echo nothing >{0}",
    'sed -i \'s/"key": "/&0/\' {0}',
    'sed -i \'s/"0-7"/"0-6"/\' {0}',
)


def run(command: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ, LC_ALL="C"))
    return done.returncode, done.stdout, done.stderr


def read(path: str) -> str:
    with open(path, encoding="ascii") as stream:
        return stream.read().strip()


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(text)


def look() -> dict:
    return {
        "facts": smt_facts.gather(host_files.HostFs("/")),
        "control": read(CONTROL),
        "lscpu": run(["lscpu"])[1],
        "parse": run(["lscpu", "--parse=CPU,CORE"])[1],
        "map_owner": os.stat(MAP).st_uid if os.path.exists(MAP) else None,
    }


def smt_state(state: str) -> None:
    smt_change.RuntimeChange(smt_change.Request(state=state), run).run()


def walk() -> dict:
    seen = {"on": look()}
    write(CONTROL, "off")
    seen["off"] = look()
    write(CONTROL, "on")

    secondaries = cpulist.parse(seen["on"]["facts"]["secondaries"])
    if os.path.exists(MAP):
        os.unlink(MAP)
    for cpu in secondaries:
        write(f"{CPUS}/cpu{cpu}/online", "0")
    seen["siblings offline, no map"] = look()
    for cpu in secondaries:
        write(f"{CPUS}/cpu{cpu}/online", "1")

    smt_state("disabled")
    seen["disabled"] = look()
    for damage in DAMAGES:
        shutil.copy2(MAP, MAP + ".kept")
        subprocess.run(["sh", "-c", damage.format(MAP)], check=True)
        seen[f"seen cores there, {damage}"] = look()
        os.replace(SEEN_CORES, SEEN_CORES + ".kept")
        seen[damage] = look()
        os.replace(SEEN_CORES + ".kept", SEEN_CORES)
        os.replace(MAP + ".kept", MAP)
    smt_state("restored")
    return seen


print(json.dumps(walk()))
