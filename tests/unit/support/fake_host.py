# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with a fake kernel that requests can be sent to."""

import json

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import service
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    snapshot as smt_snapshot,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import (
    pending,
    program,
    timer,
)
from fake_kernel import FakeKernel, numbered_cores

CORES = numbered_cores(4, 2, "adjacent")


class Host(FakeKernel):
    """A fake kernel that a request can be sent to."""

    def __init__(self, sysroot, cores=CORES, systemd=True, **options):
        super().__init__(sysroot, cores, **options)
        self.put("proc/self/mounts", "")
        if systemd:
            self.put("run/systemd/system/README", "")
        self.boot("first")
        self.commands, self.is_waiting = [], False  # the service that rolls back
        self.status, self.outputs = {}, {}  # word of a command -> its exit status, its output
        self.before_command = lambda command: None

    def put(self, path, text):
        host_files.HostFs(self.sysroot).write(path, text)

    def boot(self, boot_id):
        self.put("proc/sys/kernel/random/boot_id", boot_id)

    def run_command(self, command):
        self.commands.append(command)
        self.before_command(command)
        if command[0] == "systemd-run" or command[:2] == ["systemctl", "stop"]:
            self.is_waiting = command[0] == "systemd-run" and self.status.get("systemd-run", 0) == 0
        if "is-active" in command and timer.UNIT in command and "is-active" not in self.status:
            return 0 if self.is_waiting else 3, "", ""
        output = next((self.outputs[word] for word in command if word in self.outputs), "")
        return next((self.status[word] for word in command if word in self.status), 0), output, ""

    def stand_in(self, module, monkeypatch):
        """Be the host that a module reads and changes."""
        host = self

        class Change(smt_change.RuntimeChange):
            def __init__(self, request, run_command, sysroot):
                super().__init__(request, run_command, sysroot)
                self.host = host

        monkeypatch.setattr(module.change, "RuntimeChange", Change)
        monkeypatch.setattr(module.kernel_files, "KernelFiles", lambda _root: host)

    def ask(self, state=None, **options):
        change = smt_change.RuntimeChange(smt_change.Request(state, **options), self.run_command, self.sysroot)
        change.host = self
        result = change.run()
        result["warnings"] = change.warnings
        assert json.loads(json.dumps(result)) == result
        return result

    def saved(self):
        """The snapshot, as the next request finds it."""
        fs = host_files.HostFs(self.sysroot)
        return smt_snapshot.load(fs)

    def pending(self):
        return pending.load(host_files.HostFs(self.sysroot))

    def roll_back(self):
        """What the rollback program does when its time has come."""
        program.Program(self, self.pending(), lambda _s: service.UNDO_NOW, run_command=self.run_command).run()
