# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that users set: which of them nobody reads, and which have a value that cannot be used.

The variables of the roles are declared by their argument specifications, those of the playbooks alone by `PLAYBOOKS`.
"""

from __future__ import annotations

import difflib
import functools
import pathlib
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.options import ranges, smt_usage as of_usage
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import settings as consumer_settings
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import source as sibling_source
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import placement
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue as arm_catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import ArmError
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import settings as plan_settings
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    catalogue,
    command,
    custom,
    response_limit,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import WorkloadError
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import scope
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import settings as slot_settings
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import user_variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.credentials import secret, variables as access
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.options import variables as declared
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import names as compliance_sources
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure import quiet
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import boot_plan, reboot
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import (
    arm_states,
    settings as trial_settings,
)

Spec = dict[str, t.Any]

# Ansible's own class and function have no type hints.
_VALIDATOR: t.Any = ArgumentSpecValidator
_TRUTH: t.Callable[[t.Any], bool] = boolean

_ANY: Spec = {"type": "raw"}
_PATH: Spec = {"type": "path"}
# How the metrics server is reached: credentials, and what may have one in it, so no message shows what they are. They
# are in no argument specification, because Ansible shows the line where a value is that cannot be templated.
ACCESS_OF = {
    playbook: tuple(f"{beginning}{name}" for name in access.NAMES)
    for playbook, beginning in (("smt_trial", access.OF_TRIAL), ("smt_compliance", access.OF_COMPLIANCE))
}
ACCESS = tuple(name for names in ACCESS_OF.values() for name in names)
# The hours after which a host is silent: up to what a server keeps of most fleets.
MAX_AGE_HOURS = (0.1, 168)
PLAYBOOKS: dict[str, dict[str, Spec]] = {
    "smt_eval": {
        "smt_eval_hosts": _ANY,
        "smt_eval_sample": {"type": "int"},
        "smt_eval_serial": _ANY,
    },
    "smt_compare": {
        "smt_compare_better": {"type": "str", "choices": ["higher", "lower"]},
        "smt_compare_column": {"type": "str"},
        "smt_compare_confidence": {"type": "float"},
        "smt_compare_dest": _PATH,
        "smt_compare_margin": {"type": "float"},
    },
    "smt_exposure": {
        "smt_exposure_hosts": _ANY,
        "smt_exposure_page": _PATH,
        "smt_exposure_results": _PATH,
        "smt_exposure_seconds": {"type": "float"},
        "smt_exposure_textfile": _PATH,
        "smt_exposure_window_seconds": {"type": "float"},
        "smt_exposure_windows": {"type": "int"},
    },
    "smt_history": {
        "smt_history_checks": _PATH,
        "smt_history_margin": {"type": "float"},
        "smt_history_page": _PATH,
        "smt_history_results": _PATH,
    },
    "smt_proof": {
        "smt_proof_dest": _PATH,
        "smt_proof_hosts": _ANY,
        "smt_proof_run": {"type": "str"},
        "smt_proof_seconds": {"type": "int"},
        "smt_proof_switch": {"type": "bool"},
    },
    "smt_survey": {
        "smt_facts_sysroot": _PATH,
        "smt_survey_hosts": _ANY,
        "smt_survey_page": _PATH,
        "smt_survey_probe": {"type": "str", "choices": ["auto", "always", "never"]},
        "smt_survey_usage_seconds": {"type": "float"},
    },
    "smt_compliance": {
        "smt_compliance_files": {"type": "list", "elements": "path"},
        "smt_compliance_hosts": _ANY,
        "smt_compliance_json": _PATH,
        "smt_compliance_label": {"type": "str"},
        "smt_compliance_max_age": {"type": "float"},
        "smt_compliance_metrics": _PATH,
        "smt_compliance_history": _PATH,
        "smt_compliance_junit": _PATH,
        "smt_compliance_names": {"type": "dict"},
        "smt_compliance_page": _PATH,
        "smt_compliance_sarif": _PATH,
        "smt_compliance_source": {"type": "str", "choices": sorted(compliance_sources.ALL)},
        "smt_compliance_usage_seconds": {"type": "float"},
        **dict.fromkeys(ACCESS_OF["smt_compliance"], _ANY),
    },
    "smt_enforce": {
        "smt_enforce_health_check": _PATH,
        "smt_enforce_hosts": _ANY,
        "smt_enforce_max_fail_percentage": {"type": "float"},
        "smt_enforce_waves": {"type": "list", "elements": "str"},
        "smt_policy_group": _ANY,
    },
    "smt_trial": {"smt_trial_hosts": _ANY, **dict.fromkeys(ACCESS_OF["smt_trial"], _ANY)},
}
# The ranges of numbers; None where an end is open.
RANGES: dict[str, tuple[float | None, float | None]] = {
    **declared.RANGES,
    "smt_compare_confidence": (0.5, 0.9999),
    "smt_compliance_max_age": MAX_AGE_HOURS,
    "smt_enforce_max_fail_percentage": (0, 100),
    **{f"smt_exposure_{name}": ends for name, ends in of_usage.RANGES.items()},
    # 0 for no look.
    **dict.fromkeys(("smt_compliance_usage_seconds", "smt_survey_usage_seconds"), (0, of_usage.RANGES["seconds"][1])),
    "smt_eval_sample": (1, None),
    "smt_history_margin": (0, 0.99),
    "smt_proof_seconds": (60, 86400),
}
# What a value has to be that its type does not say, as the plan on the host checks it: functions that raise one of
# `_INVALID`.
_CHECKS: dict[str, t.Callable[[t.Any], object]] = {
    "smt_boot_maxcpus": lambda given: boot_arguments.maxcpus_value(str(given)),
    "smt_eval_arms": boot_plan.names,
    "smt_eval_cpus": plan_settings.on_cpus,
    "smt_eval_command": command.words,
    "smt_eval_custom": custom.declarations,
    "smt_eval_factors": lambda given: given and arm_catalogue.of_factors(given),
    "smt_eval_metric": lambda given: custom.declarations(command.entries("true", given)),
    "smt_eval_placements": plan_settings.check_placements,
    "smt_eval_response_limit": response_limit.times,
    "smt_eval_sample_seconds": functools.partial(plan_settings.seconds, "sample_seconds"),
    "smt_eval_settle_seconds": functools.partial(plan_settings.seconds, "settle_seconds"),
    "smt_eval_siblings": sibling_source.parse,
    "smt_eval_streams": plan_settings.of_streams,
    "smt_eval_wait_quiet": quiet.seconds,
    "smt_eval_workloads": catalogue.named,
    "smt_boot_consumers": consumer_settings.actions,
    "smt_runtime_consumers": consumer_settings.actions,
    "smt_runtime_cores": lambda given: scope.parse(given or None),
    "smt_runtime_siblings": sibling_source.parse,
    "smt_trial_arms": functools.partial(arm_states.names, with_boots=True),
    "smt_trial_consumers": consumer_settings.actions,
    "smt_trial_guardrails": trial_settings.guardrails,
    "smt_trial_metrics": trial_settings.metrics,
    "smt_trial_most_switched": lambda given: trial_settings.most_switched(given, 1),
}
_INVALID = (
    ArmError,
    arm_states.ArmStateError,
    boot_arguments.BootArgsError,
    boot_plan.BootPlanError,
    consumer_settings.ConsumerError,
    placement.PlacementError,
    quiet.QuietError,
    plan_settings.SettingsError,
    scope.ScopeError,
    sibling_source.SiblingsError,
    trial_settings.TrialSettingsError,
    WorkloadError,
)
# There is one of each for all hosts; those that a host alone can have differ.
ONE_FOR_ALL = (
    "smt_compliance_files",
    "smt_compliance_json",
    "smt_compliance_history",
    "smt_compliance_junit",
    "smt_compliance_label",
    "smt_compliance_max_age",
    "smt_compliance_metrics",
    "smt_compliance_names",
    "smt_compliance_page",
    "smt_compliance_sarif",
    "smt_enforce_max_fail_percentage",
    "smt_enforce_waves",
    "smt_eval_dest",
    "smt_eval_run",
    "smt_eval_serial",
    "smt_exposure_page",
    "smt_exposure_results",
    "smt_history_checks",
    "smt_history_margin",
    "smt_history_page",
    "smt_history_results",
    "smt_proof_dest",
    "smt_proof_run",
    "smt_proof_seconds",
    "smt_survey_page",
    "smt_trial_dest",
    "smt_trial_run",
    "smt_usage_results",
)
_ONE_REPORT = "smt_report_"
# Each host has a status for a bad value of these: `bad_policy`.
JUDGED_PER_HOST = ("smt_policy", "smt_policy_classes", "smt_policy_scope", "smt_policy_waiver")

_ROLES = pathlib.Path(__file__).parents[3] / "roles"
_TYPES = {
    "bool": "true or false",
    "dict": "a mapping",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "a text",
}
# A name without one of the prefixes is taken for a misspelt one only from this similarity on: users have variables of
# their own.
_SIMILAR = 0.86
MAX_HOSTS = 3


class VariablesError(Exception):
    """The declared variables cannot be read: the installation of the collection is incomplete."""


class Setting(t.NamedTuple):
    """A variable as one host has it.

    Attributes:
        host: the host.
        name: of the variable.
        value: of the variable.
        where: the place where it was set, or None where Ansible does not know it.
    """

    host: str
    name: str
    value: t.Any
    where: str | None = None


def known() -> dict[str, Spec]:
    """Return the variables that the collection reads or sets, each with its argument specification.

    Raises:
        VariablesError: an argument specification of a role cannot be read.
    """
    specs = dict.fromkeys(user_variables.RESULTS, _ANY)
    for playbook in PLAYBOOKS.values():
        specs.update(playbook)
    specifications = sorted(_ROLES.glob("*/meta/argument_specs.yml"))
    if not specifications:
        raise VariablesError(f"{_ROLES}: there are no roles with argument specifications: install the collection again")
    for path in specifications:
        try:
            entry_points = yaml_load(path.read_text(encoding="utf-8"))["argument_specs"]
        except OSError as error:
            raise VariablesError(f"{path}: {error.strerror}") from error
        for entry_point in entry_points.values():
            specs.update(entry_point.get("options") or {})
    return specs


def is_ours(name: t.Any, specs: t.Mapping[str, Spec]) -> bool:
    """Return whether a name is one of a variable of the collection, or looks like one.

    Args:
        name: of a variable.
        specs: from :func:`known`.
    """
    if not isinstance(name, str):
        return False
    lowered = name.lower()
    if not lowered.startswith(("smt_", "smt-")):
        return False
    return (
        lowered.startswith(prefixes(specs))
        or name in specs
        or difflib.SequenceMatcher(None, lowered, _nearest(lowered, specs)).ratio() >= _SIMILAR
    )


def prefixes(specs: t.Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes that only variables of the collection have: ``smt_eval_``, ``smt_policy_`` and the like.

    Args:
        specs: names from :func:`known`.
    """
    return tuple(sorted({"_".join(name.split("_")[:2]) + "_" for name in specs} - {"smt_facts_"}))


def problems(settings: t.Iterable[Setting], specs: t.Mapping[str, Spec], fleet: int) -> list[str]:
    """Return a sentence for each variable that nobody reads or whose value cannot be used.

    Args:
        settings: variables of the hosts for which :func:`is_ours` is true.
        specs: from :func:`known`.
        fleet: number of hosts of the play; a variable that all have is not followed by their names.
    """
    hosts: dict[str, list[str]] = {}
    judged: dict[tuple[str, str, str | None], str | None] = {}
    for setting in settings:
        key = (setting.name, repr(setting.value) if setting.name in specs else "", setting.where)
        if key not in judged:
            judged[key] = _problem(setting, specs)
        sentence = judged[key]
        if sentence:
            hosts.setdefault(sentence, []).append(setting.host)
    return [sentence + _of_hosts(names, fleet) for sentence, names in sorted(hosts.items())]


def differing(written: t.Iterable[Setting], hosts: t.Sequence[str]) -> list[str]:
    """Return a sentence for each variable of which there is one for all hosts, and that hosts have not alike.

    Args:
        written: variables of the inventory and extra ones, not templated.
        hosts: of the play, without those that are refused.
    """
    by_name: dict[str, dict[str, list[str]]] = {}
    for setting in written:
        if setting.name in ONE_FOR_ALL or setting.name.startswith(_ONE_REPORT):
            by_name.setdefault(setting.name, {}).setdefault(cpulist.quoted(setting.value), []).append(setting.host)
    sentences = []
    for name, values in sorted(by_name.items()):
        others = (
            [host for host in hosts if all(host not in of_value for of_value in values.values())]
            if sum(map(len, values.values())) < len(hosts)
            else []
        )
        named = [f"{value}{_of_hosts(of_value, len(hosts))}" for value, of_value in values.items()] + (
            [f"not set{_of_hosts(others, len(hosts))}"] if others else []
        )
        if len(named) > 1:
            sentences.append(
                f"{name} is {' but '.join(named)}: there is one for all hosts, so set it by -e, in the play's vars, or"
                " for the group all"
            )
    return sentences


def boot_problems(settings: t.Iterable[Setting], fleet: int) -> list[str]:
    """Return a sentence for each evaluation by boots that the variables do not allow, or that is not possible.

    Args:
        settings: as for :func:`problems`, which tells of values that cannot be used.
        fleet: number of hosts of the play.
    """
    values: dict[str, dict[str, t.Any]] = {}
    for setting in settings:
        values.setdefault(setting.host, {})[setting.name] = setting.value
    hosts: dict[str, list[str]] = {}
    for host, of_host in values.items():
        reason = _why_not_booted(of_host)
        if reason:
            hosts.setdefault(reason, []).append(host)
    return [sentence + _of_hosts(names, fleet) for sentence, names in sorted(hosts.items())]


def slot_problems(settings: t.Iterable[Setting], fleet: int) -> list[str]:
    """Return a sentence for each slot and window that hosts cannot ask for; arguments as for :func:`boot_problems`."""
    values: dict[str, dict[str, t.Any]] = {}
    for setting in settings:
        values.setdefault(setting.host, {})[setting.name] = setting.value
    hosts: dict[str, list[str]] = {}
    for host, of_host in values.items():
        try:
            reboot.of_values({**of_host, "smt_slot_timeout": None}, host)
        except slot_settings.SlotError as error:
            hosts.setdefault(str(error), []).append(host)
    return [sentence + _of_hosts(names, fleet) for sentence, names in sorted(hosts.items())]


def _why_not_booted(values: t.Mapping[str, t.Any]) -> str | None:
    try:
        asked = boot_plan.names(values.get("smt_eval_arms") or ["smt_on", "smt_off"])
        boots = int(values.get("smt_eval_boots") or 0)
        allowed = {kind.allowed_by for kind in arm_catalogue.kinds() if _TRUTH(values.get(kind.allowed_by) or False)}
        reboot_ok = _TRUTH(values.get("smt_boot_reboot_ok") or False)
    except (boot_plan.BootPlanError, TypeError, ValueError):
        return None
    factors, goal = values.get("smt_eval_factors"), values.get("smt_eval_goal")
    why = boot_plan.without_boots(factors, goal)
    if boots > 0 and why:
        given = "smt_eval_factors is set" if factors else f"smt_eval_goal is {goal}"
        return f"{given} and smt_eval_boots is {boots}: {why}; leave out one of the two"
    reason = boot_plan.refusal(asked, boots, reboot_ok, allowed) if boots >= 0 else None
    return reason and f"smt_eval_arms is {', '.join(asked)} and smt_eval_boots is {boots}: {reason}"


def _problem(setting: Setting, specs: t.Mapping[str, Spec]) -> str | None:
    where = f" (set in {setting.where})" if setting.where else ""
    if setting.name not in specs:
        return (
            f"{setting.name}{where} is not a variable of threadwise.smt; the nearest is"
            f" {_nearest(setting.name.lower(), specs)}"
        )
    # What is encrypted matters to whoever uses it, and others may lack the password.
    if setting.value is None or setting.name in JUDGED_PER_HOST or getattr(setting.value, "__ENCRYPTED__", False):
        return None
    if setting.name in (*ACCESS, "smt_pull_url"):
        return _unusable_secret(setting.name, setting.value, where)
    reason = _malformed(setting.name, setting.value, specs[setting.name])
    return reason and f"{setting.name} is {cpulist.quoted(setting.value)}{where}: {reason}"


def _unusable_secret(name: str, value: t.Any, where: str) -> str | None:
    try:
        secret.read(name, lambda: value)
    except secret.SecretError as error:
        return f"{error}{where}"
    return None


def _malformed(name: str, value: t.Any, spec: Spec) -> str | None:
    """Return what a value has to be, or None where it can be used."""
    expected = spec.get("type", "str")
    number = expected in ("int", "float") and isinstance(value, bool)
    nested = expected in ("str", "path") and isinstance(value, (list, dict))
    used = {key: spec[key] for key in ("type", "elements", "choices", "options") if key in spec}
    validated = _VALIDATOR({name: used}).validate({name: value})
    errors = validated.error_messages
    if not (errors or number or nested):
        return (
            ranges.problem(float(value), RANGES[name])
            if name in RANGES
            else _unusable(name, validated.validated_parameters[name])
        )
    if "options" in spec and isinstance(value, list):
        return "; ".join(errors)
    choices = [str(choice) for choice in spec.get("choices", ())]
    if choices:
        allowed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        return f"it must be a list of {allowed}" if expected == "list" else f"it must be {allowed}"
    return f"it must be {_TYPES.get(expected, expected)}"


def _unusable(name: str, value: t.Any) -> str | None:
    try:
        _CHECKS.get(name, str)(value)
    except _INVALID as error:
        return str(error)
    return None


def _nearest(name: str, specs: t.Iterable[str]) -> str:
    longer = [variable for variable in specs if variable.startswith(name)]
    return min(longer, key=len) if longer else difflib.get_close_matches(name, sorted(specs), n=1, cutoff=0.0)[0]


def _of_hosts(names: t.Sequence[str], fleet: int) -> str:
    if len(set(names)) >= fleet:
        return ""
    more = f" and {len(names) - MAX_HOSTS} more" if len(names) > MAX_HOSTS else ""
    return f" [{', '.join(names[:MAX_HOSTS])}{more}]"
