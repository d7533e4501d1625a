# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as an action that reboots it sees it: modules that answer, short commands, and Ansible's own reboot."""

import types
import uuid

import answer_maker
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot, visit

LISTS = ("arguments", "found", "configured_before", "configured", "running", "mitigations_running", "differences")
ANSWER = {
    **{name: [] for name in (*LISTS, "affinity_conflicts", "diff")},
    "loader": "grub",
    "reboot_required": False,
    "reboot_in_vain": None,
}
GRANTED = {"granted": True, "handed_over": False, "msg": "", "wait_seconds": 0.0, "holds": None}


class RebootedHost:
    """The action of a task, and its host."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(time_limits.time, "sleep", lambda _seconds: None)
        self.log, self.fails, self.differences, self.looks = [], {}, [], 0
        self.boot, self.old = str(uuid.uuid4()), None
        self.facts = None
        self.configured, self.running, self.given, self.slots, self.answers = {}, {}, {}, [], []
        self._task = types.SimpleNamespace(check_mode=False, copy=lambda: types.SimpleNamespace(args={}))
        self._connection = types.SimpleNamespace(reset=lambda: None)
        self._play_context = self._loader = self._templar = None
        self._shared_loader_obj = types.SimpleNamespace(action_loader=types.SimpleNamespace(get=self._plugin))

    def _plugin(self, name, task, **_more):
        assert name == "ansible.builtin.reboot"
        self.task = task
        return types.SimpleNamespace(run=self._reboot)

    def cleanup(self):
        """Remove the directory of the task's modules, which this action made and no other removes."""
        self.log.append("cleaned")

    def _see(self, name):
        why = self.fails.get(name)
        if why == "lost":
            raise AnsibleConnectionFailure("no route to host")
        return why

    def _reboot(self, task_vars):
        why = self._see("reboot")
        self.log.append("reboot")
        if why:
            return {"failed": True, "rebooted": False, "msg": why}
        self.boot, self.old = str(uuid.uuid4()), self.boot
        self.running = dict(self.configured)
        return {"rebooted": True}

    def ask(self, _kind, module, arguments, _task_vars):
        """Answer as a module does."""
        why = self._see(module)
        if why:
            raise AnsibleError(why) if why.startswith("failed to transfer") else HostFailedError({"msg": why})
        if module == "smt_slot":
            self.log.append(f"{'check ' if self._task.check_mode else ''}slot {arguments['state']}")
            self.slots.append(arguments)
            return answer_maker.made(module, **{**GRANTED, **(self.answers.pop(0) if self.answers else {})})
        if module == "smt_boot_visit":
            self.log.append(f"{'check ' if self._task.check_mode else ''}{arguments.get('state', 'begun')}")
            self.given = self.given if "state" in arguments else arguments
            if not self._task.check_mode:
                self.configured = {} if "state" in arguments else {"smt": arguments["smt"]}
            # As the module, which looks only where nothing is to be changed.
            is_there = bool(self.running) if self._task.check_mode else self.configured != self.running
            return answer_maker.made(module, arguments=[], reboot_required=is_there)
        if module == "smt_facts":
            return answer_maker.made(module, ansible_facts={"smt": self.facts})
        assert self._task.check_mode, "it was to look only"
        differences = self.differences.pop(0) if self.differences else []
        return answer_maker.made(module, **{**ANSWER, "differences": differences})

    def _low_level_execute_command(self, command):
        if "boot_id" not in command:
            self._see("command")
            self.log.append(command)
            return {"rc": 0, "stdout": ""}
        self._see("boot_id")
        is_old = self.old is not None and self.looks > 0
        self.looks -= is_old
        noise = "Could not chdir to home directory /home/a: No such file or directory\r\n" if is_old else ""
        return {"rc": 0, "stdout": f"{noise}{self.old if is_old else self.boot}\r\n"}

    def visit(self, kind="evaluation", seconds=600, wanted=reboot.NOTHING):
        """A visit of this host."""
        return visit.Visit(time_limits.Calls(self, {"inventory_hostname": "db1"}), kind, "r", seconds, wanted)
