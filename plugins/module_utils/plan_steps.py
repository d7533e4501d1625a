# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of an evaluation on the host: say what will be done, do it, hand over what was measured, forget it."""

from __future__ import annotations

import os
import signal

from ansible_collections.threadwise.smt.plugins.module_utils import cpu_state, environment, facts, guard, plan, runner, saved_map, topology, workloads
from ansible_collections.threadwise.smt.plugins.module_utils.cpulist import format_cpulist
from ansible_collections.threadwise.smt.plugins.module_utils.host_lock import HostLock
from ansible_collections.threadwise.smt.plugins.module_utils.hostfs import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils.run_directory import RunDirectory, base_directory, kept_runs, utc_now

# A plan that is ended politely still puts the host back; SIGKILL is the guard's business.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def describe(_name, settings):
    """What the plan would do here, without touching anything.

    Args:
        settings: as for ``plan.Plan``.

    Returns:
        dict: ``announcement`` (list of sentences), ``compared``, ``reason``, ``missing_packages``, ``directory`` (of the runs), ``uncollected``
        (names of runs that are still kept here, of evaluations whose controller was lost).
    """
    plan.check_settings(settings)
    host = facts.gather(HostFs("/"))
    outline = _outline(host, settings)
    return {
        "announcement": announcement(host, outline, settings),
        "compared": outline.compared,
        "reason": outline.reason,
        "missing_packages": missing_packages(settings["workloads"]),
        "directory": base_directory(),
        "uncollected": kept_runs(base_directory()),
    }


def announcement(host, outline, settings):
    """What will be switched and for how long, as sentences for a person.

    Args:
        host: ``ansible_facts['smt']``.
        outline: the plan's Outline.
        settings: as for ``plan.Plan``.
    """
    length = _length(settings["budget"])
    here = "%s cores with %s threads in %s sockets, SMT %s (%s)" % (
        host["cores"] or "an unknown number of", host["threads_per_core"]["max"] or "an unknown number of", host["sockets"] or "an unknown number of",
        {True: "on", False: "off", None: "unknown"}[host["active"]], host["hardware_class"])
    if not outline.compared:
        return [here, "Nothing will be switched: %s." % outline.reason, "The placements that exist here are measured for %s." % length]
    secondaries = outline.secondaries({cpu for core in outline.topology.cores for cpu in core})
    which = "CPUs %s" % format_cpulist(secondaries) if secondaries else "siblings, not known by number while they are offline,"
    return [
        here,
        "SMT will be switched off and on again many times by %s: %s go offline in every second part." % (host["methods"]["runtime"]["chosen"], which),
        "This goes on for %s; then SMT is put back as it is now (%s, online %s), also when the run fails or the controller is lost."
        % (length, host["control"], host["cpus"]["online"]),
    ]


def missing_packages(names):
    """The packages that bring the commands which these workloads need and this host has not got, sorted."""
    path = os.environ.get("PATH", os.defpath)
    return sorted({workload["package"] for workload in workloads.named(names) if workloads.missing(workload, path)})


def _length(seconds):
    return "about %d s" % seconds if seconds < 120 else "about %d min" % round(seconds / 60)


def _outline(host, settings):
    filesystem = HostFs("/")
    return plan.Outline(host, topology.read_topology(filesystem, saved_map.load(filesystem)), os.sched_getaffinity(0), settings)


def measure(name, settings):
    """Carry the plan out and leave its result in the run's folder.

    Args:
        name: the run's name.
        settings: as for ``plan.Plan``.

    Returns:
        dict: ``outcome`` (``completed``, ``failed``, ``interrupted``), ``message`` (str or None), ``samples`` (their number), ``restored``.

    Raises:
        PlanError, RunDirectoryError, HostLockError: nothing was begun.
    """
    plan.check_settings(settings)
    files = RunDirectory(base_directory(), name)
    with HostLock("/", "an evaluation (run %s)" % name):
        files.create()
        state = cpu_state.read("/")
        files.write("state.json", state)
        ending = {"outcome": "completed", "message": None}
        keeper = guard.Guard("/", state, files.file("guard.log"))
        for number in ENDING_SIGNALS:
            signal.signal(number, _interrupt)
        work = None
        try:
            keeper.arm()
            work = _begin(files, name, settings, state)
            work.measure()
        except plan.Interrupted as error:
            ending = {"outcome": "interrupted", "message": str(error)}
        except (plan.PlanError, cpu_state.StateError, runner.RunnerError, OSError) as error:
            ending = {"outcome": "failed", "message": str(error)}
        finally:
            # A second signal must not end what puts the host back.
            for number in ENDING_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            restored = plan.restore(state)
            keeper.disarm()
        ending.update(restored=restored, finished=utc_now(), skipped=work.skipped if work else [])
        files.write("ending.json", ending)
        files.remove_inputs()
        files.write("progress.json", {"phase": "ended"})
        return {"outcome": ending["outcome"], "message": ending["message"], "samples": work.samples_done if work else 0, "restored": restored}


def _begin(files, name, settings, state):
    """Read the host and write the result's header. SMT is switched on first where its siblings are not known otherwise."""
    host = facts.gather(HostFs("/"))
    outline = _outline(host, settings)
    if outline.compared and not outline.topology.complete:
        cpu_state.enable("/", outline.topology.cores)
        host = facts.gather(HostFs("/"))
        outline = _outline(host, settings)
        if not outline.topology.complete:
            raise plan.PlanError("the siblings of this host are not known even with SMT switched on")
    if outline.compared:
        saved_map.save(HostFs("/"), outline.topology)
    work = plan.Plan(files, outline, settings, state)
    files.write("header.json", work.header(host, environment.read(host["hypervisor"]), name))
    return work


def _interrupt(number, _frame):
    raise plan.Interrupted("the plan was ended by %s before it was done" % signal.Signals(number).name)


def collect(name, _settings):
    """The result document of a run, whether it ended or was killed.

    Returns:
        dict: ``result`` (without the host's name, which only the controller knows).
    """
    files = RunDirectory(base_directory(), name)
    with HostLock("/", "fetching run %s" % name):
        result = files.result()
        if result["restored"] is None and result["change"]["compared"]:
            # The plan was killed and could not say what its guard did: the host as it is now is the proof.
            result["restored"] = plan.compare_with(files.read("state.json"))
    return {"result": result}


def forget(name, _settings):
    """Remove a run's folder; its result has arrived elsewhere."""
    RunDirectory(base_directory(), name).remove()
    return {}


STEPS = {"describe": describe, "measure": measure, "collect": collect, "forget": forget}
