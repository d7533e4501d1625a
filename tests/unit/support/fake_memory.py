# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose memory policy can be changed."""

import errno
import json
import os
import pathlib

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import change as memory_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.services import oom_score
from memory_tree import put, tree

VM = "proc/sys/vm/"
# The kernel sets each of the two to 0 when the other one is written (mm/util.c).
RESETS = {VM + "overcommit_ratio": VM + "overcommit_kbytes", VM + "overcommit_kbytes": VM + "overcommit_ratio"}


class Systemd:
    """Simulates systemctl show for services below a tree; like systemd it reads their drop-ins at daemon-reload."""

    def __init__(self, root, **services):
        self.root = root
        self.services = services
        self.loaded = {}
        self.reloads = 0

    def __call__(self, argv):
        if argv[1] == "daemon-reload":
            self.reloads += 1
            paths = {name: os.path.join(self.root, oom_score.drop_in_path(name + ".service")) for name in self.services}
            self.loaded = {name: -900 for name, path in paths.items() if os.path.exists(path)}
            return 0, "", ""
        return 0, "\n\n".join(map(self._show, argv[argv.index("--") + 1 :])) + "\n", ""

    def _show(self, name):
        short = name[: -len(".service")]
        if short not in self.services:
            return f"Id={name}\nLoadState=not-found"
        service = self.services[short]
        score, group = self.loaded.get(short, service.get("score", 0)), f"/system.slice/{name}"
        return f"MainPID={service['main']}\nControlGroup={group}\nOOMScoreAdjust={score}\nId={name}\nLoadState=loaded"


def process(root, pid, score, unit="db.service"):
    """Start a process of a service."""
    put(root, f"proc/{pid}/oom_score_adj", f"{score}\n")
    procs = pathlib.Path(root) / f"sys/fs/cgroup/system.slice/{unit}/cgroup.procs"
    before = procs.read_text() if procs.exists() else ""
    put(root, str(procs.relative_to(root)), before + f"{pid}\n")


class MemoryHost:
    """A host of the tree ``memory_tree.tree`` with the services ``db`` (score 100."""

    def __init__(self, root, monkeypatch, **sysctls):
        self.root = pathlib.Path(root)
        tree(root, **sysctls)
        self.systemd = Systemd(str(root), db={"main": 10, "score": 100}, web={"main": 20})
        for pid, score, unit in ((10, 100, "db"), (11, 100, "db"), (20, 0, "web")):
            process(root, pid, score, unit + ".service")
        self.effects = []
        self.fails = lambda effect: False
        write, unlink = HostFs.write, durable.unlink

        def written(fs, path, *rest, **how):
            self._do("write " + path, errno.ENOSPC)
            return write(fs, path, *rest, **how)

        def unlinked(path):
            self._do(f"remove {os.path.relpath(path, root)}", errno.EROFS)
            return unlink(path)

        monkeypatch.setattr(kernel_files.KernelFiles, "write", lambda _files, path, text: self._kernel(path, text))
        monkeypatch.setattr(HostFs, "write", written)
        monkeypatch.setattr(durable, "unlink", unlinked)

    def _do(self, effect, number):
        self.effects.append(effect)
        if self.fails(effect):
            raise OSError(number, os.strerror(number))

    def _kernel(self, path, text):
        self._do(f"{path} = {text}", errno.EINVAL)
        if not (self.root / path).exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        put(self.root, path, text + "\n")
        if path in RESETS:
            put(self.root, RESETS[path], "0\n")

    def run_command(self, argv):
        if argv[1] == "daemon-reload":
            self.effects.append("daemon-reload")
            if self.fails("daemon-reload"):
                return 1, "", "the bus is gone"
        elif self.effects and self.fails("show after " + self.effects[-1]):
            return 1, "", "the bus is gone"
        return self.systemd(argv)

    def ask(self, state="present", protect=None, check=False, margin=10, **options):
        """Send a request. Returns the module's result with its warnings."""
        request = memory_change.Request(state, {**options, "margin": margin}, protect, check)
        change = memory_change.MemoryChange(request, self.run_command, str(self.root))
        result = change.run()
        assert json.loads(json.dumps(result)) == result
        return {**result, "warnings": change.warnings}

    def everything(self):
        """Return the content of each file, by path; the lock's aside."""
        paths = [path for path in self.root.rglob("*") if path.is_file() and path.name != "lock"]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}

    def read(self, path):
        return (self.root / path).read_text()
