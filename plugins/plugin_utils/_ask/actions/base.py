# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all actions that call a module on a host: it validates each answer.

The answer is validated while it is still the text from the connection, before Ansible or this collection reads any part
of it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import types
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import intake, terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.user_variables import UserVariables
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, parts, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts, of_answer

if t.TYPE_CHECKING:

    class ActionBase:
        """What actions that ask a host use of Ansible's own base class, which has no type hints."""

        _task: t.Any
        _connection: t.Any
        _loader: t.Any
        _play_context: t.Any
        _shared_loader_obj: t.Any
        _templar: t.Any

        def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]: ...

        def cleanup(self, force: bool = False) -> None: ...

        def validate_argument_spec(
            self, argument_spec: dict[str, dict[str, t.Any]]
        ) -> tuple[t.Any, dict[str, t.Any]]: ...

        def get_shell_option(self, option: str, default: str) -> str: ...

        def _execute_module(
            self, module_name: str, module_args: dict[str, t.Any], **how: t.Any
        ) -> dict[str, t.Any]: ...

        def _low_level_execute_command(self, cmd: str) -> dict[str, t.Any]: ...

        def _parse_returned_data(self, res: dict[str, t.Any], *profile: str) -> t.Any: ...

else:
    from ansible.plugins.action import ActionBase

# Ansible's own class has no type hints.
_FAIL: t.Callable[[str], Exception] = AnsibleActionFail

COLLECTION = "threadwise.smt."
# The options of a task, each an attribute.
Options = types.SimpleNamespace
# Longest excerpt of a host's invalid output in a message.
MAX_OUTPUT = 300


class HostFailedError(Exception):
    """A module failed on the host, or its answer was refused.

    Attributes:
        answer: the valid part of it: ``failed``, ``msg`` (str), optional ``warnings`` and ``exception``, and the kind's
            fields of a failure.
    """

    def __init__(self, answer: dict[str, t.Any]):
        super().__init__(answer["msg"])
        self.answer = {**answer, "failed": True, "changed": False}


class _OwnAction(ActionBase):
    """What all actions share: facts of hosts decide nothing on the controller.

    Attributes:
        from_user: names of the options that do; they are taken from what the user wrote, whatever facts the hosts have.
        once_for_all: whether one call is for all hosts of the play, so that a refused host does not end it. With the
            option ``all_of`` it is for all hosts of the pattern that this variable sets.
        says_undefined: whether the action itself reports a variable that is set to what is not defined.
    """

    from_user: t.ClassVar[t.Collection[str]] = ()
    once_for_all: t.ClassVar[bool] = False
    says_undefined: t.ClassVar[bool] = False
    _undefined: str | None = None

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Refuse a host whose facts would be settings,
        and take the options from the user that decide on the controller.

        Raises:
            AnsibleActionFail: the host is refused, such an option cannot be worked out, or a variable is set to what is
                not defined.
        """
        super().run(tmp, task_vars)
        self._user = UserVariables(self._task, task_vars or {}, self._loader)
        if self.once_for_all and self._task.args.get("all_of"):
            self._user.widen(self._task.args["all_of"])
        host = self._user.first_of_all() if self.once_for_all else (task_vars or {})["inventory_hostname"]
        refusal = self._user.refusal(host)
        if refusal is not None:
            raise _FAIL(refusal)
        if not self.once_for_all:
            self._undefined = self._user.undefined(task_vars or {})
        if self._undefined is not None and not self.says_undefined:
            raise _FAIL(f"{text.line(host, 100)}: {self._undefined}")
        if self.from_user:
            self._task.args = self._user.arguments(self.from_user, host)
        return {}

    def validated(self, arguments: t.Mapping[str, dict[str, t.Any]]) -> Options:
        """Return the task's options as the arguments declare them."""
        return Options(**self.validate_argument_spec(argument_spec=dict(arguments))[1])


class ControllerAction(_OwnAction):
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
        # Ansible makes a process for this task alone: the inventory in it is no garbage, and not to be looked through.
        gc.freeze()
        super().run(tmp, task_vars)
        return self.act(self.validated(self.arguments), task_vars or {})

    def registered(self, name: str, host: str) -> dict[str, t.Any]:
        """Return what a task registered for a host; nothing where none did."""
        registered = self._user.registered(name, host)
        return registered if isinstance(registered, dict) else {}

    def facts(self, name: str, host: str) -> Facts | None:
        """Return the facts that a task registered for a host, None where it has none.

        Raises:
            AnsibleActionFail: they are not those of smt_facts.
        """
        try:
            return of_answer(self.registered(name, host))
        except text.BorderError as error:
            raise _FAIL(f"{text.line(host, 100)}: {name} does not have what smt_facts returns: {error}") from None

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for.

        Args:
            options: the task's options, as ``arguments`` declares them.
            play: the variables of the task.

        Returns:
            The task's result.
        """
        raise NotImplementedError


class HostAction(_OwnAction):
    """An action that calls modules on its host and validates their answers."""

    _supports_check_mode = True
    _supports_async = False
    _kind: type[parts.Answer] = parts.Answer
    _host = ""
    # A failure is data already.
    _answer: parts.Answer | dict[str, t.Any] | None = None
    _added: t.Mapping[str, t.Any] = types.MappingProxyType({})

    def ask(
        self,
        kind: type[answers.Kind],
        module: str,
        arguments: dict[str, t.Any],
        task_vars: dict[str, t.Any],
        **how: t.Any,
    ) -> answers.Kind:
        """Call a module on the host.

        Args:
            kind: what the answer is to be.
            module: its name; a name without a dot is of this collection.
            arguments: of the module.
            task_vars: variables of the task.
            how: further arguments of Ansible's ``_execute_module``.

        Raises:
            HostFailedError: the module failed, or its answer was refused.
            AnsibleConnectionFailure: the host cannot be reached.
            AnsibleActionFail: this controller could not validate the answer.
        """
        if schema.MISSING_LIBRARY is not None:
            raise _FAIL(
                "hosts' answers are validated by msgspec, which this controller does not have"
                f" ({schema.MISSING_LIBRARY}): {sys.executable} -m pip install msgspec"
            )
        self._kind, self._host, self._answer = kind, text.line(task_vars["inventory_hostname"], 100), None
        name = module if "." in module else COLLECTION + module
        try:
            with intake.at_most(kind.characters):
                added = self._execute_module(name, dict(arguments), task_vars=task_vars, **how)
        except intake.FloodError as error:
            raise HostFailedError({"msg": f"{self._host}: the answer of {module} was refused: {error}"}) from None
        if self._answer is None:
            raise HostFailedError(
                {
                    "msg": (
                        "this version of ansible-core does not pass hosts' answers to threadwise.smt for validation: "
                        "use a version of ansible-core that the collection supports"
                    )
                }
            )
        # The interpreter that it found on the host. From ansible-core 2.19 on its warnings about that are no texts, and
        # Ansible shows them by itself.
        self._added = added.get("ansible_facts") or {}
        warnings = [warning for warning in added.get("warnings") or () if isinstance(warning, str)]
        answer = self._answer
        if isinstance(answer, dict):
            raise HostFailedError(
                {
                    **answer,
                    **({"ansible_facts": self._added} if self._added else {}),
                    **({"warnings": [*answer.get("warnings", ()), *warnings]} if warnings else {}),
                }
            )
        return t.cast("answers.Kind", parts.changed(answer, warnings=(*answer.warnings, *warnings)))

    def _parse_returned_data(self, res: dict[str, t.Any], *profile: str) -> t.Any:
        """Validate the module's output; Ansible calls this before anything else reads it.

        Releases of Ansible differ in what they pass and want back. So Ansible reads an answer here too, one that has
        nothing but what concerns itself.
        """
        self._answer = self._accepted(res)
        of_ansible = {} if isinstance(self._answer, dict) else self._answer.of_ansible
        return super()._parse_returned_data({**res, "stdout": json.dumps(of_ansible), "stderr": ""}, *profile)

    def _accepted(self, res: dict[str, t.Any]) -> parts.Answer | dict[str, t.Any]:
        """Return the valid part of the module's output, or the failure that it comes to."""
        try:
            return answers.accept(self._kind, res.get("stdout") or "")
        except answers.ModuleFailedError as failure:
            return failure.answer
        except answers.NoAnswerError:
            printed = text.line(f"{res.get('stderr') or ''} {res.get('stdout') or ''}".strip() or "nothing", MAX_OUTPUT)
            reason = f"the module did not run there: exit status {text.line(res.get('rc'), 20)}, it printed {printed}"
        except text.BorderError as error:
            reason = f"the answer of {text.line(self._task.action, 100)} was refused: {text.line(error, 600)}"
        except AnsibleError as error:
            reason = f"the answer cannot be read: {text.line(error, 600)}"
        return {"failed": True, "msg": f"{self._host}: {reason}"}


class ModuleAction(HostAction):
    """An action of one module call, with the task's own arguments.

    Attributes:
        module: the module's name.
        is_long: whether the call is ended when nobody reads what Ansible prints any more.
    """

    module: t.ClassVar[str]
    is_long: t.ClassVar[bool] = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Call the module on the host; return its valid answer, or its failure."""
        super().run(tmp, task_vars)
        try:
            with terminal.while_read() if self.is_long else contextlib.nullcontext():
                answer = self.ask(answers.OF_MODULES[self.module], self.module, self._task.args, task_vars or {})
                result: dict[str, t.Any] = parts.plain(answer)
                facts = {**result.get("ansible_facts", {}), **self._added}
                return {**result, **({"ansible_facts": facts} if facts else {})}
        except HostFailedError as failure:
            return failure.answer
        except terminal.UnreadError as error:
            return {"failed": True, "changed": False, "msg": str(error)}
