# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of an evaluation on the host: describe what will be done, measure, end it early, return the result,
and remove it.
"""

import contextlib
import os
import signal
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._host.locks import HostLock, HostLockError
from ansible_collections.threadwise.smt.plugins.module_utils._host.text import utc_now
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import (
    cache as sibling_cache,
    source as sibling_source,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import (
    environment,
    plan,
    selection,
    settings as plan_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import (
    RunDirectory,
    RunDirectoryError,
    base_directory,
    kept_runs,
    running_runs,
    sweep,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas, runner
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings import rounds
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import declaration
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state, watchdog
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import pending as pending_rollback

# A plan ends later than its budget, because of its last block and of restoring the host. After this many more seconds
# it is considered hung.
WATCHDOG_EXTRA_SECONDS = 600
# How long fetching a run waits until its process, or the watchdog that restores the host after it, has ended.
END_SECONDS = 60
# How long ending a run takes at most: the sample that is being taken is ended, and each arm is restored.
STOP_SECONDS = 300
# How long an evaluation waits for the lock: another process that only looks whether the host is free holds it for a
# moment.
LOCK_SECONDS = 1.0
# The lock file against other evaluations of the same user who is not root, beside the runs. Root uses the host's lock.
USER_LOCK = "lock"
# A plan that gets one of these signals still restores the host. After SIGKILL the watchdog does.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def describe(name: str, settings: "t.Mapping[str, t.Any]") -> "dict[str, t.Any]":
    """Describe what the plan would do on this host, without changing anything.

    Args:
        name: the name of the run.
        settings: as for ``plan.Plan``.

    Returns:
        dict: ``announcement`` (list of sentences), ``arms`` and ``arms_left_out`` (as in the result), ``workloads``
        (names of those that can be measured), ``workloads_left_out`` (``name`` and ``reason``), ``missing_packages``,
        ``obstacles`` (why the plan cannot start now, one sentence each), ``directory`` (of all runs), ``uncollected``
        (names of runs that have ended and are still on this host, because their controller did not fetch them),
        ``hides_siblings`` (whether mode ``auto`` of `smt_probe` would measure here), ``busy`` (the CPUs that other work
        wants, as a share of those online).

    Raises:
        RunDirectoryError: the name of the run is not valid.
        SettingsError: a setting is not valid.
        ArmError: an arm does not exist.
        WorkloadError: a workload does not exist, or a user's own command is not valid.
        PlacementError: a placement does not exist.
        SiblingsError: the siblings that are asked for are not valid, or not known on this host.
        HostError: an owner of affinity conflicts is nobody on this host.
    """
    RunDirectory(base_directory(), name)
    plan_settings.check_settings(settings)
    affinity.check_users(KernelFiles("/"), settings["affinity_conflicts_of"])
    host = smt_facts.gather(HostFs("/"), settings["siblings"])
    outline = _outline(host, settings, smt_state.read("/"))
    left_out = _missing(settings)
    lacking = [workload["name"] for workload, _reason in left_out]
    wanted, cpus = environment.wanted_by_others()
    shape, *planned = announcement(host, outline, settings)
    return {
        "announcement": [
            shape,
            *environment.announcement(wanted, cpus, t.cast("str | None", environment.read()["governor"])),
            *planned,
            *(_left_out(workload, reason) for workload, reason in left_out),
        ],
        "arms": outline.arms.described(),
        "arms_left_out": outline.arms.left_out,
        "workloads": [
            workload["name"] for workload in plan_settings.chosen(settings) if workload["name"] not in lacking
        ],
        "workloads_left_out": [{"name": workload["name"], "reason": reason} for workload, reason in left_out],
        "missing_packages": sorted({package for workload, _reason in left_out for package in _packages(workload)}),
        "obstacles": _obstacles(HostFs("/"), outline),
        "directory": base_directory(),
        "uncollected": kept_runs(base_directory()),
        "hides_siblings": rounds.wanted("auto", host),
        "busy": wanted / cpus,
    }


def announcement(
    host: "t.Mapping[str, t.Any]", outline: plan.Outline, settings: "t.Mapping[str, t.Any]"
) -> "list[str]":
    """Return what will be switched and for how long, as sentences for people.

    Args:
        host: ``ansible_facts['smt']``.
        outline: the plan's Outline.
        settings: as for ``plan.Plan``.
    """
    summary = (
        f"Sockets: {_known(host['sockets'])}, cores: {_known(host['cores'])}, threads per core:"
        f" {_known(host['threads_per_core']['max'])}, online: CPUs {_known(host['cpus']['online'])}, smt/control:"
        f" {host['control']}."
    )
    measured, about_siblings = host["measured"], sibling_source.described(outline.topology)
    if about_siblings is None and measured is not None:
        about_siblings = sibling_cache.disagreement(measured["agrees_with_kernel"], measured["pairs"])
    sentences = [summary, *([about_siblings] if about_siblings else [])]
    share = plan_settings.share(settings)
    if settings["shared_by"] > 1:
        sentences.append(
            f"{settings['shared_by']} hosts of this hardware class share the work of one: this one measures for"
            f" {selection.length(share)} of {selection.length(settings['budget'])}, and longer only until it has"
            f" {verdicts.MIN_BLOCKS_RANKED} blocks."
        )
    limits = quotas.announcement(quotas.read(HostFs("/")), len(cpulist.parse_or_empty(host["cpus"]["online"])))
    return [*sentences, *outline.arms.announcement(share), *limits]


def _known(value: object) -> object:
    return "unknown" if value is None else value


def _missing(settings: "t.Mapping[str, t.Any]") -> "list[tuple[declaration.Workload, str]]":
    """Return the workloads whose commands this host does not have, each with what is missing."""
    missing = [(workload, declaration.missing(workload, _path())) for workload in plan_settings.chosen(settings)]
    return [(workload, reason) for workload, reason in missing if reason is not None]


def _packages(workload: declaration.Workload) -> "set[str]":
    return declaration.missing_packages(workload, _path())


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def _left_out(workload: declaration.Workload, reason: str) -> str:
    remedy = "; smt_eval_install=true installs what is missing" if _packages(workload) else ""
    return f"The workload {workload['name']} is left out: {reason}{remedy}."


def _obstacles(fs: HostFs, outline: plan.Outline) -> "list[str]":
    """Return why a plan could not start on this host now, one sentence each."""
    root = outline.arms.needs_root()
    holder = _lock("").holder()
    try:
        _see_that_no_change_waits(fs)
    except HostLockError as error:
        return [*filter(None, (root, holder)), str(error)]
    return [*filter(None, (root, holder))]


def _outline(
    host: "t.Mapping[str, t.Any]",
    settings: "t.Mapping[str, t.Any]",
    origin: smt_state.State,
    saved: "t.Container[str] | None" = None,
) -> plan.Outline:
    filesystem = HostFs("/")
    cores = sibling_source.read(filesystem, settings["siblings"])
    selected = settings["affinity_conflicts_of"] if settings["affinity_conflicts"] == "fail" else []
    arms = selection.Arms(
        settings["arms"], base.ArmHost(host, cores, origin, selected, settings["overcommit_ratio"]), saved
    )
    allowed = os.sched_getaffinity(0)
    usable = ((allowed | set(cores.offline)) & set(cores.present)) - set(cores.isolated)
    core_count = sum(1 for core in cores.cores if usable & set(core)) or len(usable)
    return plan.Outline(
        arms,
        cores,
        allowed,
        plan_settings.placement_names(settings, core_count, len(usable)),
        topology.read_memory_nodes(filesystem),
    )


def measure(name: str, settings: "t.Mapping[str, t.Any]") -> "dict[str, str | None]":
    """Carry out the plan. The result stays in the run's directory.

    Args:
        name: the name of the run.
        settings: as for ``plan.Plan``.

    Returns:
        dict: ``outcome`` (``completed``, ``failed``, ``interrupted``) and ``message`` (str or None).

    Raises:
        SettingsError: a setting is not valid; as for the other exceptions, nothing was measured or switched.
        ArmError: an arm does not exist.
        WorkloadError: a workload does not exist, or a user's own command is not valid.
        PlacementError: a placement does not exist.
        SiblingsError: the siblings that are asked for are not valid, or not known on this host.
        RunDirectoryError: the run's directory cannot be created, or it exists.
        HostLockError: another run holds the host, or a change on it waits to be confirmed.
        WatchdogError: the watchdog cannot be started.
    """
    plan_settings.check_settings(settings)
    files = RunDirectory(base_directory(), name)
    with _alone(f"an evaluation (run {name})") as lock:
        _see_that_no_change_waits(HostFs("/"))
        host = smt_facts.gather(HostFs("/"), settings["siblings"])
        outline = _outline(host, settings, smt_state.read("/"))
        arms = outline.arms
        not_root = arms.needs_root()
        if not_root:
            raise plan.PlanError(not_root)
        saved = arms.save()
        sweep(base_directory())
        files.create()
        files.write("pid.json", os.getpid())
        # After a reboot another process can have the same pid.
        files.write("boot.json", state_file.boot_id(HostFs("/")))
        # From here on the controller can see whether the process of the plan exists.
        files.write(
            "progress.json",
            {"phase": "starting", "block": 1, "fraction": 0.0, "seconds_left": plan_settings.share(settings)},
            lasting=False,
        )
        files.write("state.json", saved)
        host_watchdog = watchdog.Watchdog(
            files.file("watchdog.log"),
            lambda: arms.restore(saved),
            seconds=settings["budget"] + WATCHDOG_EXTRA_SECONDS,
            keep=(lock.descriptor, files.descriptor),
        )
        for number in ENDING_SIGNALS:
            signal.signal(number, _interrupt)
        if arms.compared:
            host_watchdog.arm()
        ending = _carry_out(files, name, host, outline, settings, saved)
        if arms.compared:
            host_watchdog.disarm()
        files.release()
    return {"outcome": ending["outcome"], "message": ending["message"]}


def _see_that_no_change_waits(fs: HostFs) -> None:
    """Refuse a host with a pending rollback, because the rollback would wait for the lock until the evaluation ends.

    Args:
        fs: the host's files.

    Raises:
        HostLockError: a change waits to be confirmed.
    """
    pending = pending_rollback.load(fs)
    if pending is not None:
        raise HostLockError(
            f"a change on this host waits to be confirmed ({pending_rollback.sentence(pending)}): confirm it, wait for"
            " the rollback, or use state: restored, then start the evaluation again"
        )


@contextlib.contextmanager
def _alone(purpose: str) -> "t.Iterator[HostLock]":
    """Lock the host against other processes that change or measure it.

    Without root nothing can be switched, and the lock's directory belongs to root. Then the lock is only against
    evaluations of the same user.

    Args:
        purpose: what the lock is for, as the next process reads it.

    Yields:
        The lock, which the watchdog keeps open.
    """
    with _lock(purpose) as lock:
        yield lock


def _lock(purpose: str) -> HostLock:
    """Return the lock against other processes, for root that of the host, for others that of their own evaluations."""
    if os.geteuid() == 0:
        return HostLock("/", purpose, LOCK_SECONDS)
    return HostLock(os.path.dirname(base_directory()), purpose, LOCK_SECONDS, path=USER_LOCK)


def _carry_out(
    files: RunDirectory,
    name: str,
    host: "t.Mapping[str, t.Any]",
    outline: plan.Outline,
    settings: "t.Mapping[str, t.Any]",
    saved: "dict[str, t.Any]",
) -> "dict[str, t.Any]":
    """Measure, restore the host, and write the ending of the run to ending.json. Returns that ending."""
    ending: dict[str, t.Any] = {"outcome": "completed", "message": None, "skipped": []}
    work: t.Optional[plan.Plan] = None
    arms = outline.arms
    try:
        # Write the header before anything is switched: a run with a header can be fetched, whenever it is killed.
        work = _create_plan(files, name, host, outline, settings)
        if arms.compared and arms.prepare():
            host, outline = _gather_again(settings, saved)
            if not outline.arms.compared:
                # What the host shows with all siblings online prevents the comparison: measure it as it was found.
                arms.restore(saved)
            work = _create_plan(files, name, host, outline, settings)
        outline.arms.begin(saved)
        work.measure()
    except plan.Interrupted as error:
        ending.update(outcome="interrupted", message=str(error))
    except (plan.PlanError, base.ArmError, runner.RunnerError, RunDirectoryError, OSError) as error:
        ending.update(outcome="failed", message=str(error))
    # A second signal must not interrupt the restoration of the host.
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    ending["restored"] = selection.differences(saved, arms.restore(saved) if arms.compared else ())
    ending["finished"] = utc_now()
    ending["skipped"] = work.skipped if work else []
    # If the disk is full or read-only, the controller still gets the samples so far and the return value of this
    # process.
    with contextlib.suppress(RunDirectoryError, OSError):
        # Remove the inputs first: they can be large.
        files.remove_inputs()
        files.write("ending.json", ending)
        files.write("progress.json", {"phase": "ended"})
    return ending


def _create_plan(
    files: RunDirectory,
    name: str,
    host: "t.Mapping[str, t.Any]",
    outline: plan.Outline,
    settings: "t.Mapping[str, t.Any]",
) -> plan.Plan:
    """Create the plan and write its header."""
    work = plan.Plan(files, outline, settings)
    files.write("header.json", work.header(host, environment.read(host["hypervisor"]), name))
    return work


def _gather_again(
    settings: "t.Mapping[str, t.Any]", saved: "t.Mapping[str, t.Any]"
) -> "tuple[t.Mapping[str, t.Any], plan.Outline]":
    """Return the facts and the outline with all siblings online.

    Args:
        settings: as for ``plan.Plan``.
        saved: the state of the host before anything was switched.

    Raises:
        PlanError: the core of a CPU is still unknown.
    """
    host = smt_facts.gather(HostFs("/"), settings["siblings"])
    outline = _outline(host, settings, saved["cpu"], saved)
    if outline.arms.prepare():
        raise plan.PlanError(
            f"the core of some CPUs is unknown even with SMT switched on: CPUs {host['cpus']['offline']} are offline."
            f" Bring them online (chcpu -e {host['cpus']['offline']}) and start again: the cores stay known once a"
            " change or an evaluation has seen all CPUs online"
        )
    return host, outline


def _interrupt(number: int, _frame: t.Optional[types.FrameType]) -> t.NoReturn:
    raise plan.Interrupted(f"the plan was ended by {signal.Signals(number).name} before it was done")


def stop(check: bool) -> "tuple[list[str], list[str], bool]":
    """End the runs that are being measured on this host, and wait until it is restored.

    Args:
        check: only look.

    Returns:
        The names of the runs that were being measured, the names of all runs that can be fetched now, and whether the
        siblings of this host were being measured, with which an evaluation begins.

    Raises:
        RunDirectoryError: a run has not ended after ``STOP_SECONDS``.
    """
    running = running_runs(base_directory())
    for files in [] if check else running:
        pid = files.process()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    for files in [] if check else running:
        files.wait_for_end(STOP_SECONDS)
    probe = HostLock("/", "").pid_of(rounds.PURPOSE)
    if probe is not None and not check:
        with contextlib.suppress(ProcessLookupError):
            os.kill(probe, signal.SIGTERM)
    return [files.run for files in running], kept_runs(base_directory()), probe is not None


def collect(name: str, _settings: "t.Mapping[str, t.Any]") -> "dict[str, t.Any]":
    """Return the result of a run that has ended or was killed.

    Args:
        name: the name of the run.
        _settings: not used.

    Returns:
        dict: ``result`` (without the host's name, which only the controller knows).

    Raises:
        RunDirectoryError: there is no such run, it has not ended, or its header is damaged.
        HostLockError: the run was killed, and another process is changing this host, so that it cannot be checked
            whether the host was restored.
    """
    files = RunDirectory(base_directory(), name)
    files.wait_for_end(END_SECONDS)
    result = files.result()
    if result["restored"] is None and len(result["arms"]) > 1:
        # A plan that was killed cannot report what its watchdog did. The current state of the host shows it.
        saved = files.read("state.json")
        with _alone(f"fetching run {name}"):
            result["restored"] = selection.differences(saved) if saved else None
    return {"result": result}


def forget(name: str, _settings: "t.Mapping[str, t.Any]") -> "dict[str, t.Any]":
    """Remove a run's directory after its result was fetched.

    Args:
        name: the name of the run.
        _settings: not used.

    Returns:
        An empty dict.

    Raises:
        RunDirectoryError: the run has not ended, or its directory cannot be removed.
    """
    files = RunDirectory(base_directory(), name)
    files.wait_for_end(END_SECONDS)
    files.remove()
    return {}


STEPS: "dict[str, t.Callable[[str, t.Mapping[str, t.Any]], t.Mapping[str, t.Any]]]" = {
    "describe": describe,
    "measure": measure,
    "collect": collect,
    "forget": forget,
}
