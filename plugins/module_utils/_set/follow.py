# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Consumers that follow a change of CPUs: what is done to which service, and whether it worked."""

import math
import os
import re
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    durable,
    kernel_files,
    processes,
    text as host_text,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import (
    find,
    history,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base

# What systemd gives a service for its start where its unit says nothing (DefaultTimeoutStartSec, 90 s), and a bit more:
# then systemd says what was wrong.
ACTION_SECONDS = 100.0
# Between two looks at a service that was restarted.
LOOK_SECONDS = 0.5
UNIT = "{unit}"
MAX_SENTENCES = 20

RunCommand = t.Callable[[t.List[str]], t.Tuple[int, str, str]]


class Step(t.NamedTuple):
    """What is done to one service.

    Attributes:
        service: its name.
        command: the command that makes it right.
        counted: what it has, and for how many CPUs, for people.
        gets: the number of CPUs that it has then.
        is_wrong: whether it still believes in the other number after the command, which began at so many ticks.
        kind: the kind of its consumer; empty for one that a user declares.
        removes: files that are removed while it is stopped, below the root.
        settle_seconds: how long it may take until it is right.
    """

    service: str
    command: "tuple[str, ...]"
    counted: str
    gets: int
    is_wrong: "t.Callable[[float], bool]"
    kind: str = ""
    removes: "tuple[str, ...]" = ()
    settle_seconds: float = base.SETTLE_SECONDS

    @property
    def does(self) -> str:
        """The command, for people."""
        without = f" without {', '.join(f'/{path}' for path in self.removes)}" if self.removes else ""
        return host_text.printable(" ".join(self.command) + without, 200)


def run(argv: "list[str]") -> "tuple[int, str, str]":
    """Run a command of a change, and give it up after `ACTION_SECONDS`."""
    return processes.run(argv, ACTION_SECONDS)


class Consumers:
    """The consumers of a host in a change.

    Args:
        host: the host.
        chosen: which follow.
        run_command: runs a command, and gives it up after a time.
        pause: waits.
    """

    def __init__(
        self,
        host: kernel_files.KernelFiles,
        chosen: consumer_settings.Settings,
        run_command: RunCommand,
        pause: "t.Callable[[float], object]" = time.sleep,
    ) -> None:
        self._host, self._chosen, self._run, self._pause = host, chosen, run_command, pause
        self._seen: dict[base.Online, list[find.Found]] = {}

    def warnings(self, online: base.Online, is_before: bool) -> "list[str]":
        """Return who is wrong, or will be, and does not follow: one sentence each.

        Args:
            online: the CPUs.
            is_before: whether a change to them comes.
        """
        sentences = [
            f"{entry.consumer.process.title} has {entry.counted}, and {'will have' if is_before else 'now has'}"
            f" {entry.consumer.gets}: {self._remedy(entry)}"
            for entry in self._wrong(online)
            if self._command(entry) is None and self._chosen.actions.get(entry.kind.name) != consumer_settings.NONE
        ]
        shown = list(dict.fromkeys(sentences))
        more = len(shown) - MAX_SENTENCES
        return [*shown[:MAX_SENTENCES], *([f"{more} more programs count CPUs when they start"] if more > 0 else [])]

    def steps(self, online: base.Online) -> "list[Step]":
        """Return what is to be done to the services that follow, one step for each.

        Raises:
            consumer_settings.ConsumerError: a user's command does not say how many CPUs its consumer believes in.
        """
        by_service: dict[str, Step] = {}
        for entry in self._wrong(online):
            command, service = self._command(entry), entry.consumer.process.service
            if command is not None and service is not None and not self._is_stopped(entry.consumer.process):
                is_wrong = self._still(entry.kind, service, online)
                more = (entry.kind.name, entry.consumer.removes, entry.kind.settle_seconds)
                step = Step(service, command, entry.counted, entry.consumer.gets, is_wrong, *more)
                by_service.setdefault(service, step)
        for custom in self._chosen.custom if online.earlier else ():
            before, now = len(online.earlier[-1][1]), len(online.now)
            for service in self._services(custom.unit):
                if before != now and self._number(custom, service) == before:
                    by_service.setdefault(service, self._custom_step(custom, service, before, now))
        return [by_service[service] for service in sorted(by_service)]

    def back(self, online: base.Online, planned: "t.Sequence[Step]" = ()) -> "list[str]":
        """Make right, after a change was undone, whoever followed it.

        Args:
            online: the CPUs.
            planned: the steps of the change, which may have ended between stopping a service and starting it.

        Returns:
            what does not work, a sentence each, for which nobody tries again
        """
        try:
            steps = self.steps(online)
        except consumer_settings.ConsumerError as error:
            return [affinity.Harmless(str(error))]
        followed = {step.service for step in steps}
        stopped = [
            step for step in planned if step.removes and step.service not in followed and not self._is_active(step)
        ]
        return [
            affinity.Harmless(problem)
            for problem in self.follow([*steps, *(step._replace(gets=len(online.now)) for step in stopped)])
        ]

    def follow(self, steps: "t.Iterable[Step]") -> "t.Iterator[str]":
        """Carry out steps one after the other, and yield of each that does not work a sentence."""
        for step in steps:
            begun = history.ticks()
            status, _output, errors = self._carry_out(step)
            if status:
                message = host_text.printable(" ".join(errors.split()), 300)
                yield (
                    f"{step.service} does not follow: {step.does} "
                    + (f"ended with status {status}: {message}" if message else f"ended with status {status}")
                )
            elif not self._settles(step, begun):
                yield (
                    f"{step.service} does not follow: {step.settle_seconds:g} s after {step.does} it is not active with"
                    f" {step.gets} CPUs (it had {step.counted})"
                )

    def _carry_out(self, step: Step) -> "tuple[int, str, str]":
        if not step.removes:
            return self._run(list(step.command))
        answer = self._run(["systemctl", "stop", step.service])
        for path in step.removes if answer[0] == 0 else ():
            try:
                durable.unlink(os.path.join(self._host.sysroot, path))
            except FileNotFoundError:
                continue
            except OSError as error:
                return 1, "", f"/{path}: {error.strerror}"
        return self._run(["systemctl", "start", step.service]) if answer[0] == 0 else answer

    def _settles(self, step: Step, begun: float) -> bool:
        """Wait until a service is active and right, at two looks in a row."""
        right, end = 0, time.monotonic() + step.settle_seconds
        while right < 2:
            right = right + 1 if self._is_active(step) and not step.is_wrong(begun) else 0
            # On a host with very many processes a look takes seconds.
            if right == 0 and time.monotonic() > end:
                return False
            self._pause(LOOK_SECONDS)
        return True

    def _is_active(self, step: Step) -> bool:
        return self._run(["systemctl", "is-active", "--quiet", step.service])[0] == 0

    def _is_stopped(self, process: base.Process) -> bool:
        """Return whether somebody has stopped a service: one that does not stay is activating or failed."""
        if process.pid or process.service is None:
            return False
        return self._run(["systemctl", "is-active", process.service])[1].strip() == "inactive"

    def _command(self, entry: find.Found) -> "tuple[str, ...] | None":
        """Return what makes a consumer right; None where nothing was asked for, or where it is no service."""
        action = self._chosen.actions.get(entry.kind.name, consumer_settings.NONE)
        service = entry.consumer.process.service
        return None if action == consumer_settings.NONE or service is None else ("systemctl", action, service)

    def _remedy(self, entry: find.Found) -> str:
        """Return what its user has to do."""
        is_asked_for = entry.kind.name in self._chosen.actions
        return f"{'it is no service of the system, and is left alone: ' if is_asked_for else ''}{entry.kind.remedy}"

    def _wrong(self, online: base.Online) -> "list[find.Found]":
        """Return who is wrong; a host with very many processes is read once."""
        if online not in self._seen:
            self._seen[online] = find.wrong(self._host, online)
        return self._seen[online]

    def _still(self, kind: base.Kind, service: str, online: base.Online) -> "t.Callable[[float], bool]":
        """Return what tells whether a service is still wrong."""

        def is_wrong(begun: float) -> bool:
            # A number that is seen is compared whenever the process was started: one that somebody chose stays.
            until = math.inf if kind.shows_number else begun
            # Without a change of ours in this boot somebody else has made one, and the consumer shows that by itself.
            seen = base.Online(online.now, tuple((until, cpus) for _until, cpus in online.earlier[-1:]))
            return any(
                entry.kind is kind and entry.consumer.process.service == service
                for entry in find.wrong(self._host, seen)
            )

        return is_wrong

    def _custom_step(self, custom: consumer_settings.Custom, service: str, before: int, now: int) -> Step:
        def is_wrong(_begun: float) -> bool:
            try:
                return self._number(custom, service) != now
            except consumer_settings.ConsumerError:
                return True

        command = _filled(custom.remedy, service)
        return Step(service, command, f"the number {before} by its own command", now, is_wrong)

    def _services(self, pattern: str) -> "list[str]":
        """Return the running services whose names match a pattern."""
        options = ("--type=service", "--state=running", "--plain", "--no-legend", "--full")
        _status, output, _errors = self._run(["systemctl", "list-units", *options, "--", pattern])
        names = (line.split()[:1] for line in output.splitlines())
        return [name for words in names for name in words if find.SERVICE.match(name)]

    def _number(self, custom: consumer_settings.Custom, service: str) -> int:
        """Return how many CPUs a user's consumer believes in."""
        command = _filled(custom.number, service)
        status, output, errors = self._run(list(command))
        if status or not re.match(r"[0-9]{1,6}\Z", output.strip()):
            message = host_text.printable(" ".join((output or errors).split()), 200)
            raise consumer_settings.ConsumerError(
                f"the number of {service} is not known: {host_text.printable(' '.join(command), 200)} has to print a"
                f" number, ended with status {status} and said {message!r}"
            )
        return int(output)


def _filled(command: "t.Iterable[str]", service: str) -> "tuple[str, ...]":
    return tuple(word.replace(UNIT, service) for word in command)
