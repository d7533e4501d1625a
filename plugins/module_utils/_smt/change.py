# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of a host's SMT state at run time, with all that belongs to it: bystanders, saved state, guard, dead man's hand, persistence."""

from __future__ import annotations

from collections import namedtuple

from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files, cpulist, files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    affinity,
    persistence,
    restore as smt_restore,
    rollback_timer,
    snapshot as smt_snapshot,
    state as smt_state,
    udev_rules,
    watchdog,
)
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache, topology

LOG = "var/lib/threadwise-smt/guard.log"
RESTORED, ENABLED, DISABLED = "restored", "enabled", "disabled"
# A confirmation waits for whoever has the lock: given up, the change would be taken back.
CONFIRM_SECONDS = 300

Request = namedtuple("Request", ["state", "threads", "method", "bystanders", "conflicts_of", "persist", "neutralise", "revert_after", "confirm", "check"])
Request.__doc__ = """What is asked for.

state: ``enabled``, ``disabled``, ``restored`` or None; threads: threads per core, or None; method: as in state; bystanders: ``refuse`` or
``warn``; conflicts_of: whose conflicts are refused, as in affinity.counting; persist: as in persistence; neutralise: whether udev rules that online CPUs
are to rest; revert_after: seconds, or None; confirm: whether an armed timer is stopped; check: nothing is written.
"""

ERRORS = (
    smt_state.StateError,
    config_files.ConfigFileError,
    rollback_timer.DeadManError,
    watchdog.GuardError,
    locks.HostLockError,
    smt_snapshot.SavedStateError,
    OSError,
)


class ChangeRefused(Exception):
    """The change was not begun; ``findings`` are the bystanders it would hurt."""

    def __init__(self, text: str, findings=()):
        super().__init__(text)
        self.findings = [finding.text for finding in findings]


class RuntimeChange:
    """One request on one host.

    Args:
        request: :class:`Request`
        run_command: ``callable(list of str) -> (status, stdout, stderr)``
        sysroot: where the host's files are
    """

    def __init__(self, request: Request, run_command, sysroot: str = "/"):
        self.request = request
        self.host = affinity.Host(sysroot)
        self.fs = host_files.HostFs(sysroot)
        self.rollback_timer = rollback_timer.DeadMan(self.host, self.fs, run_command)
        self.run_command = run_command
        self.warnings = []
        self.not_restored = []
        self.findings = []

    def run(self) -> dict:
        """The module's result. Raises ChangeRefused and the ERRORS of the rooms it goes through."""
        self._look()
        if self.request.check or not self._has_to_act():
            self._see_that_it_may_begin()
            files = {} if self.waits and not self.request.check else self._file_changes(self.goal)
            return self._result(self.goal, self.moves or self.ends or self.forgets or bool(files), files, self.waits and not self.request.check)
        with locks.HostLock(self.host.sysroot, "smt_state", CONFIRM_SECONDS if self.request.confirm else 0.0) as lock:
            # Another run, or the timer, may have been at it while this one looked or waited.
            self._look()
            self._see_that_it_may_begin()
            return self._act(lock)

    def _has_to_act(self) -> bool:
        return self.moves or self.forgets or self.request.confirm or self.ends or bool(not self.waits and self._file_changes(self.goal))

    def _act(self, lock) -> dict:
        """What was asked for, with the lock held."""
        after, moved = self.goal, False
        if self.moves:
            after = self._change(lock)
            moved = bool(smt_state.differences(self.before, after))
        elif self.forgets:
            smt_snapshot.remove(self.fs)
        if self.ends:
            self.rollback_timer.disarm()
        if self.moves or self.forgets:
            self.rollback_timer.forget()
        files = {} if self.waits else self._write_files(after)
        return self._result(after, moved or self.ends or self.forgets or bool(files), files, self.waits)

    def _look(self) -> None:
        """The host as it is now, and what the request makes of it: ``goal``, whether it ``moves`` CPUs, ``ends`` a wait for a confirmation, ``forgets`` a
        saved state, and whether afterwards a change ``waits`` to be confirmed.
        """
        self.before = smt_state.read(files=self.host)
        self.topology = topology.read_topology(self.fs, topology_cache.load(self.fs))
        self.saved = smt_snapshot.load(self.host, self.fs, persistence.is_kept(self.fs))
        # What was seen in this boot while more CPUs were online than now.
        self.cores = smt_state.join_cores(self.topology.cores, self.saved["cores"] if self.saved else [])
        self.goal = self._goal()
        self.moves = bool(smt_state.differences(self.before, self.goal))
        begins = self.moves and self.request.revert_after is not None
        self.ends = smt_restore.pending(self.host) is not None and (self.request.confirm or (self.request.state == RESTORED and not begins))
        self.forgets = self.request.state == RESTORED and self.saved is not None
        self.waits = begins or (self.rollback_timer.is_armed() and not self.ends)

    def _goal(self) -> dict:
        """The state that is asked for, as far as it can be told before."""
        if self.request.state == RESTORED:
            return dict(self.before, **{key: self.saved["cpu"][key] for key in ("control", "active", "online")}) if self.saved else self.before
        return smt_state.predict(self.host.sysroot, self.cores, self._threads(), self.request.method, self._origin(), self.host)

    def _threads(self) -> int | None:
        return {ENABLED: None, DISABLED: 1}.get(self.request.state, self.request.threads)

    def _origin(self) -> dict | None:
        return self.saved["cpu"] if self.saved else None

    def _see_that_it_may_begin(self) -> None:
        if self.request.confirm:
            self._see_that_it_can_be_confirmed()
        if self.moves and self.request.revert_after is not None:
            self.rollback_timer.see_that_it_can_be_armed()
        going = set(self.before["online"]) - set(self.goal["online"])
        self.findings = affinity.find(self.host, self.before["online"], going)
        counting = affinity.counting(self.findings, self.request.conflicts_of)
        if counting and self.request.bystanders == "refuse":
            raise ChangeRefused(
                "%d bystander(s) would be hurt when %s go offline; nothing was changed. Move them, or set bystanders to warn:\n%s"
                % (len(counting), cpulist.render(going), affinity.readable(counting)),
                counting,
            )

    def _see_that_it_can_be_confirmed(self) -> None:
        """Only what is there can be confirmed, and only while it waits for that or when it was confirmed before."""
        if smt_restore.pending(self.host) is not None:
            if self.moves:
                raise ChangeRefused(
                    "this is not confirmed: the host is not in the state asked for. The timer that takes the unconfirmed change back is still armed"
                )
        elif smt_restore.was_reverted(self.host):
            raise ChangeRefused(
                "this comes too late: revert_after was over, and the host was brought back to the state before the change "
                f"(journalctl -u {rollback_timer.UNIT}.service). Nothing is confirmed, nothing was changed now"
            )
        elif self.moves:
            raise ChangeRefused("there is nothing to confirm: no change waits for it, and the host is not in the state asked for")

    def _change(self, lock) -> dict:
        """From the saved map to the last mask. Returns the state after it."""
        topology_cache.save(self.fs, self.topology)
        record = self._record(self.goal)
        unconfirmed = smt_restore.pending(self.host) is not None
        if self.request.revert_after is not None:
            self.rollback_timer.arm(self.rollback_timer.with_unconfirmed(record), self.request.revert_after)
        elif unconfirmed:
            self.rollback_timer.keep(self.rollback_timer.with_unconfirmed(record))
        keeper = watchdog.Guard(
            self.host.sysroot, self.before, self.fs.path(LOG), restore=lambda: smt_restore.put_back(self.host, record), keep=[lock.descriptor]
        )
        try:
            with keeper:
                return self._carry_out()
        except BaseException:
            # The guard has put the host back: the timer has nothing left to do, unless there is an earlier change to take back.
            if self.request.revert_after is not None and not unconfirmed:
                self.rollback_timer.disarm()
            raise

    def _record(self, goal: dict) -> dict:
        """Save what the change could lose, on the disk before the first write; returns what the guard and the timer go back to."""
        going = set(self.before["online"]) - set(goal["online"])
        captured = affinity.capture(self.host, self.before["online"], going)
        remove = []
        if self.saved:
            self.saved["bystanders"] = affinity.merge(self.saved["bystanders"], captured)
        else:
            self.saved = smt_snapshot.new(self.host, self.before, captured)
            remove = [smt_snapshot.PATH]
        self.saved["cores"] = self.cores
        smt_snapshot.save(self.fs, self.saved)
        return {"cpu": self.before, "bystanders": captured, "remove": remove}

    def _carry_out(self) -> dict:
        captured = self.saved["bystanders"]
        masks = affinity.masks_now(self.host, captured)
        learned = []
        if self.request.state == RESTORED:
            after = smt_state.bring_back(self.host.sysroot, self.saved["cpu"], self.host)
        else:
            change = (self.host.sysroot, self.cores, self._threads(), self.request.method, self._origin(), self.host, learned)
            after = smt_state.enable(*change[:2], *change[3:]) if self._threads() is None else smt_state.set_threads_per_core(*change)
            self.cores = self.saved["cores"] = smt_state.join_cores(self.cores, learned)
        if set(after["online"]) - set(self.before["online"]):
            self.not_restored, waiting = affinity.put_back(self.host, captured, masks, after["online"])
            self.saved["bystanders"] = waiting
            topology_cache.save(self.fs, topology.read_topology(self.fs))
        else:
            affinity.note_left(self.host, captured)
        as_before = not smt_state.differences(self.saved["cpu"], after) and affinity.is_empty(self.saved["bystanders"])
        if self.request.state == RESTORED or (as_before and not learned):
            # As before the first change: what comes next is a first change again.
            smt_snapshot.remove(self.fs)
        else:
            smt_snapshot.save(self.fs, self.saved)
        return after

    def _file_changes(self, state: dict) -> dict:
        restored = self.request.state == RESTORED
        wanted = persistence.wanted(persistence.NONE if restored else self.request.persist, state, self.cores)
        wanted.update(udev_rules.wanted(self.fs, self.request.neutralise and not restored))
        return config_files.changes(self.fs, wanted)

    def _write_files(self, state: dict) -> dict:
        files = self._file_changes(state)
        if files:
            config_files.apply(self.fs, files)
            if any(path in files for path in (persistence.UNIT_PATH, persistence.WANTED_BY)) and self.fs.status("run/systemd/system") is not None:
                self.run_command(["systemctl", "daemon-reload"])
        return files

    def _result(self, after: dict, changed: bool, files: dict, waits: bool) -> dict:
        rules = udev_rules.active(self.fs)
        held_one_by_one = after["control"] not in smt_state.OFF and set(after["present"]) - set(after["online"])
        if rules and held_one_by_one and not self.request.neutralise:
            self.warnings.append(
                "udev rules bring CPUs online when they are added, and would undo this at the next boot or hot-plug: {}. "
                "Set neutralise_udev_rules to have them rest".format(", ".join("/" + path for path in rules))
            )
        # Those that are refused never come here.
        verb = "would be hurt" if self.request.check else "is hurt"
        self.warnings += [f"{verb}: {finding.text}" for finding in self.findings if finding.hurts][: affinity.MOST_LINES]
        self.warnings += self.fs.problems
        return {
            "changed": changed,
            "before": _shown(self.before),
            "after": _shown(after),
            "bystanders": [finding.text for finding in self.findings],
            "not_restored": self.not_restored,
            "revert_pending": waits,
            "diff": _diff(self.before, after) + config_files.diff(files),
        }


def _shown(state: dict) -> dict:
    return {"control": state["control"], "active": state["active"], "online": cpulist.render(state["online"])}


def _diff(before: dict, after: dict) -> list[dict]:
    def text(state):
        shown = _shown(state)
        return f"smt/control: {shown['control']}\nonline: {shown['online']}\n"

    where = "/" + smt_state.CPU_DIRECTORY
    return [{"before_header": where, "after_header": where, "before": text(before), "after": text(after)}]
