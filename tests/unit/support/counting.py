# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that count CPUs, as files."""

import pathlib

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files


class Processes:
    """A host whose processes are files."""

    def __init__(self, folder):
        self.folder, self.files = pathlib.Path(folder), kernel_files.KernelFiles(str(folder))

    def start(
        self, pid, arguments, name, parent=1, unit="", threads=1, mask="0-3", started=0, uid=0, variables=(),
        effective=None, group=None,
    ):  # fmt: skip
        ids = "\t".join(map(str, (uid, *[uid if effective is None else effective] * 3)))
        of_process = self.folder / "proc" / str(pid)
        of_process.mkdir(parents=True)
        status = f"Name:\t{name}\nPPid:\t{parent}\nUid:\t{ids}\nThreads:\t{threads}\nCpus_allowed_list:\t{mask}\n"
        known = {"comm": f"{name}\n", "cmdline": "\0".join(arguments) + "\0", "status": status}
        known["environ"] = "".join(f"{pair}\0" for pair in variables)
        known["stat"] = f"{pid} ({name}) S {parent}{' 0' * 17} {started} 0\n"
        known["cgroup"] = f"0::{group or (f'/system.slice/{unit}' if unit else '/')}\n"
        for file, text in known.items():
            (of_process / file).write_text(text)

    def nginx(self, workers, unit="nginx.service", kind="nginx: worker process", pid=100):
        self.start(pid, ["nginx: master process /usr/sbin/nginx -g daemon on;"], "nginx", unit=unit)
        for number in range(workers):
            # What is left of the arguments after their title was set.
            self.start(pid + 1 + number, [kind, "", ""], "nginx", pid, unit)
