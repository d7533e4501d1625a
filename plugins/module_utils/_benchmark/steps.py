# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of an evaluation on the host: say what will be done, do it, hand over what was measured, forget it."""

from __future__ import annotations

import contextlib
import os
import signal
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms import changes
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import environment, plan
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import (
    RunDirectory,
    RunDirectoryError,
    base_directory,
    kept_runs,
    sweep,
    utc_now,
)
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.locks import HostLock, HostLockError
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import runner
from ansible_collections.threadwise.smt.plugins.module_utils._siblings import cache as sibling_cache
from ansible_collections.threadwise.smt.plugins.module_utils._smt import affinity, restore as smt_restore, state as smt_state, watchdog
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache, topology
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in

# A plan ends later than its budget by its last block and by putting the host back; after so many seconds more it hangs.
PATIENCE = 600
# So long the fetching of a run waits until its process, or what puts the host back after one that was killed, has ended.
END_SECONDS = 60
# Evaluations of one user who is not root keep out of each other's way by this file beside their runs; root's by the host's lock.
USER_LOCK = "lock"
# A plan that is ended politely still puts the host back; SIGKILL is the guard's business.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def describe(name: str, settings: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What the plan would do here, without touching anything.

    Args:
        name: the run's name.
        settings: as for ``plan.Plan``.

    Returns:
        dict: ``announcement`` (list of sentences), ``compared``, ``reason``, ``missing_packages``, ``directory`` (of the runs), ``uncollected``
        (names of runs that have ended and are still kept here, of evaluations whose controller was lost).

    Raises:
        RunDirectoryError, PlanError, WorkloadError, PlacementError: the name, or a setting, cannot be.
    """
    RunDirectory(base_directory(), name)
    plan.check_settings(settings)
    host = smt_facts.gather(HostFs("/"))
    outline = _outline(host, settings, smt_state.read("/"))
    return {
        "announcement": announcement(host, outline, settings),
        "compared": outline.change.compared,
        "reason": outline.change.reason,
        "missing_packages": missing_packages(settings),
        "directory": base_directory(),
        "uncollected": kept_runs(base_directory()),
    }


def announcement(host: t.Mapping[str, t.Any], outline: plan.Outline, settings: t.Mapping[str, t.Any]) -> list[str]:
    """What will be switched and for how long, as sentences for a person.

    Args:
        host: ``ansible_facts['smt']``.
        outline: the plan's Outline.
        settings: as for ``plan.Plan``.
    """
    length = _length(settings["budget"])
    here = (
        f"Sockets: {_known(host['sockets'])}, cores: {_known(host['cores'])}, threads per core: {_known(host['threads_per_core']['max'])}, "
        f"online: CPUs {_known(host['cpus']['online'])}, smt/control: {host['control']}."
    )
    disagreement: str | None = sibling_cache.disagreement(host["measured"])
    told = [here, *([disagreement] if disagreement else [])]
    if not outline.change.compared:
        return [*told, f"Nothing will be switched: {outline.change.reason}.", f"The placements that exist here are measured for {length}."]
    return [*told, *outline.change.announcement(length)]


def _known(value: object) -> object:
    return "unknown" if value is None else value


def missing_packages(settings: t.Mapping[str, t.Any]) -> list[str]:
    """The packages that bring the commands which the plan's workloads need and this host has not got, sorted."""
    path = os.environ.get("PATH", os.defpath)
    absent = [workload for workload in plan.chosen(settings) if built_in.missing(workload, path)]
    return sorted({package for package in map(built_in.package, absent) if package is not None})


def _length(seconds: float) -> str:
    return f"about {seconds} s" if seconds < 120 else f"about {round(seconds / 60)} min"


def _outline(host: t.Mapping[str, t.Any], settings: t.Mapping[str, t.Any], origin: dict[str, t.Any]) -> plan.Outline:
    filesystem = HostFs("/")
    change = changes.of(host, topology.read_topology(filesystem, topology_cache.load(filesystem)), settings, origin)
    return plan.Outline(change, os.sched_getaffinity(0), settings["placements"])


def measure(name: str, settings: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    """Carry the plan out and leave its result in the run's folder.

    Args:
        name: the run's name.
        settings: as for ``plan.Plan``.

    Returns:
        dict: ``outcome`` (``completed``, ``failed``, ``interrupted``) and ``message`` (str or None).

    Raises:
        PlanError, RunDirectoryError, HostLockError, GuardError: nothing was begun.
    """
    plan.check_settings(settings)
    files = RunDirectory(base_directory(), name)
    with _alone(f"an evaluation (run {name})") as lock:
        _see_that_no_change_waits(affinity.Host("/"))
        host = smt_facts.gather(HostFs("/"))
        outline = _outline(host, settings, smt_state.read("/"))
        change = outline.change
        saved = change.saved()
        sweep(base_directory())
        files.create()
        files.write("pid.json", os.getpid())
        # The number of a process from before a reboot may be another's now.
        files.write("boot.json", (HostFs("/").read("proc/sys/kernel/random/boot_id") or "").strip())
        # From here on who looks sees whether the plan's process is there.
        files.write("progress.json", {"phase": "starting", "block": 1, "fraction": 0.0, "seconds_left": settings["budget"]}, lasting=False)
        files.write("state.json", saved)
        keeper = watchdog.Guard(
            "/",
            saved["cpu"],
            files.file("guard.log"),
            restore=lambda: change.put_back(saved),
            seconds=settings["budget"] + PATIENCE,
            keep=(lock.descriptor, files.descriptor),
        )
        for number in ENDING_SIGNALS:
            signal.signal(number, _interrupt)
        if change.compared:
            keeper.arm()
        ending = _carry_out(files, name, host, outline, settings, saved)
        if change.compared:
            keeper.disarm()
        files.release()
    return {"outcome": ending["outcome"], "message": ending["message"]}


def _see_that_no_change_waits(host: affinity.Host) -> None:
    """Refuse a host with a change that nobody confirmed: the timer that takes it back would wait for the lock as long as the evaluation takes.

    Args:
        host: ``affinity.Host``.

    Raises:
        HostLockError: a change waits to be confirmed.
    """
    if smt_restore.pending(host) is not None:
        raise HostLockError(
            "a change of this host waits to be confirmed, and goes back by itself if it is not (revert_after of smt_state): confirm it, wait, "
            "or ask for state: restored, and evaluate then"
        )


@contextlib.contextmanager
def _alone(purpose: str) -> t.Iterator[HostLock]:
    """Hold the host against others that change or measure it; yields the lock, for the guard to keep.

    Without root nothing can be changed here, and the lock's folder is root's: then it is held against other evaluations of the same user.
    """
    mine = HostLock("/", purpose) if os.geteuid() == 0 else HostLock(os.path.dirname(base_directory()), purpose, path=USER_LOCK)
    with mine as lock:
        yield lock


def _carry_out(
    files: RunDirectory, name: str, host: t.Mapping[str, t.Any], outline: plan.Outline, settings: t.Mapping[str, t.Any], saved: dict[str, t.Any]
) -> dict[str, t.Any]:
    """Measure, put the host back, and say in ending.json how it went. Returns what it says."""
    ending: dict[str, t.Any] = {"outcome": "completed", "message": None, "skipped": []}
    work: plan.Plan | None = None
    change = outline.change
    try:
        # Before anything is switched: a run that has a header can be fetched, whenever it is killed.
        work = _planned(files, name, host, outline, settings)
        if change.compared and change.prepare():
            work = _planned(files, name, *_look_again(settings, saved["cpu"]), settings)
        work.measure()
    except plan.Interrupted as error:
        ending.update(outcome="interrupted", message=str(error))
    except (plan.PlanError, changes.ChangeError, runner.RunnerError, RunDirectoryError, OSError) as error:
        ending.update(outcome="failed", message=str(error))
    # A second signal must not end what puts the host back.
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    ending["restored"] = changes.proof(saved, change.put_back(saved) if change.compared else ())
    ending["finished"] = utc_now()
    ending["skipped"] = work.skipped if work else []
    # On a disk that is full or read-only the controller still has the samples so far, and what this process answers.
    with contextlib.suppress(RunDirectoryError, OSError):
        # Inputs are large, and go first.
        files.remove_inputs()
        files.write("ending.json", ending)
        files.write("progress.json", {"phase": "ended"})
    return ending


def _planned(files: RunDirectory, name: str, host: t.Mapping[str, t.Any], outline: plan.Outline, settings: t.Mapping[str, t.Any]) -> plan.Plan:
    """The plan, with its header written."""
    work = plan.Plan(files, outline, settings)
    files.write("header.json", work.header(host, environment.read(host["hypervisor"]), name))
    return work


def _look_again(settings: t.Mapping[str, t.Any], origin: dict[str, t.Any]) -> tuple[t.Mapping[str, t.Any], plan.Outline]:
    """The facts and the outline as they are with all siblings online.

    Raises:
        PlanError: the core of some CPU is still not known.
    """
    host = smt_facts.gather(HostFs("/"))
    outline = _outline(host, settings, origin)
    if outline.change.prepare():
        raise plan.PlanError(f"the core of some CPU is not known even with SMT switched on: CPUs {host['cpus']['offline']} are offline")
    return host, outline


def _interrupt(number: int, _frame: types.FrameType | None) -> t.NoReturn:
    raise plan.Interrupted(f"the plan was ended by {signal.Signals(number).name} before it was done")


def collect(name: str, _settings: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The result document of a run, whether it ended or was killed.

    Returns:
        dict: ``result`` (without the host's name, which only the controller knows).

    Raises:
        RunDirectoryError: there is no such run, it still lives, or its header is damaged.
        HostLockError: the run was killed, and while another one changes this host nobody can say whether the host was put back.
    """
    files = RunDirectory(base_directory(), name)
    files.see_that_it_has_ended(END_SECONDS)
    result = files.result()
    if result["restored"] is None and result["change"]["compared"]:
        # The plan was killed and could not say what its guard did: the host as it is now is the proof.
        saved = files.read("state.json")
        with _alone(f"fetching run {name}"):
            result["restored"] = changes.proof(saved) if saved else None
    return {"result": result}


def forget(name: str, _settings: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Remove a run's folder; its result has arrived elsewhere.

    Raises:
        RunDirectoryError: it still lives, or cannot be removed.
    """
    files = RunDirectory(base_directory(), name)
    files.see_that_it_has_ended(END_SECONDS)
    files.remove()
    return {}


STEPS: dict[str, t.Callable[[str, t.Mapping[str, t.Any]], t.Mapping[str, t.Any]]] = {
    "describe": describe,
    "measure": measure,
    "collect": collect,
    "forget": forget,
}
