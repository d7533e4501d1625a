# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about a host that is not as its policy wants it: the command to give, or the variable to set."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import json
import re
import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text as border_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import rollout, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status

# Where an evaluation puts its results, and where the policy looks for them.
DESTINATION, RESULTS = "smt_eval_dest", "smt_policy_results"
# A longer command is not shown: cut, it would be about other hosts.
MAX_COMMAND = 2000
# Ansible splits patterns at white space, commas and colons, and takes some first characters for what to do with a
# pattern; the shell has others for options.
_ALONE = re.compile(r"[^\s,:!&@~\\\[\]-][^\s,:\\\[\]]*")


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a playbook.

    Attributes:
        limit: what ``--limit`` said; None without it.
        inventory: its sources, those below the working directory as from there.
        variables: its extra variables that other playbooks of the collection read too.
        own: names of its other extra variables, which can decide what such a playbook does.
        connecting: its words that say as whom and how it connects.
        error: why it checked no host; None where it did.
    """

    limit: str | None = None
    inventory: tuple[str, ...] = ()
    variables: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    own: tuple[str, ...] = ()
    connecting: tuple[str, ...] = ()
    error: str | None = None

    @property
    def sources(self) -> list[str]:
        """The sources of the inventory as they can be shown."""
        return [border_text.showable(source) for source in self.inventory]

    def play(self, name: str, hosts: t.Sequence[str], *more: str, without: t.Container[str] = ()) -> str:
        """Return the command that calls a playbook of the collection for some hosts as this call was made, in words
        where no command can be shown that is about these hosts alone.

        Args:
            name: of the playbook.
            hosts: their names.
            more: further words of the command.
            without: names of variables that are left out.
        """
        passed = {key: value for key, value in self.variables.items() if key not in without}
        playbook = f"threadwise.smt.{name}"
        try:
            variables = ["-e", json.dumps(passed, ensure_ascii=False, default=_day)] if passed else []
        except (TypeError, ValueError):
            # One that is encrypted stays so.
            return self._in_words(playbook, hosts, *more)
        command = self._command(["ansible-playbook", "-b", playbook, *variables], hosts, *more)
        return (not self.own and command) or self._in_words(playbook, hosts, *more)

    def evaluate(self, hosts: t.Sequence[str]) -> str:
        """Return the same for an evaluation whose results the policy then finds."""
        results = self.variables.get(RESULTS)
        if isinstance(results, str):
            return self.play("smt_eval", hosts, "-e", json.dumps({DESTINATION: results}, ensure_ascii=False))
        return f"{self.play('smt_eval', hosts)}, with {DESTINATION} set to the directory of {RESULTS}"

    def ping(self, host: str) -> str:
        """Return the same for the command that sees whether a host answers."""
        module = "ansible.builtin.ping"
        return self._command(["ansible", "all", "-m", module], [host]) or self._in_words(module, [host])

    def _command(self, words: t.Sequence[str], hosts: t.Sequence[str], *more: str) -> str | None:
        sources = [word for source in self.inventory for word in ("-i", source)]
        command = shlex.join([words[0], *sources, *self.connecting, *words[1:], "--limit", ",".join(hosts), *more])
        can_be_shown = len(command) <= MAX_COMMAND and "\n" not in command and border_text.showable(command) == command
        return command if can_be_shown and all(map(is_alone, hosts)) else None

    def _in_words(self, what: str, hosts: t.Sequence[str], *more: str) -> str:
        with_more = f", {shlex.join(more)}" if more else ""
        if len(hosts) > 1:
            whom = f"--limit @FILE, a file with the names of the {len(hosts)} hosts that decided, a line each"
            why = "the command is too long to be shown"
        elif is_alone(hosts[0]):
            whom = f"--limit {shlex.quote(hosts[0])}"
            why = "the whole command cannot be shown here; ANSIBLE_INVENTORY can name the inventory"
        else:
            whom = "--limit @FILE, a file with its name as a line"
            why = "a pattern of this name selects other hosts"
        if self.own:
            why = f"its own {', '.join(self.own)} can decide what is done"
        return f"{what} with the inventory and the extra variables of this check{with_more} and {whom} ({why})"


def is_alone(host: str) -> bool:
    """Return whether a pattern that is the name of a host selects this host and no other."""
    try:
        return bool(_ALONE.fullmatch(host)) or ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def _day(value: t.Any) -> str:
    """Return a day of YAML as JSON has it."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def text(host: str, result: Compliance, call: Call) -> str | None:
    """Return what to do about a host; None where nothing is to be done.

    Args:
        host: its name.
        result: its status.
        call: the call that found it.
    """
    if result.status is Status.COMPLIANT:
        return _of_compliance(host, result, call)
    if result.status is Status.WAIVED:
        return _after_its_waiver("put the policy in force", host, call)
    if result.status is Status.DRIFTED:
        return _of_drift(host, result, call)
    if result.status is Status.UNREACHABLE:
        return f"See why it does not answer: {call.ping(host)}"
    if result.status.row.remedy:
        return result.status.row.remedy
    return (
        f"Evaluate a host of its class ({call.evaluate([host])}), or set smt_policy to a state for it."
        if result.undecided
        else f"See what it says of itself: {call.play('smt_survey', [host])}"
    )


def _of_compliance(host: str, result: Compliance, call: Call) -> str | None:
    if result.pending_rollback is not None and not result.pending_change:
        # Where the host is not healthy, it is brought back by that, and a waiver lets nothing change it.
        if result.is_excused:
            return _after_its_waiver("have the interrupted rollout finished", host, call)
        return f"Have the interrupted rollout finished: {call.play('smt_enforce', [host])}"
    measure = result.decision and result.decision.measure
    return f"Measure its hardware class again: {call.evaluate(measure)}" if measure else None


def _after_its_waiver(what: str, host: str, call: Call) -> str:
    enforce = call.play("smt_enforce", [host], without=(waivers.VARIABLE,))
    return f"Nothing before its waiver ends. Then remove {waivers.VARIABLE}, and {what}: {enforce}"


def _of_drift(host: str, result: Compliance, call: Call) -> str:
    if result.pending_change:
        return "Confirm the change that waits, or wait until it is rolled back; then check again."
    blocked = rollout.blocked_by(result, reboot_ok=True)
    if blocked:
        is_memory = any(aspect and aspect.blocked_by == blocked for aspect in (result.memory, result.memory_configured))
        set_what = "set its smt_memory_* variables otherwise" if is_memory else "set another smt_policy for it"
        return f"It cannot be changed ({blocked}): {set_what}, or waive it by {waivers.VARIABLE}."
    if result.needs_reboot:
        enforce = call.play("smt_enforce", [host], "-e", "smt_policy_reboot_ok=true")
        return f"Put the policy in force, with a reboot: {enforce}"
    return f"Put the policy in force: {call.play('smt_enforce', [host])}"
