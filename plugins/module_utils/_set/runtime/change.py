# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of a host's SMT state at run time, with all its parts: affinity conflicts, snapshot, watchdog,
rollback timer, persistence.
"""

import math
import os
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    config_files,
    cpulist,
    durable,
    files as host_files,
    kernel_files,
    locks,
    state_file,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import (
    affinity,
    bindings,
    saved_masks,
    tasks,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import (
    history,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import (
    cache as sibling_cache,
    source as sibling_source,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import (
    cache as topology_cache,
    seen_cpus,
    topology,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set import follow
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    frame as smt_frame,
    record as smt_record,
    restore as smt_restore,
    scope as smt_scope,
    snapshot as smt_snapshot,
    state as smt_state,
    transition as smt_transition,
    watchdog,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import others, persistence, udev_rules
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import (
    pending as pending_rollback,
    timer as rollback_timer,
)

LOG = "var/lib/threadwise-smt/watchdog.log"
RESTORED, ENABLED, DISABLED, PREVIOUS = "restored", "enabled", "disabled", "previous"
UNCHANGED = "unchanged"
# Time limit of a confirmation for getting the lock. Without the confirmation the change would be rolled back.
CONFIRM_SECONDS = 300
# What a change may write: files that decide what the host goes back to, and others.
_FILES = (
    smt_snapshot.PATH,
    pending_rollback.PATH,
    pending_rollback.ROLLED_BACK_PATH,
    rollback_timer.PROGRAM,
    topology_cache.PATH,
    smt_snapshot.SEEN_PATH,
    history.PATH,
    *persistence.PATHS,
)
# What the snapshot may grow by while CPUs come online whose cores were unknown, and what directories need.
_SPARE_BYTES = 16384

# Path -> text now and text wanted; None: no file.
_Files = t.Dict[str, t.Tuple[t.Optional[str], t.Optional[str]]]


class Request(t.NamedTuple):
    """What is requested."""

    state: "str | None"  # enabled, disabled, restored, previous or unchanged
    threads: "int | None" = None  # threads per core
    method: str = "auto"  # as in state.py
    affinity_conflicts: str = "fail"  # fail or warn: what to do about affinity conflicts
    conflicts_of: "t.Sequence[str]" = ("services",)  # whose affinity conflicts count, as in affinity.selected
    persist: str = "none"  # mode of persistence.py
    neutralise: bool = False  # whether udev rules that bring CPUs online are disabled
    rollback_after: "int | None" = None  # seconds until the rollback
    confirm: bool = False  # whether a pending rollback is cancelled
    check: bool = False  # whether nothing is written
    siblings: object = sibling_source.KERNEL  # whose siblings count, as in _know/siblings/source.py
    cores: object = None  # which cores get one thread, or so many, as in scope.py; None: all
    frame: "smt_frame.Frame | None" = None  # what the state previous is
    consumers: consumer_settings.Settings = consumer_settings.NOTHING  # which consumers follow


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
    consumers: "list[str]"
    rollback_pending: bool
    rollback_started: bool
    diff: "list[dict[str, str]]"


class ChangeRefusedError(SmtError):
    """The change was not started. ``findings`` are the texts of the affinity conflicts that prevent it."""

    def __init__(self, text: str, findings: "t.Iterable[affinity.AffinityFinding]" = ()) -> None:
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
        self.is_unrecorded = False
        self.not_restored: list[str] = []
        self.findings: list[affinity.AffinityFinding] = []
        # In ticks: when the change begins, and when it is given up.
        self.begun = self.failed = float(history.ticks())

    def run(self) -> Result:
        """Carry out the request and return the module's result.

        Raises:
            ChangeRefusedError: the change was not started.
            HostError: the host cannot be read or changed.
        """
        try:
            return self._run()
        except OSError as error:
            raise SmtError(f"{error.filename or 'a file'}: {error.strerror}. {self._undone()}") from error
        except consumer_settings.ConsumerError as error:
            raise SmtError(f"{error}. {self._undone()}") from error

    def _undone(self) -> str:
        """Return how the host is after a change that failed, as a sentence without a full stop."""
        left = smt_state.differences(self.before, smt_state.read(files=self.host))
        if self.moves and self.steps and not left:
            # The watchdog has made them right, or has tried.
            online = self._undone_online(self.failed)
            left = [f"{step.service} has {step.counted}" for step in self.consumers.steps(online)]
        return f"Still different from before: {'; '.join(left)}" if left else "The host is as it was before"

    def _undone_online(self, until: float) -> base.Online:
        """Return the CPUs as a change leaves them that is undone after so many ticks."""
        return self.online.after(self.begun, self.goal["online"]).after(until, self.before["online"])

    def _run(self) -> Result:
        self._check_request()
        self._read_host()
        if self.request.check or not self._has_to_act():
            self._check_may_begin()
            # In check mode no rollback begins, and what a confirmation would write is shown; somebody else's is pending
            # all the same.
            is_pending = self.rollback_pending and not self.begins
            files = {} if is_pending else self._file_changes(self.goal)
            return self._result(self.goal, self._is_change() or bool(files), files, is_pending)
        with locks.HostLock(
            self.host.sysroot, "smt_state", CONFIRM_SECONDS if self.request.confirm else locks.CHANGE_SECONDS
        ) as lock:
            # Another run or the rollback timer may have changed the host since it was read.
            self._read_host(self.before)
            self._check_may_begin()
            try:
                return self._act(lock)
            except BaseException:
                self._stop_timer_without_rollback()
                raise

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
        return (
            self._is_change()
            or self.request.confirm
            or bool(not self.rollback_pending and self._file_changes(self.goal))
        )

    def _is_change(self) -> bool:
        """Return whether anything but files that keep the setting changes, as far as it can be predicted."""
        return self.moves or self.forgets or self.recalls or self.ends or bool(self.steps)

    def _act(self, lock: locks.HostLock) -> Result:
        """Carry out the request while the lock is held.

        Whatever fails or dies half way, the host and all files are as they were.
        """
        self._recorded(durable.make_folders, os.path.dirname(self.fs.path(LOG)), 0o755)
        self.begun = float(history.ticks())
        self.captured = affinity.capture(
            self.host, self.before["online"], set(self.before["online"]) - set(self.goal["online"])
        )
        expected = {} if self.rollback_pending and not self.begins else self._file_changes(self.goal)
        kept = durable.Kept([self.fs.path(path) for path in {*_FILES, *expected}])
        with durable.room({} if self.comes_back else self._sizes(expected)) as give_back:
            self._recorded(kept.keep)
            with watchdog.Watchdog(self.fs.path(LOG), lambda: self._undo(kept), keep=[lock.descriptor]):
                self._recorded(topology_cache.save, self.fs, self.topology)
                after = self._change(give_back) if self.moves else self.before
                give_back()
                if not self.moves:
                    if self.steps:
                        self._keep_pending()
                    # Files that keep a setting decide whether a snapshot of an earlier boot is valid, and they are
                    # about to change.
                    saved = self.saved and self._with_consumers(self.saved)
                    self._recorded(self._keep_snapshot, saved, self.forgets)
                for problem in self.consumers.follow(self.steps):
                    self.failed = history.ticks()
                    raise consumer_settings.ConsumerError(problem)
                if self.steps and self.begins and self.rollback_pending:
                    # What services took to follow is not taken from the time for the confirmation.
                    self._keep_pending()
                # The files that keep a setting make a snapshot of an earlier boot valid: without room they stay.
                files = {} if self.rollback_pending or self.is_unrecorded else self._write_files(after)
                if self.ends:
                    # From here on the change stays; see _undo.
                    self._recorded(pending_rollback.confirm, self.fs)
        kept.forget()
        # Until here a second name of their file was in them.
        config_files.remove_empty_folders(self.fs, expected)
        if self.ends:
            self._recorded(self.rollback_timer.stop)
        moved = bool(smt_state.differences(self.before, after))
        return self._result(
            after,
            moved
            or (self.ends and self.pending is not None)
            or self.forgets
            or self.recalls
            or bool(files or self.steps),
            files,
            self.rollback_pending,
        )

    def _recorded(self, write: "t.Callable[..., object]", *given: object) -> bool:
        """Call what keeps a record, and return whether it did. CPUs that come back do not wait for room on a disk."""
        try:
            write(*given)
        except (OSError, HostError) as error:
            if not self.comes_back or not durable.is_for_want_of_room(error):
                raise
            text = f"{error.filename or 'a file'}: {error.strerror}" if isinstance(error, OSError) else str(error)
            self.warnings.append(f"{text}. The CPUs come back all the same, and this is not recorded")
            self.is_unrecorded = True
            return False
        return True

    def _stop_timer_without_rollback(self) -> None:
        """Stop the timer of a change that failed: its rollback is undone already,
        and the next one is not to be taken for it.
        """
        if self.begins and not pending_rollback.exists(self.fs):
            self.rollback_timer.stop()

    def _sizes(self, files: _Files) -> "dict[str, int]":
        """Return how many bytes are written after the first change of a CPU, by path."""
        sizes = {path: len(text or "") for path, (_current, text) in files.items()}
        if self.moves:
            sizes[smt_snapshot.PATH] = 2 * len(str(self.saved or self.captured)) + len(str(self.topology.cores))
        return {self.fs.path(path): size + _SPARE_BYTES for path, size in sizes.items()}

    def _undo(self, kept: durable.Kept) -> "list[str]":
        """Put everything back; in the watchdog.

        First the CPUs, for which no room on the disk is needed, then the files.
        """
        if self.ends and not pending_rollback.exists(self.fs):
            # Its last step was done.
            kept.forget()
            return []
        record: smt_record.SmtRecord = {"cpu": self.before, "masks": self.captured}
        problems = smt_restore.restore(self.host, record) if self.moves else []
        if not smt_restore.left(problems):
            kept.put_back()
            problems += self.consumers.back(self._undone_online(math.inf), self.steps) if self.moves else []
        return problems

    def _read_host(self, known: "smt_state.State | None" = None) -> None:
        """Read the host's state, and set ``goal``, the requested state.

        The topology is read only if the state is not ``known``.

        Set also whether the request ``moves`` CPUs, ``ends`` a pending rollback or ``forgets`` a snapshot, and
        ``rollback_pending`` afterwards.
        """
        self.before = smt_state.read(files=self.host)
        if self.before != known:
            self.topology = topology.read_topology(self.fs, topology_cache.load(self.fs))
        self.saved = smt_snapshot.load(self.fs)
        self.recalls = False
        if self.request.frame is not None:
            self._use_frame(self.request.frame)
        self.pending = pending_rollback.load(self.fs)
        # Cores that were seen in this boot while more CPUs were online than now.
        self.kernel_cores = smt_state.join_cores(self.topology.cores, smt_snapshot.seen_cores(self.fs))
        self.cores, self.method = self.kernel_cores, self.request.method
        if self.request.siblings != sibling_source.KERNEL and self.request.state not in (RESTORED, PREVIOUS):
            self._use_other_siblings()
        self.only = smt_scope.resolve(self.scope, self.topology._replace(cores=tuple(map(tuple, self.cores))), self.fs)
        self.goal = self._goal()
        self.moves = bool(smt_state.differences(self.before, self.goal))
        # What goes back, or takes no CPU offline: how the host was before is saved, or nobody misses it.
        self.comes_back = not self.request.confirm and (
            self._earlier() is not None or (self.moves and set(self.before["online"]) <= set(self.goal["online"]))
        )
        self.begins = self.moves and self.request.rollback_after is not None
        self._find_rollback()
        self._find_consumers()
        # While a rollback is pending, nothing is forgotten that it goes back to.
        self.forgets = self.saved is not None and not self.rollback_pending and self._is_first(self.goal, self.saved)

    def _find_rollback(self) -> None:
        """Set whether a pending rollback ends, and whether one is pending afterwards."""
        self.ends = self.pending is not None and (
            self.request.confirm or (self.request.state == RESTORED and not self.begins)
        )
        self.rollback_pending = self.begins or (
            self.pending is not None and not self.ends and self.rollback_timer.is_armed()
        )

    def _find_consumers(self) -> None:
        """Set which consumers follow, and what is done to them.

        Whoever followed a change follows it back, too.
        """
        self.online = history.load(self.fs, self.before["online"])
        self.chosen = self.request.consumers
        if self._earlier() is not None and self.saved is not None:
            self.chosen = self.chosen.over(consumer_settings.parse(self.saved["consumers"]))
        self.consumers = follow.Consumers(self.host, self.chosen, self.run_command)
        self.coming = self.online.after(math.inf, self.goal["online"]) if self.moves else self.online
        try:
            self.steps = [] if self.request.confirm else self.consumers.steps(self.coming)
        except consumer_settings.ConsumerError as error:
            raise ChangeRefusedError(f"{error}. Nothing was changed") from error

    def _is_first(self, after: smt_state.State, saved: smt_snapshot.Snapshot) -> bool:
        """Return whether a state is that before the first change, so that the next change is a first one."""
        if self._asks_for_first():
            return True
        return (
            not self.moves
            and self.ends
            and not smt_state.differences(saved["cpu"], after)
            and saved_masks.is_empty(saved["masks"])
        )

    def _asks_for_first(self) -> bool:
        """Return whether the state before the first change is requested."""
        return self.request.state == RESTORED or (
            self.request.frame is not None and self.request.frame["snapshot"] is None
        )

    def _use_frame(self, frame: smt_frame.Frame) -> None:
        """Take the snapshot from a frame where the change since has removed it:
        the host was then in its first state.
        """
        smt_frame.check(frame)
        saved = frame["snapshot"]
        if self.saved is not None or saved is None:
            return
        self.recalls, self.saved = True, smt_snapshot.for_this_boot(self.fs, saved)

    def _use_other_siblings(self) -> None:
        """Follow siblings that are not the kernel's. They are not saved: what is saved is what the kernel shows."""
        topology_used = sibling_source.applied(self.topology, self.request.siblings, sibling_cache.load(self.fs))
        if self.request.method == "smt_control":
            raise SmtError(
                f"the method smt_control switches the kernel's siblings, and these are {topology_used.source}: use the"
                " method auto or cpu_online"
            )
        self.cores, self.method = list(topology_used.cores), sibling_source.method(topology_used)

    def _goal(self) -> smt_state.State:
        """Return the requested state, as far as it can be predicted."""
        earlier = self._earlier()
        if earlier is not None:
            return {**earlier, "present": self.before["present"]}
        if self.request.state == UNCHANGED:
            return self.before
        numeric = smt_transition.takes_numbers(os.uname().machine)
        return smt_transition.predict(
            self.before, self.cores, self._threads(), self.method, self._origin(), numeric, self.only
        )

    def _earlier(self) -> "smt_state.State | None":
        """Return the earlier state that is requested as it was, or None where the request describes one."""
        if self.request.frame is not None:
            return self.request.frame["cpu"]
        if self.request.state == RESTORED:
            return self.saved["cpu"] if self.saved else self.before
        return None

    def _threads(self) -> "int | None":
        return 1 if self.request.state == DISABLED else self.request.threads

    def _origin(self) -> "smt_state.State | None":
        return self.saved["cpu"] if self.saved else None

    def _check_may_begin(self) -> None:
        if self.request.confirm:
            self._check_can_be_confirmed()
        if self.moves:
            shown = seen_cpus.contradiction(self.host, self.before["online"])
            if shown:
                raise ChangeRefusedError(f"{shown}. Nothing was changed")
            self._check_can_be_written()
            if self.request.rollback_after is not None:
                self.rollback_timer.check_can_be_armed()
        self._check_can_be_kept()
        going = set(self.before["online"]) - set(self.goal["online"])
        deadly = tasks.keeps_cpus_online(self.host) if going else None
        if deadly is not None:
            raise ChangeRefusedError(f"{deadly}. Nothing was changed")
        followed = {step.kind for step in self.steps} - {""}
        self.findings = [
            finding
            for finding in affinity.find(self.host, self.before["online"], going)
            + (affinity.of_uneven_cores(self.host, self._threads_of_cores()) if self.moves else [])
            if finding.consumer not in followed
        ]
        serving = bindings.vmbus_cpus(self.host) & going
        if serving:
            self.warnings.append(
                f"CPUs {cpulist.render(serving)} serve channels of Hyper-V's VMBus, and most kernels do not take such"
                " CPUs offline: write another CPU into /sys/bus/vmbus/devices/*/channels/*/cpu first, or have the"
                " guest's number of threads per core set in Hyper-V or Azure"
            )
        refused = affinity.selected(self.findings, self.request.conflicts_of)
        if refused and self.request.affinity_conflicts == "fail":
            raise ChangeRefusedError(
                f"{len(refused)} affinity conflict(s) with taking CPUs {cpulist.render(going)} offline; nothing was"
                " changed. Move what is bound to these CPUs, or set affinity_conflicts to"
                f" warn:\n{affinity.readable(refused)}",
                refused,
            )
        self.warnings += self.consumers.warnings(self.coming, self.moves)

    def _threads_of_cores(self) -> "set[int]":
        """Return the numbers of threads that cores will have online."""
        online = set(self.goal["online"])
        return {len(online.intersection(core)) for core in self.cores} - {0}

    def _check_can_be_written(self) -> None:
        """Check, in check mode too, that the kernel takes the first write."""
        switched = sorted(set(self.before["online"]) ^ set(self.goal["online"]))
        by_control = self.before["control"] != self.goal["control"] or not switched
        refusal = self.host.write_refusal(
            smt_state.CONTROL if by_control else f"{smt_state.CPU_DIRECTORY}/cpu{switched[0]}/online"
        )
        if refusal:
            raise ChangeRefusedError(f"{refusal}. Nothing was changed")

    def _check_can_be_kept(self) -> None:
        if self.request.persist != persistence.NONE and self._earlier() is None and not self.fs.runs_systemd:
            raise ChangeRefusedError(
                f"persist: {self.request.persist} needs systemd, which does not run on this host: nothing would set the"
                " state at a boot, and nothing was changed. Leave persist out and use boot arguments (smt_boot_args),"
                " or a script of the host's own init system"
            )

    def _check_can_be_confirmed(self) -> None:
        """Check that the requested state is there, and that its rollback is pending or it was confirmed before."""
        if self.pending is not None:
            if self.moves:
                raise ChangeRefusedError(
                    "nothing was confirmed: the host is not in the state asked for. The timer that rolls the change"
                    " back is still armed"
                )
        elif pending_rollback.rolled_back(self.fs) is not None:
            raise ChangeRefusedError(
                "this comes too late: rollback_after had passed, and the host was restored to the state before the"
                f" change (journalctl -u {rollback_timer.UNIT}). Nothing was confirmed, nothing was changed now"
            )
        elif self.moves:
            raise ChangeRefusedError(
                "there is nothing to confirm: no rollback is pending, and the host is not in the state asked for"
            )

    def _change(self, give_back: "t.Callable[[], None]") -> smt_state.State:
        """Change the CPUs, from saving the snapshot to restoring the last mask, and return the state after it.

        Args:
            give_back: gives the room back that was taken for what is written after the CPUs have changed.
        """
        saved = self.saved
        if saved is None:
            saved = smt_snapshot.new(self.fs, self.before, self.captured)
        saved = self._with_consumers({**saved, "masks": saved_masks.merge(saved["masks"], self.captured)})
        self._recorded(smt_snapshot.save_seen_cores, self.fs, self.kernel_cores)
        self._keep_pending()
        self._recorded(self._keep_snapshot, saved, False)
        masks = affinity.masks_now(self.host, saved["masks"])
        learned: list[tuple[int, ...]] = []
        after = self._switch(saved["cpu"], learned)
        self._recorded(history.save, self.fs, self.online.after(history.ticks(), after["online"]))
        if self.begins and self.pending is None and not smt_state.differences(self.before, after):
            # CPUs without a known core were cores that are off on purpose: there is nothing to confirm.
            self.rollback_pending, self.ends = False, True
        if learned:
            self.cores = smt_state.join_cores(self.kernel_cores, learned)
        if set(after["online"]) - set(self.before["online"]):
            self.not_restored, saved["masks"] = affinity.restore(self.host, saved["masks"], masks, after["online"])
        else:
            affinity.note_left(self.host, saved["masks"])
        give_back()
        if not self.topology.complete and set(after["online"]) - set(self.before["online"]):
            self._recorded(topology_cache.save, self.fs, topology.read_topology(self.fs))
        if learned:
            self._recorded(smt_snapshot.save_seen_cores, self.fs, self.cores)
        is_first = not smt_state.differences(saved["cpu"], after) and saved_masks.is_empty(saved["masks"])
        forgets = not self.rollback_pending and (is_first or self._asks_for_first())
        self._recorded(self._keep_snapshot, saved, forgets)
        return after

    def _keep_pending(self) -> None:
        """Save what a rollback restores, and start its timer where one is asked for.

        An earlier change without a confirmation is rolled back with this one.
        """
        pending = self.pending
        if not self.begins and pending is None:
            return
        new: pending_rollback.Pending = {
            "boot_id": state_file.boot_id(self.fs),
            "cpu": pending["cpu"] if pending else self.before,
            "masks": saved_masks.merge(pending["masks"] if pending else None, self.captured),
            "consumers": self.chosen.over(
                consumer_settings.parse(pending["consumers"]) if pending else consumer_settings.NOTHING
            ).document(),
            "snapshot": pending["snapshot"] if pending else self.saved,
            "seconds": self.request.rollback_after or (pending["seconds"] if pending else 0),
            "since": time.monotonic() if self.begins or pending is None else pending["since"],
            "by": locks.requester() if self.begins or pending is None else pending["by"],
        }
        if not self.begins:
            self._recorded(pending_rollback.save, self.fs, new)
        elif not self._recorded(self.rollback_timer.arm, new):
            self.begins = False
            self._find_rollback()
            if pending is None:
                self._recorded(pending_rollback.confirm, self.fs)

    def _with_consumers(self, saved: smt_snapshot.Snapshot) -> smt_snapshot.Snapshot:
        return {**saved, "consumers": self.chosen.over(consumer_settings.parse(saved["consumers"])).document()}

    def _keep_snapshot(self, saved: "smt_snapshot.Snapshot | None", forgets: bool) -> None:
        if forgets or saved is None:
            smt_snapshot.remove(self.fs)
        else:
            smt_snapshot.save(self.fs, saved)
        if forgets and self.request.state == RESTORED:
            # Nothing is left of the changes.
            smt_snapshot.forget_seen_cores(self.fs)
        # Until here it was what the last rollback went back to.
        pending_rollback.forget(self.fs)

    def _switch(self, origin: smt_state.State, learned: "list[tuple[int, ...]]") -> smt_state.State:
        """Switch the CPUs to what is requested, all or none, and return the state after it."""
        earlier, threads, method, sysroot = self._earlier(), self._threads(), self.method, self.host.sysroot
        if earlier is not None:
            return smt_transition.bring_back(sysroot, earlier, self.host)
        if threads is None:
            return smt_transition.enable(sysroot, self.cores, method, origin, self.host, learned)
        return smt_transition.set_threads_per_core(
            sysroot, self.cores, threads, method, origin, self.host, learned, self.only
        )

    def _file_changes(self, state: smt_state.State) -> _Files:
        if self.request.frame is not None:
            return config_files.changes(self.fs, smt_frame.wanted_files(self.fs, self.request.frame))
        if self.request.state == UNCHANGED:
            return {}
        restored = self.request.state == RESTORED
        wanted = persistence.wanted(persistence.NONE if restored else self.request.persist, state, self.cores)
        wanted.update(udev_rules.wanted(self.fs, self.request.neutralise and not restored))
        return config_files.changes(self.fs, wanted)

    def _write_files(self, state: smt_state.State) -> _Files:
        files = self._file_changes(state)
        if files and not self._recorded(config_files.apply, self.fs, files):
            return {}
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
        if set(after["present"]) - set(after["online"]):
            self.warnings += [f"{sentence}. It may undo this" for sentence in others.find(self.fs)]
        if self.pending is not None and self.rollback_pending and not self.begins:
            self.warnings.append(
                f"{pending_rollback.sentence(self.pending)}. What is requested here is rolled back with it, and is not"
                " confirmed by this call"
            )
        # Conflicts that refuse the change have raised an error before.
        kind = "expected affinity conflict" if self.request.check else "affinity conflict"
        self.warnings += [f"{kind}: {finding.text}" for finding in self.findings if finding.is_conflict][
            : affinity.MAX_LINES
        ]
        self.warnings += self.fs.problems
        return {
            "changed": changed,
            "before": _readable(self.before),
            "after": _readable(after),
            "affinity_conflicts": [finding.text for finding in self.findings],
            "not_restored": self.not_restored,
            "consumers": [f"{step.service}: {step.does}" for step in self.steps],
            "rollback_pending": pending,
            "rollback_started": self.begins and self.rollback_pending and not self.request.check,
            "diff": _diff(self.before, after) + config_files.diff(files) + self._consumers_diff(),
        }

    def _consumers_diff(self) -> "list[dict[str, str]]":
        where = "services that count CPUs"
        return [
            {
                "before_header": where,
                "after_header": where,
                "before": "".join(f"{step.service}: {step.counted}\n" for step in self.steps),
                "after": "".join(f"{step.service}: {step.gets} CPUs, by {step.does}\n" for step in self.steps),
            }
        ][: len(self.steps)]


def _readable(state: smt_state.State) -> ShownState:
    return {"control": state["control"], "active": state["active"], "online": cpulist.render(state["online"])}


def _diff(before: smt_state.State, after: smt_state.State) -> "list[dict[str, str]]":
    def text(state: smt_state.State) -> str:
        shown = _readable(state)
        return f"smt/control: {shown['control']}\nonline: {shown['online']}\n"

    where = "/" + smt_state.CPU_DIRECTORY
    return [{"before_header": where, "after_header": where, "before": text(before), "after": text(after)}]
