# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of what a host keeps through changes, confirmations, rollbacks, reboots and other people's changes."""

import dataclasses
import typing as t

import hypothesis
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from hypothesis import stateful, strategies

# What may be left on a host that was never changed, or is back in its first state.
LEFT = {"topology.json", "seen-cores.json", "watchdog.log", "rolled-back.json", "rollback.pyz"}
CHANGES = {
    "off": {"state": "disabled"},
    "on": {"state": "enabled"},
    "two": {"threads": 2},
    "part": {"state": "disabled", "cores": {"cpus": "4-7"}},
    "one by one": {"state": "disabled", "method": "cpu_online"},
    "restored": {"state": "restored"},
}
# A fault, and before which write of the call it comes.
FAULTS = strategies.one_of(
    strategies.none(),
    strategies.tuples(strategies.sampled_from(["killed", "full"]), strategies.integers(0, 45)),
    strategies.just(("no systemd-run", 0)),
)


@dataclasses.dataclass(frozen=True)
class Seen:
    """All that a change may change."""

    cpu: dict  # CPUs and smt/control
    files: dict  # path of a file that keeps a setting -> its text, or whether it is there
    saved: dict | None  # the snapshot
    pending: dict | None  # the rollback that is pending
    left: frozenset[str]  # files of the collection's state
    half: tuple[str, ...]  # files that a killed process left half written

    def lasting(self):
        """The same but for when it was written, and by whom."""
        before = self.pending and self.pending["snapshot"]
        pending = self.pending and (self.pending["cpu"], before and before["cpu"])
        return self.cpu, self.files, self.saved and self.saved["cpu"], pending


@dataclasses.dataclass(frozen=True)
class Answer:
    """What became of a request: its result, why it was refused, or that it was killed, and if all was done by then."""

    result: dict | None = None
    refused: str | None = None
    was_done: bool = False


class OrderedHost:
    """A host of eight CPUs, 0 and 1 on one core, that carries out the steps of an order.

    It has ``seen()``; ``ask(request, fault)`` -> Answer, ``roll_back(fault)`` at the time of a pending rollback, both
    without a fault and with room on the disk afterwards; ``switch(cpu, up)`` as somebody else does, with no harm where
    the kernel refuses; ``reboot()``; ``frame()``, the run-time state as a rollout saves it; and ``end()``.
    """


class Order(stateful.RuleBasedStateMachine):
    """An order of steps on one host, and what the model knows of it."""

    make: t.ClassVar[t.Callable[[], OrderedHost]]

    def __init__(self):
        super().__init__()
        self.host = type(self).make()
        self.first = None  # CPUs online before the first change
        self.before = None  # (CPUs online, first state, what is asked) before a change that is not confirmed
        self.saved_frame = None
        self.was_killed, self.was_booted = False, False

    def teardown(self):
        self.host.end()

    @staticmethod
    def settings(files):
        return {path: text for path, text in files.items() if text and ".wants" not in path}

    def online(self):
        return self.host.seen().cpu["online"]

    @stateful.invariant()
    def nothing_is_lost(self):
        seen = self.host.seen()
        assert (seen.saved and seen.saved["cpu"]["online"]) == self.first
        assert (seen.pending and seen.pending["cpu"]["online"]) == (self.before and self.before[0])
        if self.first is None and self.before is None and not self.was_booted:
            assert seen.left <= LEFT
        # What a killed process leaves half written, the next one removes.
        assert self.was_killed or not seen.half

    # What happens -----------------------------------------------------------------------------------------------------
    def ask(self, fault, **request):
        """Return the result of a request that was carried out. Whatever comes, it was or it was not."""
        before = self.host.seen()
        answer = self.host.ask(request, fault)
        after = self.host.seen()
        if answer.result is not None:
            self.was_killed = self.was_killed and not answer.result["changed"]
            return answer.result
        if answer.refused is not None:
            assert fault or request.get("confirm"), answer.refused
            assert after.lasting() == before.lasting(), f"{answer.refused}, and it was not undone"
            return None
        self.was_killed = True
        ended = before.pending is not None and after.pending is None
        if answer.was_done or ended:
            # It died when all was done but what tidies up.
            return {"rollback_pending": after.pending is not None, "rollback_ended": ended}
        assert after.lasting() == before.lasting()
        return None

    def follow(self, asked, result, was_online, had_first):
        """What the model knows after a change."""
        if result is None:
            return
        now = self.online()
        moved = now != was_online
        self.first = had_first if had_first is not None else was_online if moved else None
        if result["rollback_pending"]:
            self.before = (*(self.before or (was_online, had_first))[:2], asked)
        else:
            self.before = None
            if asked.get("state") == "restored" or (self.first == now and (moved or result.get("rollback_ended"))):
                self.first = None
        self.what_is_new_may_be_lost(result, had_first)

    def what_is_new_may_be_lost(self, result, had_first):
        """CPUs come back without room on the disk. What was saved before stays; a first state that is new is not."""
        if had_first is None and any("not recorded" in warning for warning in result.get("warnings", ())):
            assert self.host.seen().saved is None or self.first is not None
            self.first = self.first if self.host.seen().saved else None

    @stateful.rule(
        name=strategies.sampled_from(sorted(CHANGES)),
        waits=strategies.booleans(),
        persist=strategies.sampled_from(["none", "none", "tmpfiles", "systemd"]),
        fault=FAULTS,
    )
    def change(self, name, waits, persist, fault):
        asked = {**CHANGES[name], "persist": persist}
        was_online, had_first = self.online(), self.first
        result = self.ask(fault, **asked, rollback_after=600 if waits else None)
        if result and not fault:
            if name == "restored":
                assert self.online() == (had_first or was_online)
            elif name in ("off", "one by one"):
                assert all(len({first, first + 1}.intersection(self.online())) <= 1 for first in range(0, 8, 2))
            assert result["rollback_pending"] or (
                any(self.host.seen().files.values()) == (persist != "none" and name != "restored")
            )
        self.follow(asked, result, was_online, had_first)

    @stateful.precondition(lambda self: self.before is not None)
    @stateful.rule(fault=FAULTS)
    def confirm(self, fault):
        was_online, had_first = self.online(), self.first
        result = self.ask(fault, **self.before[2], confirm=True)
        if result is None:
            assert self.host.seen().pending is not None
            return
        self.follow(self.before[2], {**result, "rollback_ended": True}, was_online, had_first)

    @stateful.precondition(lambda self: self.before is not None)
    @stateful.rule(fault=FAULTS)
    def time_is_over(self, fault):
        """Nothing that goes wrong keeps the host from going back; a service that is killed is started again."""
        online, first, _asked = self.before
        self.host.roll_back(fault)
        assert self.online() == online
        self.first, self.before = first, None

    @stateful.rule(cpu=strategies.integers(1, 7), up=strategies.booleans())
    def somebody_else(self, cpu, up):
        """Whatever others do, what this collection has saved stays."""
        self.host.switch(cpu, up)

    @stateful.rule()
    def reboot(self):
        is_kept = any(self.host.seen().files.get(path) for path in persistence.PATHS)
        self.host.reboot()
        self.was_booted, self.before, self.saved_frame = True, None, None
        if not is_kept:
            self.first = None

    @stateful.rule()
    def frame_is_saved(self):
        """As a rollout does before it changes a host."""
        self.saved_frame = (self.host.frame(), self.first, self.before is None)

    @stateful.precondition(lambda self: self.saved_frame is not None and self.saved_frame[2] and self.before is None)
    @stateful.rule(fault=FAULTS)
    def back_to_the_frame(self, fault):
        """As the rollback of a rollout does, whatever was done since: the first state is that of the frame."""
        (frame, first, _confirmed), was_online, had_first = self.saved_frame, self.online(), self.first
        result = self.ask(fault, state="previous", frame=frame)
        if result is None:
            return
        seen = self.host.seen()
        assert seen.cpu["online"] == frame["cpu"]["online"]
        if not fault or fault[0] != "full":
            of_frame, now = map(self.settings, (frame["files"], seen.files))
            assert now == of_frame
        self.first = None if first is None else had_first if had_first is not None else first
        if self.first == seen.cpu["online"] and was_online != seen.cpu["online"]:
            self.first = None
        self.before = None
        self.what_is_new_may_be_lost(result, had_first)


def play(kind, count, steps, **settings):
    """Play so many orders of so many steps at most, on hosts of a kind; the settings are further ones of hypothesis."""
    checks = {"deadline": None, "suppress_health_check": list(hypothesis.HealthCheck), "report_multiple_bugs": False}
    chosen = hypothesis.settings(max_examples=count, stateful_step_count=steps, **checks, **settings)
    stateful.run_state_machine_as_test(kind, settings=chosen)
