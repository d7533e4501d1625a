# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of a host's SMT state at run time, with all its parts: affinity conflicts, snapshot, watchdog, rollback timer, persistence."""

import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files, cpulist, files as host_files, kernel_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._siblings import cache as sibling_cache, source as sibling_source
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    persistence,
    restore as smt_restore,
    rollback_timer,
    scope as smt_scope,
    snapshot as smt_snapshot,
    state as smt_state,
    udev_rules,
    watchdog,
)
from ansible_collections.threadwise.smt.plugins.module_utils._smt.errors import SmtError
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache, topology

LOG = "var/lib/threadwise-smt/watchdog.log"
RESTORED, ENABLED, DISABLED = "restored", "enabled", "disabled"
# Time limit of a confirmation for getting the lock. Without the confirmation the change would be rolled back.
CONFIRM_SECONDS = 300

# Path -> text now and text wanted; None: no file.
_Files = t.Dict[str, t.Tuple[t.Optional[str], t.Optional[str]]]


class Request(t.NamedTuple):
    """What is requested."""

    state: "str | None"  # enabled, disabled or restored
    threads: "int | None" = None  # threads per core
    method: str = "auto"  # as in state.py
    affinity_conflicts: str = "fail"  # fail or warn: what to do about affinity conflicts
    conflicts_of: "t.Sequence[str]" = ("services",)  # whose affinity conflicts count, as in affinity.selected
    persist: str = "none"  # mode of persistence.py
    neutralise: bool = False  # whether udev rules that bring CPUs online are disabled
    rollback_after: "int | None" = None  # seconds until the rollback
    confirm: bool = False  # whether a pending rollback is cancelled
    check: bool = False  # whether nothing is written
    siblings: object = sibling_source.KERNEL  # whose siblings count, as in _siblings/source.py
    cores: object = None  # which cores get one thread, or so many, as in scope.py; None: all


class ShownState(TypedDict):
    """An SMT state for the user; ``online`` is a CPU list."""

    control: str
    active: "bool | None"
    online: str


class Result(TypedDict):
    """The result of the module smt_state."""

    changed: bool
    before: ShownState
    after: ShownState
    affinity_conflicts: "list[str]"
    not_restored: "list[str]"
    rollback_pending: bool
    diff: "list[dict[str, str]]"


class ChangeRefusedError(SmtError):
    """The change was not started. ``findings`` are the texts of the affinity conflicts that prevent it."""

    def __init__(self, text: str, findings: "t.Iterable[affinity.Finding]" = ()) -> None:
        super().__init__(text)
        self.findings = [finding.text for finding in findings]


class RuntimeChange:
    """One request on one host. ``warnings`` are sentences for the user, ``findings`` the affinity conflicts."""

    def __init__(self, request: Request, run_command: rollback_timer.RunCommand, sysroot: str = "/") -> None:
        self.request = request
        self.host = kernel_files.KernelFiles(sysroot)
        self.fs = host_files.HostFs(sysroot)
        self.rollback_timer = rollback_timer.RollbackTimer(self.fs, run_command)
        self.run_command = run_command
        self.warnings: list[str] = []
        self.not_restored: list[str] = []
        self.findings: list[affinity.Finding] = []

    def run(self) -> Result:
        """Carry out the request and return the module's result.

        Raises:
            ChangeRefusedError: the change was not started.
            HostError: the host cannot be read or changed.
        """
        try:
            return self._run()
        except OSError as error:
            raise SmtError(str(error)) from error

    def _run(self) -> Result:
        self._check_request()
        self._read_host()
        if self.request.check or not self._has_to_act():
            self._check_may_begin()
            files = {} if self.rollback_pending and not self.request.check else self._file_changes(self.goal)
            return self._result(self.goal, self.moves or self.ends or self.forgets or bool(files), files, self.rollback_pending and not self.request.check)
        with locks.HostLock(self.host.sysroot, "smt_state", CONFIRM_SECONDS if self.request.confirm else locks.CHANGE_SECONDS) as lock:
            # Another run or the rollback timer may have changed the host since it was read.
            self._read_host(self.before)
            self._check_may_begin()
            return self._act(lock)

    def _check_request(self) -> None:
        request = self.request
        self.scope = smt_scope.parse(request.cores)
        if not request.confirm:
            affinity.check_users(self.host, request.conflicts_of)
        if request.cores is not None and self._threads() is None:
            raise ChangeRefusedError(
                f"cores names a part of the host ({self.scope.title}), and {request.state} is a state of all of it: "
                "give cores only with the state disabled, or with threads_per_core"
            )

    def _has_to_act(self) -> bool:
        return self.moves or self.forgets or self.request.confirm or self.ends or bool(not self.rollback_pending and self._file_changes(self.goal))

    def _act(self, lock: locks.HostLock) -> Result:
        """Carry out the request while the lock is held."""
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
        files = {} if self.rollback_pending else self._write_files(after)
        return self._result(after, moved or self.ends or self.forgets or bool(files), files, self.rollback_pending)

    def _read_host(self, known: "smt_state.State | None" = None) -> None:
        """Read the host's state, and set ``goal``, the requested state. The topology is read only if the state is not ``known``.

        Set also whether the request ``moves`` CPUs, ``ends`` a pending rollback or ``forgets`` a snapshot, and ``rollback_pending`` afterwards.
        """
        self.before = smt_state.read(files=self.host)
        if self.before != known:
            self.topology = topology.read_topology(self.fs, topology_cache.load(self.fs))
        self.saved = smt_snapshot.load(self.fs, persistence.is_kept(self.fs))
        # Cores that were seen in this boot while more CPUs were online than now.
        self.kernel_cores = smt_state.join_cores(self.topology.cores, self.saved["cores"] if self.saved else [])
        self.cores, self.method = self.kernel_cores, self.request.method
        if self.request.siblings != sibling_source.KERNEL and self.request.state != RESTORED:
            self._use_other_siblings()
        self.only = smt_scope.resolve(self.scope, self.topology._replace(cores=tuple(map(tuple, self.cores))), self.fs)
        self.goal = self._goal()
        self.moves = bool(smt_state.differences(self.before, self.goal))
        begins = self.moves and self.request.rollback_after is not None
        self.ends = smt_restore.pending(self.fs) is not None and (self.request.confirm or (self.request.state == RESTORED and not begins))
        self.forgets = self.request.state == RESTORED and self.saved is not None
        self.rollback_pending = begins or (self.rollback_timer.is_armed() and not self.ends)

    def _use_other_siblings(self) -> None:
        """Follow siblings that are not the kernel's. They are not saved: what is saved is what the kernel shows."""
        topology_used = sibling_source.applied(self.topology, self.request.siblings, sibling_cache.load(self.fs))
        if self.request.method == "smt_control":
            raise SmtError(f"the method smt_control switches the kernel's siblings, and these are {topology_used.source}: use the method auto or cpu_online")
        self.cores, self.method = list(topology_used.cores), sibling_source.method(topology_used)

    def _goal(self) -> smt_state.State:
        """Return the requested state, as far as it can be predicted."""
        if self.request.state == RESTORED:
            return {**self.saved["cpu"], "present": self.before["present"]} if self.saved else self.before
        numeric = smt_state.takes_numbers(os.uname().machine)
        return smt_state.predict(self.before, self.cores, self._threads(), self.method, self._origin(), numeric, self.only)

    def _threads(self) -> "int | None":
        return 1 if self.request.state == DISABLED else self.request.threads

    def _origin(self) -> "smt_state.State | None":
        return self.saved["cpu"] if self.saved else None

    def _check_may_begin(self) -> None:
        if self.request.confirm:
            self._check_can_be_confirmed()
        if self.moves:
            self._check_can_be_written()
            if self.request.rollback_after is not None:
                self.rollback_timer.check_can_be_armed()
        self._check_can_be_kept()
        going = set(self.before["online"]) - set(self.goal["online"])
        self.findings = affinity.find(self.host, self.before["online"], going)
        refused = affinity.selected(self.findings, self.request.conflicts_of)
        if refused and self.request.affinity_conflicts == "fail":
            raise ChangeRefusedError(
                f"{len(refused)} affinity conflict(s) with taking CPUs {cpulist.render(going)} offline; nothing was changed. "
                f"Move what is bound to these CPUs, or set affinity_conflicts to warn:\n{affinity.readable(refused)}",
                refused,
            )

    def _check_can_be_written(self) -> None:
        """Check, in check mode too, that the kernel takes the first write."""
        switched = sorted(set(self.before["online"]) ^ set(self.goal["online"]))
        by_control = self.before["control"] != self.goal["control"] or not switched
        refusal = self.host.write_refusal(smt_state.CONTROL if by_control else f"{smt_state.CPU_DIRECTORY}/cpu{switched[0]}/online")
        if refusal:
            raise ChangeRefusedError(f"{refusal}. Nothing was changed")

    def _check_can_be_kept(self) -> None:
        if self.request.persist != persistence.NONE and self.request.state != RESTORED and not self.fs.runs_systemd:
            raise ChangeRefusedError(
                f"persist: {self.request.persist} needs systemd, which does not run on this host: nothing would set the state at a boot, and nothing was "
                "changed. Leave persist out and use boot arguments (smt_boot_args), or a script of the host's own init system"
            )

    def _check_can_be_confirmed(self) -> None:
        """Check that the requested state is there, and that its rollback is pending or it was confirmed before."""
        if smt_restore.pending(self.fs) is not None:
            if self.moves:
                raise ChangeRefusedError("nothing was confirmed: the host is not in the state asked for. The timer that rolls the change back is still armed")
        elif smt_restore.was_rolled_back(self.fs):
            raise ChangeRefusedError(
                "this comes too late: rollback_after had passed, and the host was restored to the state before the change "
                f"(journalctl -u {rollback_timer.UNIT}.service). Nothing was confirmed, nothing was changed now"
            )
        elif self.moves:
            raise ChangeRefusedError("there is nothing to confirm: no rollback is pending, and the host is not in the state asked for")

    def _change(self, lock: locks.HostLock) -> smt_state.State:
        """Change the CPUs, from saving the topology to restoring the last mask, and return the state after it."""
        topology_cache.save(self.fs, self.topology)
        saved, record = self._save_snapshot(self.goal)
        already_pending = smt_restore.pending(self.fs) is not None
        if self.request.rollback_after is not None:
            self.rollback_timer.arm(self.rollback_timer.with_pending(record), self.request.rollback_after)
        elif already_pending:
            self.rollback_timer.keep(self.rollback_timer.with_pending(record))
        own_watchdog = watchdog.Watchdog(
            self.host.sysroot, self.before, self.fs.path(LOG), restore=lambda: smt_restore.restore(self.host, record), keep=[lock.descriptor]
        )
        try:
            with own_watchdog:
                return self._carry_out(saved)
        except BaseException:
            # The watchdog has restored the host. The timer is no longer needed, unless it has to roll back an earlier change.
            if self.request.rollback_after is not None and not already_pending:
                self.rollback_timer.disarm()
            raise

    def _save_snapshot(self, goal: smt_state.State) -> "tuple[smt_snapshot.Snapshot, smt_restore.Record]":
        """Save what the change could lose to disk before the first write; return it, and the record that the watchdog and the rollback timer restore."""
        going = set(self.before["online"]) - set(goal["online"])
        captured = affinity.capture(self.host, self.before["online"], going)
        remove = []
        saved = self.saved
        if saved:
            saved["masks"] = affinity.merge(saved["masks"], captured)
        else:
            saved = self.saved = smt_snapshot.new(self.fs, self.before, captured)
            remove = [smt_snapshot.PATH]
        saved["cores"] = self.kernel_cores
        smt_snapshot.save(self.fs, saved)
        return saved, {"cpu": self.before, "masks": captured, "remove": remove}

    def _carry_out(self, saved: smt_snapshot.Snapshot) -> smt_state.State:
        captured = saved["masks"]
        masks = affinity.masks_now(self.host, captured)
        learned: list[tuple[int, ...]] = []
        if self.request.state == RESTORED:
            after = smt_state.bring_back(self.host.sysroot, saved["cpu"], self.host)
        else:
            threads, method, sysroot = self._threads(), self.method, self.host.sysroot
            if threads is None:
                after = smt_state.enable(sysroot, self.cores, method, saved["cpu"], self.host, learned)
            else:
                after = smt_state.set_threads_per_core(sysroot, self.cores, threads, method, saved["cpu"], self.host, learned, self.only)
            if learned:
                self.cores = saved["cores"] = smt_state.join_cores(self.kernel_cores, learned)
        if set(after["online"]) - set(self.before["online"]):
            self.not_restored, saved["masks"] = affinity.restore(self.host, captured, masks, after["online"])
            if not self.topology.complete:
                topology_cache.save(self.fs, topology.read_topology(self.fs))
        else:
            affinity.note_left(self.host, captured)
        as_before = not smt_state.differences(saved["cpu"], after) and affinity.is_empty(saved["masks"])
        if self.request.state == RESTORED or (as_before and not learned):
            # The state is that before the first change again, so the next change is a first one.
            smt_snapshot.remove(self.fs)
        else:
            smt_snapshot.save(self.fs, saved)
        return after

    def _file_changes(self, state: smt_state.State) -> _Files:
        restored = self.request.state == RESTORED
        wanted = persistence.wanted(persistence.NONE if restored else self.request.persist, state, self.cores)
        wanted.update(udev_rules.wanted(self.fs, self.request.neutralise and not restored))
        return config_files.changes(self.fs, wanted)

    def _write_files(self, state: smt_state.State) -> _Files:
        files = self._file_changes(state)
        if files:
            config_files.apply(self.fs, files)
            if any(path in files for path in (persistence.UNIT_PATH, persistence.WANTED_BY)) and self.fs.runs_systemd:
                self.run_command(["systemctl", "daemon-reload"])
        return files

    def _result(self, after: smt_state.State, changed: bool, files: _Files, pending: bool) -> Result:
        rules = udev_rules.active(self.fs)
        switched_by_cpu = after["control"] not in smt_state.OFF and set(after["present"]) - set(after["online"])
        if rules and switched_by_cpu and not self.request.neutralise:
            self.warnings.append(
                "udev rules bring CPUs online when they are added, and would undo this at the next boot or hot-plug: "
                f"{', '.join('/' + path for path in rules)}. Set neutralise_udev_rules to disable them"
            )
        # Conflicts that refuse the change have raised an error before.
        kind = "expected affinity conflict" if self.request.check else "affinity conflict"
        self.warnings += [f"{kind}: {finding.text}" for finding in self.findings if finding.is_conflict][: affinity.MOST_LINES]
        self.warnings += self.fs.problems
        return {
            "changed": changed,
            "before": _shown(self.before),
            "after": _shown(after),
            "affinity_conflicts": [finding.text for finding in self.findings],
            "not_restored": self.not_restored,
            "rollback_pending": pending,
            "diff": _diff(self.before, after) + config_files.diff(files),
        }


def _shown(state: smt_state.State) -> ShownState:
    return {"control": state["control"], "active": state["active"], "online": cpulist.render(state["online"])}


def _diff(before: smt_state.State, after: smt_state.State) -> "list[dict[str, str]]":
    def text(state: smt_state.State) -> str:
        shown = _shown(state)
        return f"smt/control: {shown['control']}\nonline: {shown['online']}\n"

    where = "/" + smt_state.CPU_DIRECTORY
    return [{"before_header": where, "after_header": where, "before": text(before), "after": text(after)}]
