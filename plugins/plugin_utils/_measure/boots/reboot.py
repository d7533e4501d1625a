# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reboot as a controller makes it: by Ansible's own action, with a slot where one is asked for, and with a look at
what the boot has brought.

The slot is taken before and given back after by a module of the host, which keeps it in a file: a controller that dies
at any moment leaves what the next run reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import secrets
import time
import typing as t

from ansible.errors import AnsibleError
from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import record, request, settings, window
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal, time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import HostLostError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.user_variables import UserVariables
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.answers import BootArgsAnswer, SlotAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Slot

# Time for a host to boot and for its controller to find it again.
MIN_SECONDS = 600
DEFAULT_TIMEOUT = 1800
# Between two attempts to get a slot, half of it more or less: hosts that wait for one do not ask at the same moment.
PAUSE_SECONDS = 30.0
# Between two lines that say the same.
LINE_SECONDS = 300.0
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

display = terminal.Terminal()


class SwitchError(Exception):
    """The host cannot be put into an arm, or is not in it."""


class NoSlotError(SwitchError):
    """The host may not be rebooted now, and was not; the message says why."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the user wants of reboots of a host.

    Attributes:
        slot: whom it asks; None for nobody.
        group: of the host.
        window: the hours in which it may be rebooted, as the user wrote them.
        alerts: those that forbid it, as the user wrote them.
        timeout: seconds for which it waits.
    """

    slot: settings.Slot | None = None
    group: str = settings.DEFAULT_GROUP
    window: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    alerts: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    timeout: int = DEFAULT_TIMEOUT

    @property
    def asked(self) -> dict[str, t.Any]:
        """The options by which a module of the host asks; empty where nothing is to be asked."""
        if self.slot is None and not self.window and not self.alerts:
            return {}
        slot = self.slot.plain if self.slot else {}
        return {"slot": slot, "group": self.group, "window": self.window, "alerts": self.alerts}


NOTHING = Wanted()
_PARSED: dict[str, t.Callable[[t.Any], t.Any]] = {
    "smt_slot": settings.parse,
    "smt_reboot_window": window.parse,
    "smt_reboot_alerts": request.parse_alerts,
}


def held(of_user: Wanted, host: str, slot_held: Slot) -> str:
    """Return the sentence about a slot that a host says it holds, with the way to release it.

    Whom a slot was asked of is what the user wrote: a command that came from a host is not shown to anybody who may
    copy it.

    Args:
        of_user: what the user wants of reboots of the host.
        host: its name.
        slot_held: from the host.
    """
    shown, slot = text.line(host, 100), of_user.slot
    verb = "holds a slot" if slot_held.granted else "has asked for a slot"
    since = f"since {text.line(slot_held.since, 100)}"
    if slot is None or slot.kured:
        return (
            f"{shown} {verb} {since}, and smt_slot names nobody here who gave it: set it as it was, or release the slot"
            f" where it was asked for and remove /{record.FILE.path} on the host"
        )
    return f"{shown} {verb}{_at(of_user)} {since}: {_released_by(of_user, host)}"


def _at(of_user: Wanted) -> str:
    slot = t.cast(settings.Slot, of_user.slot)
    return f"{f' of the group {of_user.group}' if slot.fleetlock else ''} at {text.line(slot.shown, 300)}"


def _released_by(of_user: Wanted, host: str) -> str:
    command = settings.release_command(t.cast(settings.Slot, of_user.slot), of_user.group, host)
    return f"the next run that finds it well gives it back; by hand: {command}"


def wanted(user: UserVariables, host: str) -> Wanted:
    """Return what the user wants of reboots of a host.

    Raises:
        SlotError: one of the variables cannot be used.
    """
    given = {name: user.value(name, host) for name in (*_PARSED, "smt_slot_timeout", "smt_policy_group")}
    return of_values(given, host)


def of_values(given: t.Mapping[str, t.Any], host: str) -> Wanted:
    """Return the same of variables by their names; raises as `wanted` does."""
    group = str(given.get("smt_policy_group") or settings.DEFAULT_GROUP)
    values = {}
    for name, parse in _PARSED.items():
        try:
            values[name] = parse(given.get(name))
        except settings.SlotError as error:
            raise settings.SlotError(f"{name}: {error}") from None
    slot = t.cast("settings.Slot | None", values["smt_slot"])
    if slot is not None:
        settings.check(slot, group, host)
    hours, forbidding = (given.get(name) or {} for name in ("smt_reboot_window", "smt_reboot_alerts"))
    try:
        seconds = int(given.get("smt_slot_timeout") or DEFAULT_TIMEOUT)
    except (TypeError, ValueError):
        raise settings.SlotError("smt_slot_timeout: it must be a number of seconds") from None
    return Wanted(slot, group, dict(hours), dict(forbidding), seconds)


class Reboot:
    """The reboots of a host by one task.

    Args:
        calls: to the host.
        seconds: the time limit of a reboot, and of a call that looks at boot arguments.
        message: the message to users of the host.
        of_user: what the user wants.
    """

    def __init__(self, calls: time_limits.Calls, seconds: int, message: str, of_user: Wanted) -> None:
        self._calls, self._seconds, self._message, self._wanted = calls, seconds, message, of_user
        self._owner = secrets.token_hex(8)
        # By which it holds its slot; and as it is shown.
        self._name = str(calls.task_vars.get("inventory_hostname"))
        self._host = text.line(self._name, 100)
        self._is_held = False

    def would_take(self) -> str:
        """Return what would be asked for a reboot, and what forbids it now; empty where nothing would be asked."""
        if not self._wanted.asked:
            return ""
        answer = self._ask("acquired", check_mode=True)
        is_late = answer.wait_seconds > self._wanted.timeout
        late = f", later than smt_slot_timeout ({self._wanted.timeout} s), and it would fail" if is_late else ""
        return f"{answer.msg}{late}"

    def take(self, on_wait: t.Callable[[], None] = lambda: None) -> bool:
        """Wait until the host may be rebooted; return False where somebody else reboots it.

        Args:
            on_wait: what is done between two attempts.

        Raises:
            NoSlotError: it may not.
            HostLostError: it does not answer.
        """
        if not self._wanted.asked:
            return True
        since, begun, last_reason, shown_at = host_text.utc_now(), time.monotonic(), "", 0.0
        while True:
            answer = self._ask("acquired")
            waited = time.monotonic() - begun
            if answer.granted or answer.handed_over:
                if last_reason:
                    display.display(f"{self._host}: it may be rebooted, after {waited:.0f} s.")
                self._is_held = answer.granted
                return self._is_held
            reason = text.line(answer.msg, 1000)
            left = self._wanted.timeout - waited
            if left <= 0 or answer.wait_seconds > left:
                raise self._no_slot(f"it has waited since {since}, for smt_slot_timeout at most: {reason}")
            if last_reason != reason or waited >= shown_at + LINE_SECONDS:
                display.display(
                    f"{self._host}: waits for its reboot since {since}, {left:.0f} s more at most: {reason}."
                )
                last_reason, shown_at = reason, waited
            on_wait()
            if not terminal.wait_while_read(min(left, PAUSE_SECONDS * random.uniform(0.5, 1.5))):
                raise self._no_slot(terminal.NOBODY_READS)

    def give_back(self) -> None:
        """Give back the slot that the host holds; a server that does not take it is a warning, and the host keeps it.

        Raises:
            HostLostError: the host does not answer.
        """
        if self._is_held:
            try:
                self._calls.ask(SlotAnswer, "smt_slot", {"state": "released", "owner": self._owner}, MIN_SECONDS)
                self._is_held = False
            except HostFailedError as failure:
                display.warning(text.line(failure, 2000) + self.kept())

    def kept(self) -> str:
        """Return the sentence that says that the host keeps its slot; empty where it holds none."""
        if self._wanted.slot is None or not self._is_held:
            return ""
        return f". {self._host} keeps its slot{_at(self._wanted)}: {_released_by(self._wanted, self._name)}"

    def _ask(self, state: str, check_mode: bool = False) -> SlotAnswer:
        given = {**self._wanted.asked, "state": state, "host": self._name, "owner": self._owner}
        try:
            return self._calls.ask(SlotAnswer, "smt_slot", given, MIN_SECONDS, check_mode)
        except HostFailedError as failure:
            raise self._no_slot(text.line(failure, 2000)) from None

    def _no_slot(self, reason: str) -> NoSlotError:
        """Give up what was asked for; return the error that says why."""
        more = ""
        try:
            left = self._calls.ask(SlotAnswer, "smt_slot", {"state": "abandoned", "owner": self._owner}, MIN_SECONDS)
            more = f". {held(self._wanted, self._name, left.holds)}" if left.holds else ""
        except (HostFailedError, HostLostError) as failure:
            more = f". {text.line(failure, 2000)}"
        slot = self._wanted.slot
        way_out = ""
        if slot is not None and slot.fleetlock and not more:
            way_out = (
                ". Its server knows who holds the slots of the group; one of a host that is gone is released by its"
                f" name, HOST: {settings.release_command(slot, self._wanted.group, 'HOST')}"
            )
        return NoSlotError(f"{self._host} is not rebooted: {reason}{more}{way_out}")

    def verify(self, options: dict[str, t.Any]) -> None:
        """See that the host runs with the arguments that options of smt_boot_args ask for; raises SwitchError."""
        answer = self.ask(BootArgsAnswer, "smt_boot_args", dict(options), check_mode=True)
        if answer.differences or answer.reboot_required or answer.changed:
            running, configured = (
                text.line(" ".join(found) or "none", 300) for found in (answer.running, answer.configured)
            )
            raise SwitchError(
                "it was rebooted and does not have the requested state:"
                f" {text.line('; '.join(answer.differences) or 'another boot would', 500)}. The running kernel has"
                f" {running}, configured are {configured}. Check whether the host booted an entry that"
                f" {text.line(answer.loader)} did not write, or the kernel interpreted the arguments differently"
            )

    def ask(
        self, kind: type[answers.Kind], module: str, arguments: dict[str, t.Any], check_mode: bool = False
    ) -> answers.Kind:
        """Call a module; raises SwitchError where it fails, and HostLostError."""
        try:
            return self._calls.ask(kind, module, arguments, max(self._seconds, MIN_SECONDS), check_mode)
        except (HostFailedError, AnsibleError) as failure:
            raise SwitchError(text.line(failure, 2000)) from None

    def run(self) -> None:
        """Reboot the host, and wait until it is in another boot; raises HostLostError."""
        before, end = self._boot_id(), time.monotonic() + self._seconds
        action = self._calls.action
        task = action._task.copy()
        task.args = {"reboot_timeout": self._seconds, "msg": self._message}
        plugin = action._shared_loader_obj.action_loader.get(
            "ansible.builtin.reboot",
            task=task,
            connection=action._connection,
            play_context=action._play_context,
            loader=action._loader,
            templar=action._templar,
            shared_loader_obj=action._shared_loader_obj,
        )
        try:
            answer = plugin.run(task_vars=self._calls.task_vars)
            # The directory of this task's modules may not have outlived the reboot.
            action.cleanup()
        except AnsibleError as error:
            raise HostLostError(f"it did not come back from a reboot: {text.line(error, 300)}") from error
        if answer.get("failed"):
            what = "did not come back from a reboot" if answer.get("rebooted") else "was not rebooted"
            raise HostLostError(f"it {what}: {text.line(answer.get('msg'), 300)}")
        # What a host says that shuts down can be taken for another boot.
        while self._boot_id() in (None, before):
            if time.monotonic() > end:
                raise HostLostError(
                    f"it did not come back from a reboot: it is in the same boot after {self._seconds} s"
                )
            time.sleep(time_limits.PAUSE_SECONDS)

    def _boot_id(self) -> str | None:
        with contextlib.suppress(HostLostError):
            match = _ID.search(str(self._calls.run(_BOOT_ID).get("stdout")))
            return match and match[0]
        return None
