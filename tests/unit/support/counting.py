# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that count CPUs, as files."""

from __future__ import annotations

import pathlib

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files


class Processes:
    """A host whose processes are files."""

    def __init__(self, folder):
        self.folder, self.files = pathlib.Path(folder), kernel_files.KernelFiles(str(folder))

    def start(
        self,
        pid,
        arguments,
        name,
        parent=1,
        unit="",
        threads=1,
        mask="0-3",
        started=0,
        uid=0,
        variables=(),
        effective=None,
        group=None,
    ):
        ids = "\t".join(map(str, (uid, *[uid if effective is None else effective] * 3)))
        of_process = self.folder / "proc" / str(pid)
        of_process.mkdir(parents=True)
        (of_process / "comm").write_text(f"{name}\n")
        (of_process / "cmdline").write_text("\0".join(arguments) + "\0")
        (of_process / "status").write_text(
            f"Name:\t{name}\nPPid:\t{parent}\nUid:\t{ids}\nThreads:\t{threads}\nCpus_allowed_list:\t{mask}\n"
        )
        (of_process / "environ").write_text("".join(f"{pair}\0" for pair in variables))
        (of_process / "stat").write_text(f"{pid} ({name}) S {parent}{' 0' * 17} {started} 0\n")
        (of_process / "cgroup").write_text(f"0::{group or (f'/system.slice/{unit}' if unit else '/')}\n")

    def nginx(self, workers, unit="nginx.service", kind="nginx: worker process", pid=100):
        self.start(pid, ["nginx: master process /usr/sbin/nginx -g daemon on;"], "nginx", unit=unit)
        for number in range(workers):
            # What is left of the arguments after their title was set.
            self.start(pid + 1 + number, [kind, "", ""], "nginx", pid, unit)
