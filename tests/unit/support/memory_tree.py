# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's memory files on a directory tree, from a recorded guest."""

import pathlib

RECORDED = pathlib.Path(__file__).parent / "recorded_memory"
SYSCTLS = {"overcommit_memory": 2, "overcommit_ratio": 80, "overcommit_kbytes": 0, "panic_on_oom": 0}
SYSCTLS |= {"nr_hugepages": 16, "admin_reserve_kbytes": 8192}


def put(root, path, text):
    """Write a file below the tree's root."""
    file = pathlib.Path(root) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def tree(root, **sysctls):
    """The guest ``hugepages`` below ``root``, with other values of /proc/sys/vm. Returns the root as str."""
    put(root, "proc/meminfo", (RECORDED / "hugepages.txt").read_text())
    put(root, "proc/vmstat", "pgfault 12\noom_kill 3\n")
    put(root, "proc/sys/kernel/panic", "0\n")
    put(root, "run/systemd/system/README", "")
    for name, value in dict(SYSCTLS, **sysctls).items():
        put(root, "proc/sys/vm/" + name, f"{value}\n")
    return str(root)
