# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all actions that call a module on a host: it validates each answer.

The answer is validated while it is still the text from the connection, before Ansible or this collection reads any part of it.
"""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers, text

if t.TYPE_CHECKING:

    class ActionBase:
        """What actions that ask a host use of Ansible's own base class, which has no type hints."""

        _task: t.Any
        _connection: t.Any

        def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]: ...

        def validate_argument_spec(self, argument_spec: dict[str, dict[str, t.Any]]) -> tuple[t.Any, dict[str, t.Any]]: ...

        def get_shell_option(self, option: str, default: str) -> str: ...

        def _execute_module(self, module_name: str, module_args: dict[str, t.Any], **how: t.Any) -> dict[str, t.Any]: ...

        def _low_level_execute_command(self, cmd: str) -> dict[str, t.Any]: ...

else:
    from ansible.plugins.action import ActionBase

COLLECTION = "threadwise.smt."
# Longest excerpt of a host's invalid output in a message.
MOST_OUTPUT = 300


class HostFailedError(Exception):
    """A module failed on the host, or its answer was refused.

    Attributes:
        answer: the valid part of it: ``failed``, ``msg`` (str), optional ``warnings`` and ``exception``, and the kind's fields of a failure.
    """

    def __init__(self, answer: dict[str, t.Any]):
        super().__init__(answer["msg"])
        self.answer = {**answer, "failed": True, "changed": False}


class ControllerAction(ActionBase):
    """An action that acts on the controller and makes no call on any host.

    Attributes:
        arguments: the options of the module, as Ansible's argument specification.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False
    arguments: t.ClassVar[t.Mapping[str, dict[str, t.Any]]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        _dummy, options = self.validate_argument_spec(argument_spec=dict(self.arguments))
        return self.act(options, task_vars or {})

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for.

        Args:
            options: the task's options, as ``arguments`` declares them.
            play: the variables of the task.

        Returns:
            The task's result.
        """
        raise NotImplementedError


class HostAction(ActionBase):
    """An action that calls modules on its host and validates their answers."""

    _supports_check_mode = True
    _supports_async = False
    _kind = ""
    _host = ""
    _crossed = False

    def ask(self, kind: str, module: str, arguments: dict[str, t.Any], task_vars: dict[str, t.Any], **how: t.Any) -> dict[str, t.Any]:
        """Call a module on the host.

        Args:
            kind: the kind of answer, a key of ``answers.KINDS``.
            module: its name; a name without a dot is of this collection.
            arguments: of the module.
            task_vars: variables of the task.
            how: further arguments of Ansible's ``_execute_module``.

        Returns:
            The answer: plain data of its kind.

        Raises:
            HostFailedError: the module failed, or its answer was refused.
            AnsibleConnectionFailure: the host cannot be reached.
        """
        self._kind, self._host, self._crossed = kind, text.line(task_vars["inventory_hostname"], 100), False
        answer = self._execute_module(module if "." in module else COLLECTION + module, dict(arguments), task_vars=task_vars, **how)
        if not self._crossed:
            raise HostFailedError(
                {
                    "msg": "this version of ansible-core does not pass hosts' answers to threadwise.smt for validation: "
                    "use a version of ansible-core that the collection supports"
                }
            )
        if answer.get("failed"):
            raise HostFailedError({name: value for name, value in answer.items() if not name.startswith("_")})
        return answer

    def pass_on(self, module: str, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Call a module of this collection with the task's own arguments.

        Args:
            module: its name.
            task_vars: variables of the task.

        Returns:
            The task's result: the module's answer, or its failure.
        """
        try:
            return self.ask(module, module, self._task.args, task_vars)
        except HostFailedError as failure:
            return failure.answer

    def _parse_returned_data(self, res: dict[str, t.Any], profile: str) -> dict[str, t.Any]:
        """Validate the module's output; Ansible calls this before anything else reads it."""
        self._crossed = True
        try:
            return {"_ansible_parsed": True, **answers.accept(self._kind, res.get("stdout") or "")}
        except answers.NoAnswerError:
            said = text.line(f"{res.get('stderr') or ''} {res.get('stdout') or ''}".strip() or "nothing", MOST_OUTPUT)
            reason = f"the module did not run there: exit status {text.line(res.get('rc'), 20)}, it printed {said}"
        except text.BorderError as error:
            reason = f"the answer of {text.line(self._task.action, 100)} was refused: {text.line(error, 600)}"
        except AnsibleError as error:
            reason = f"the answer cannot be read: {text.line(error, 600)}"
        return {"_ansible_parsed": True, "failed": True, "msg": f"{self._host}: {reason}"}
