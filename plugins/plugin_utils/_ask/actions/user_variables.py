# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user wrote, apart from what hosts say of themselves.

In Ansible's precedence of variables the facts of a host replace those of its inventory
(https://docs.ansible.com/ansible/latest/reference_appendices/general_precedence.html), also facts of an earlier play
and those of a fact cache. So a value that decides something on the controller is worked out here once more, without
facts; and a host that has facts with names of this collection's variables fails.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import re
import typing as t

from ansible import context
from ansible.errors import AnsibleActionFail, AnsibleError, AnsibleUndefinedVariable
from ansible.inventory.manager import InventoryManager
from ansible.parsing.mod_args import ModuleArgsParser
from ansible.template import Templar
from ansible.vars import manager
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

try:
    from ansible._internal._datatag import _tags
except ImportError:
    # Before ansible-core 2.19 only what comes from YAML knows where it is from, and says so in another way.
    _ORIGIN: t.Any = None
else:
    _ORIGIN = _tags.Origin

# Ansible's own classes have no type hints.
_FAIL: t.Callable[[str], Exception] = AnsibleActionFail
_PARSER: t.Any = ModuleArgsParser
_INVENTORY: t.Any = InventoryManager
_MANAGER: t.Any = VariableManager
_CONTEXT: t.Any = context
_MANAGING: t.Any = manager
_HOSTVARS: t.Any = HostVars

Variables = dict[str, t.Any]

# What the roles set for users to read; the counts are a statistic, of which AWX makes an extra variable of later jobs.
RESULTS = (
    "smt_boot_reboot_required",
    "smt_compliance_counts",
    "smt_eval_result",
    "smt_policy_before",
    "smt_policy_judged",
    "smt_report_result",
    "smt_trial_report_result",
    "smt_trial_result",
)
MAX_NAMED = 3
_NAMES = re.compile(r"\bsmt_[a-z0-9_]+")
# The facts that this collection's modules return.
_FACTS = ("smt", "smt_firmware", "smt_memory")
_PRIVATE = "__smt_"
# What a text with a template has in it, or begins with where it has other marks.
_MARKS = re.compile(r"\{[{%#]|\A#jinja2:")
# These decide for other hosts, what the controller reads, writes and sends, or who may differ from a policy: not even
# `set_fact`, which may pass on what a host said, sets them.
_FOR_ALL = re.compile(
    r"smt_(compare|compliance|enforce|history|proof|report|survey|trial)_.+|smt_eval_(boots|dest|install|run|sample|serial)"
    r"|smt_exposure_(hosts|page|results)|smt_policy_(group|results|waiver)|smt_usage_results"
)
# A query may have in it what a host says of itself: it asks about that host alone.
OF_A_HOST = ("smt_trial_guardrails", "smt_trial_metrics")
_TOP = pathlib.Path(__file__).parents[4]


class _NoFacts(dict[str, t.Any]):
    """A fact cache without facts. Releases of Ansible differ in what they expect of a host that is not in it."""

    def get(self, _host: str, _default: t.Any = None) -> Variables:
        return {}


class UserVariables:
    """The variables of a task's hosts, without those that hosts set themselves.

    Args:
        task: Ansible's task.
        task_vars: the variables of the task.
        loader: Ansible's loader of files.
    """

    def __init__(self, task: t.Any, task_vars: Variables, loader: t.Any) -> None:
        self._task, self._loader = task, loader
        self._play_hosts = {
            "_hosts": task_vars["ansible_play_batch"],
            "_hosts_all": task_vars["ansible_play_hosts_all"],
        }
        self._here = task_vars["inventory_hostname"]
        # Ansible has no public way to read a host's facts without running templates in them, or its variables without
        # its facts.
        manager = task_vars["hostvars"]._variable_manager
        self._facts, self._set = manager._fact_cache, manager._nonpersistent_fact_cache
        self._inventory = manager._inventory
        # Before ansible-core 2.19 `copy` leaves out half of it.
        self._manager = object.__new__(type(manager))
        self._manager.__dict__.update(manager.__dict__)
        self._manager._fact_cache = _NoFacts()
        self._manager._nonpersistent_fact_cache = {}
        # It makes itself the manager's: templates that go through `hostvars` find no facts either.
        _HOSTVARS(self._inventory, self._manager, loader)
        self._of_groups: dict[tuple[str, ...], Variables] = {}
        self._of_files: list[t.Callable[..., Variables]] = []
        self.extra: Variables = manager.extra_vars

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts that the task is about: those of its play, or more (:meth:`widen`)."""
        return list(map(str, self._play_hosts["_hosts_all"]))

    def widen(self, variable: str) -> None:
        """Make the task one about all hosts of a pattern, of which its play has one.

        Args:
            variable: name of the variable that sets the pattern, ``all`` where it is not set.

        Raises:
            AnsibleActionFail: it cannot be worked out.
        """
        asked = {"pattern": self.of_play.get(variable, "all")}
        pattern = self._worked_out(asked, self.of_play, self._here)["pattern"]
        hosts = [host.name for host in self._inventory.get_hosts(pattern, ignore_restrictions=True)]
        self._play_hosts = {"_hosts": hosts, "_hosts_all": hosts}

    def refusal(self, host: str) -> str | None:
        """Return why a host is refused whose facts have names of this collection's variables,
        None where there are none.
        """
        facts, by_set_fact = (
            sorted(filter(is_reserved, self._facts_of(host))),
            sorted(filter(is_for_all, self._set.get(host) or ())),
        )
        # A cacheable fact of `set_fact` is both.
        by_set_fact = [name for name in by_set_fact if name not in facts]
        reasons = []
        if facts:
            reasons.append(f"it has {_named('fact', facts)}")
        if by_set_fact:
            reasons.append(f"set_fact or register gave it {_named('variable', by_set_fact)}")
        if not reasons:
            return None
        return (
            f"{text.line(host, 100)} is refused: {' and '.join(reasons)}, and what a host says is no setting of this"
            " collection. Set it in the inventory, in the play's vars or by -e, and clear the host's facts"
            " (ansible-playbook --flush-cache)"
        )

    def first_of_all(self) -> str:
        """Return the host whose variables count for a task that is done once for all: this one,
        or else the first that is not refused.

        Raises:
            AnsibleActionFail: all hosts are refused.
        """
        hosts: list[str] = [self._here, *self._play_hosts["_hosts_all"]]
        first = next((host for host in hosts if self.refusal(host) is None), None)
        if first is None:
            raise _FAIL(str(self.refusal(self._here)))
        return first

    def other_hosts(self) -> list[str]:
        """Return the names of the hosts of the inventory that the play is not about, sorted."""
        others = self._inventory.get_hosts("all", ignore_limits=True, ignore_restrictions=True)
        return sorted({str(host.name) for host in others} - {str(host) for host in self._play_hosts["_hosts_all"]})

    def registered(self, name: str, host: str) -> t.Any:
        """Return what a task registered for a host, None where none did;
        a fact of the same name does not stand in for it.
        """
        return (self._set.get(host) or {}).get(name)

    def registered_by_any(self, name: str) -> t.Any:
        """Return what a task that was done once for all registered, None where none did."""
        return next((variables[name] for variables in self._set.values() if name in variables), None)

    def value(self, name: str, host: str) -> t.Any:
        """Return a variable as the user wrote it for a host, templated without facts; None where it is not set or
        omitted, or for a host that is refused.

        Raises:
            AnsibleActionFail: it cannot be worked out without facts.
        """
        if self.refusal(host) is not None:
            return None
        variables = self.around(host)
        return self._worked_out({name: variables[name]}, variables, host).get(name) if name in variables else None

    def undefined(self, task_vars: Variables) -> str | None:
        """Return a sentence for a variable that the task's arguments name and that is set to what is not defined:
        `default` takes it for one that is not set. None where there is no such variable.

        Args:
            task_vars: the variables of the task.
        """
        for name in sorted(set(_NAMES.findall(str(self._task.get_ds() or ""))) - set(RESULTS)):
            try:
                self.templated(task_vars.get(name), dict(task_vars))
            except AnsibleUndefinedVariable as error:
                where = place(task_vars[name]) or place(name)
                shown = f" (set in {where})" if where else ""
                return f"{name}{shown} is set, and its value cannot be worked out: {text.line(error, 500)}"
        return None

    def arguments(self, names: t.Iterable[str], host: str) -> Variables:
        """Return the task's arguments, some of them as the user wrote them, templated without facts.

        Args:
            names: of these arguments. What is no argument of the task itself is from ``module_defaults``, and stays.
            host: whose variables count.

        Raises:
            AnsibleActionFail: one of them cannot be worked out without facts.
        """
        parser = _PARSER(task_ds=self._task.get_ds(), collection_list=self._task.collections)
        written: Variables = parser.parse(skip_action_validation=True)[1]
        asked = {name: written[name] for name in names if name in written}
        others = {name: value for name, value in self._task.args.items() if name not in asked}
        return {**others, **self._worked_out(asked, self.around(host), host)} if asked else others

    def variables_of(self, host: str) -> Variables:
        """Return the variables of a host, not templated: its inventory's and extra ones.

        Raises:
            AnsibleActionFail: Ansible cannot read them, such as a day in a file that no calendar has.
        """
        named = self._inventory.get_host(host)
        try:
            of_host = _combined(
                self._said_by_groups(named), named.get_vars(), *(read(entities=[named]) for read in self._of_files)
            )
            of_tasks = {name: value for name, value in (self._set.get(host) or {}).items() if _is_kept(name)}
            return _combined(
                # Ansible's own place for facts, of which there are none here.
                {**of_host, "ansible_facts": {}},
                self._manager._vars_cache.get(host, {}),
                of_tasks,
                self._above,
            )
        except AnsibleError as error:
            raise _FAIL(
                f"{text.line(host, 100)}: its variables (of the inventory, host_vars and group_vars) cannot be read:"
                f" {text.line(error, 500)}"
            ) from None

    @functools.cached_property
    def _above(self) -> Variables:
        """The variables that no host has of its own: extra ones, and some of Ansible's."""
        values: Variables = self._manager.get_vars()
        return values

    def _said_by_groups(self, named: t.Any) -> Variables:
        """Return what the groups of a host say. Ansible works it out again for each host, which takes most of its time:
        hosts of the same groups differ in what is their own.
        """
        key = tuple(group.name for group in named.get_groups())
        if key not in self._of_groups:
            nobody = type(named)("")
            nobody.groups = named.groups
            with self._noting(nobody) as files:
                self._of_groups[key] = self._manager.get_vars(host=nobody, include_hostvars=False)
            # The same for each host, and whole where nothing was wrong with those of the groups.
            self._of_files = files
        return self._of_groups[key]

    @contextlib.contextmanager
    def _noting(self, nobody: t.Any) -> t.Iterator[list[t.Callable[..., Variables]]]:
        """Yield what Ansible reads of files for a host, as calls that lack the host; read nothing for this one."""
        own = {name: getattr(_MANAGING, name) for name in ("get_vars_from_path", "get_vars_from_inventory_sources")}
        files: list[t.Callable[..., Variables]] = []

        def read(
            asked: t.Callable[..., Variables], loader: t.Any, where: t.Any, entities: t.Sequence[t.Any], stage: str
        ) -> Variables:
            if nobody not in entities:
                return asked(loader, where, entities, stage)
            files.append(functools.partial(asked, loader, where, stage=stage))
            return {}

        try:
            for name, asked in own.items():
                setattr(_MANAGING, name, functools.partial(read, asked))
            yield files
        finally:
            for name, asked in own.items():
                setattr(_MANAGING, name, asked)

    def around(self, host: str) -> Variables:
        """Return the same with those of the play, the role and the task, in Ansible's order:
        defaults of roles give way to the inventory.
        """
        return {**self._around, **self.variables_of(host), **self.of_play}

    @functools.cached_property
    def _around(self) -> Variables:
        # Made once for all hosts, which takes the time of one.
        values: Variables = self._manager.get_vars(play=self._task.get_play(), task=self._task, **self._play_hosts)
        return values

    @functools.cached_property
    def of_play(self) -> Variables:
        """The variables of the play, the role and the task, and extra ones, not templated;
        without defaults of roles.
        """
        roles = [*self._task.get_play().roles, *([self._task._role] if self._task._role else [])]
        defaults = [role.get_default_vars(dep_chain=self._task.get_dep_chain()) for role in roles]
        return {
            name: value
            for name, value in self._around.items()
            if not any(name in of_role and of_role[name] is value for of_role in defaults)
        }

    def templated(self, value: t.Any, variables: Variables) -> t.Any:
        """Return a value with its templates worked out, None for one that is omitted.

        Args:
            value: as the user wrote it.
            variables: from :meth:`variables_of` or :meth:`around`.

        Raises:
            AnsibleError: it needs what is not known.
        """
        if value is None or (
            isinstance(value, str | int | float) and not (isinstance(value, str) and _MARKS.search(value))
        ):
            # Most values, at each of thousands of hosts.
            return value
        # In a mapping what is omitted is left out; by itself newer releases of ansible-core refuse it.
        return self._template({"value": value}, variables).get("value")

    def _template(self, asked: Variables, variables: Variables) -> Variables:
        templated: Variables = Templar(self._loader, variables=variables).template(asked)
        return _without_omitted(templated, variables.get("omit"))

    def _worked_out(self, asked: Variables, variables: Variables, host: str) -> Variables:
        try:
            return self._template(asked, variables)
        except AnsibleError as error:
            raise _FAIL(f"{text.line(host, 100)}: {unknown(', '.join(asked), error)}") from None

    def origin(self, name: str, value: t.Any, of_inventory: t.Container[str]) -> str:
        """Return in words where a variable was set, such as ``extra variables`` or ``the inventory, hosts.yml:3``.

        Args:
            name: of the variable.
            value: of the variable, not templated.
            of_inventory: the names of its host's variables, from :meth:`variables_of`.
        """
        world = "extra variables" if name in self.extra else "the inventory" if name in of_inventory else "the play"
        where = place(value) or place(name)
        return f"{world}, {where}" if where and name not in self.extra else world

    def _facts_of(self, host: str) -> Variables:
        try:
            return self._facts.get(host) or {}
        except KeyError:
            return {}


def of_inventory(loader: t.Any) -> Variables:
    """Return the variables of the inventory's first host, not templated, where there is no task: the inventory is read
    once more. What is set for all hosts is the same for each.

    Args:
        loader: Ansible's loader of files.

    Raises:
        AnsibleError: they cannot be read.
    """
    inventory = _INVENTORY(loader, sources=list(_CONTEXT.CLIARGS.get("inventory") or ()))
    manager = _MANAGER(loader=loader, inventory=inventory)
    manager._fact_cache = _NoFacts()
    variables: Variables = {"hostvars": _HOSTVARS(inventory, manager, loader)}
    for host in inventory.get_hosts("all")[:1]:
        variables = manager.get_vars(host=host)
    return variables


def is_reserved(name: t.Any) -> bool:
    """Return whether no fact may have this name: it is one of a variable of this collection, or looks like one."""
    return (
        isinstance(name, str)
        and name not in _FACTS
        and name.startswith(("smt_", _PRIVATE))
        and bool(_reserved().fullmatch(name))
    )


@functools.cache
def _reserved() -> re.Pattern[str]:
    """Return what matches the names of variables: each begins with the name of a role or playbook, or with what several
    of them are about, or is private.
    """
    stems = {path.name for path in (_TOP / "roles").iterdir()} | {
        path.stem for path in (_TOP / "playbooks").glob("*.yml")
    }
    names = sorted(map(re.escape, {*stems, "smt_facts", "smt_reboot", "smt_slot"}))
    return re.compile(rf"{_PRIVATE}.*|(?:{'|'.join(names)})(?:_.*)?", re.DOTALL)


def unknown(names: str, error: AnsibleError | str) -> str:
    """Return a sentence for what only a host's facts would tell."""
    return (
        f"{names} cannot be worked out without facts of hosts, which decide nothing on the controller, also by way of"
        f" hostvars: {text.line(error, 500)}. Set what it takes from there in the inventory, in the play's vars or by"
        " -e"
    )


def place(value: t.Any) -> str | None:
    """Return the file and line where a value was set, or another word for its origin;
    None if Ansible does not know it.
    """
    if _ORIGIN is None:
        path, line, _column = getattr(value, "ansible_pos", None) or (None, None, None)
    else:
        origin = _ORIGIN.get_tag(value)
        path, line = (origin.path or origin.description, origin.path and origin.line_num) if origin else (None, None)
    return f"{path}:{line}" if path and line else path


def _without_omitted(values: Variables, omitted: t.Any) -> Variables:
    """Return a mapping without what ``omit`` left out, which ansible-core before 2.19 marks by a text."""
    return {
        name: _without_omitted(value, omitted) if isinstance(value, dict) else value
        for name, value in values.items()
        if omitted is None or not isinstance(value, str) or value != omitted
    }


def is_for_all(name: t.Any) -> bool:
    """Return whether a variable decides for other hosts, or what the controller reads, writes and sends."""
    # What users register, by the names of the examples, is no setting.
    is_setting = isinstance(name, str) and not name.endswith("_result") and name not in RESULTS
    return is_setting and bool(_FOR_ALL.fullmatch(name))


def _is_kept(name: t.Any) -> bool:
    """Return whether a variable of `set_fact` or `register` counts as the user's:
    those of the collection's own tasks do, and those with other names.
    """
    return not is_reserved(name) or name.startswith(_PRIVATE)


def _combined(*parts: Variables) -> Variables:
    """Return variables together, the later ones over the earlier ones, as Ansible is configured to do it."""
    return functools.reduce(_MANAGING.combine_vars, filter(None, parts))


def _named(kind: str, names: t.Sequence[str]) -> str:
    shown = ", ".join(text.line(name, 60) for name in names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"the {kind}{'s' if len(names) > 1 else ''} {shown}{more}"
