# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate in the border: every action that asks a host for something of this collection's is made of this one.

The answer is checked while it is still the text that the connection brought, before Ansible or this collection reads any part of it.
"""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers, schema, text

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
# Of what a host printed that is no answer, as much as tells a person what is wrong there.
MOST_WORDS = 300


class HostFailedError(Exception):
    """A module failed on the host, or its answer was refused.

    Attributes:
        answer: what ``answers.accept`` left of it: ``failed``, ``msg`` (str), perhaps ``warnings`` and ``exception``, and the kind's fields of a failure.
    """

    def __init__(self, answer: dict[str, t.Any]):
        super().__init__(answer["msg"])
        self.answer = {**answer, "failed": True, "changed": False}


class HostAction(ActionBase):
    """An action that asks its host through the border."""

    _supports_check_mode = True
    _supports_async = False
    _kind = ""
    _host = ""
    _crossed = False

    def ask(self, kind: str, module: str, arguments: dict[str, t.Any], task_vars: dict[str, t.Any], **how: t.Any) -> dict[str, t.Any]:
        """Call a module on the host.

        Args:
            kind: of the answer, of ``answers.KINDS``.
            module: its name; without a dot, of this collection.
            arguments: of the module.
            task_vars: of the task.
            how: further arguments of Ansible's ``_execute_module``.

        Returns:
            The answer: plain data of its kind.

        Raises:
            HostFailedError: the module failed, or its answer was refused.
            AnsibleConnectionFailure: the host cannot be reached.
        """
        missing = [str(library) for library in (schema.MISSING_LIBRARY, text.MISSING_LIBRARY) if library]
        if missing:
            raise HostFailedError({"msg": f"answers of hosts cannot be checked on this controller ({'; '.join(missing)}): pip install jsonschema-rs orjson"})
        self._kind, self._host, self._crossed = kind, text.line(task_vars["inventory_hostname"], 100), False
        answer = self._execute_module(module if "." in module else COLLECTION + module, dict(arguments), task_vars=task_vars, **how)
        if not self._crossed:
            raise HostFailedError(
                {
                    "msg": "this version of ansible-core hands a host's answer over in a way that this version of threadwise.smt does not know, "
                    "so it cannot be checked: use one of the versions that the collection names"
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
        """What the connection brought -> the answer. Ansible calls this before anything else looks at it."""
        self._crossed = True
        try:
            return {"_ansible_parsed": True, **answers.accept(self._kind, res.get("stdout") or "")}
        except answers.NoAnswer:
            said = text.line(f"{res.get('stderr') or ''} {res.get('stdout') or ''}".strip() or "nothing", MOST_WORDS)
            reason = f"the module did not run there: exit status {text.line(res.get('rc'), 20)}, it printed {said}"
        except text.BorderError as error:
            reason = f"the answer of {text.line(self._task.action, 100)} was refused: {text.line(error, 600)}"
        except AnsibleError as error:
            reason = f"the answer cannot be read: {text.line(error, 600)}"
        return {"_ansible_parsed": True, "failed": True, "msg": f"{self._host}: {reason}"}
