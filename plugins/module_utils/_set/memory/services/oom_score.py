# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services protected from the OOM killer: a drop-in with OOMScoreAdjust= for the next start,
oom_score_adj for the running processes.

A process inherits its score when it is forked, and systemd does not change running processes (systemd.exec(5)). Some
services set scores of their own (sshd itself -1000, PostgreSQL its backends 0): only scores that a process has from its
unit are changed.
"""

import contextlib
import os
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import sysctl_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.errors import MemoryPolicyError

SYSTEM_UNITS = "etc/systemd/system"
DROP_IN = "zz-threadwise-smt-memory.conf"
# The OOM killer counts 90 % of RAM and swap less, so that others come first unless a service has more. With -1000 one
# that leaks memory would bring down all others, and then the kernel.
SCORE = -900
TEXT = f"# Written by threadwise.smt.smt_memory.\n[Service]\nOOMScoreAdjust={SCORE}\n"
# systemd.unit(5): "unit name prefix" and instance; at most 255 characters. Without a slash the name cannot leave the
# directory of units.
NAME = re.compile(r"\A[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service\Z")
MAX_NAME_LENGTH = 255
PROPERTIES = ("Id", "LoadState", "MainPID", "ControlGroup", "OOMScoreAdjust")
MAX_DEPTH = 8
_INTEGER = re.compile(r"\A-?[0-9]{1,10}\Z")
_CGROUP_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/systemd", "sys/fs/cgroup/unified")

# Runs a command; returns its exit status, output and error output, like AnsibleModule.run_command.
Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]


class UnitError(MemoryPolicyError):
    """A unit cannot be protected; the text names the unit, the reason and the way out."""


class Unit(TypedDict):
    """A service, before the work.

    Attributes:
        cgroup: path of its cgroup as systemd prints it; may be empty.
        drop_in: the text of our drop-in, or None without one.
        scores: the OOM score adjustments of its processes, by process id.
    """

    cgroup: str
    drop_in: "str | None"
    scores: "dict[int, int]"


class Task(Unit):
    """What has to be done to protect one unit.

    Attributes:
        score: OOM score adjustment that the unit itself gives its processes.
        pids: processes whose score has to be changed, in that order.
    """

    score: int
    pids: "list[int]"


class Work(TypedDict):
    """What has to be done so that exactly the wanted services are protected.

    Attributes:
        protect: tasks by unit.
        release: units that are protected and no longer wanted.
        kept: units that are protected and stay so, with the scores that systemd gives their processes at the next
            start.
    """

    protect: "dict[str, Task]"
    release: "dict[str, Unit]"
    kept: "dict[str, int]"


def check_name(name: str) -> str:
    """Return the full name of a service: ``sshd`` becomes ``sshd.service``.

    Args:
        name: a name, as users write it.

    Raises:
        UnitError: It is not a valid name of one service.
    """
    full = name if name.endswith(".service") else name + ".service"
    if not NAME.match(full) or len(full) > MAX_NAME_LENGTH:
        raise UnitError(
            f"{name!r:.80} is not a valid name of a systemd service: use letters, digits and ':-_.\\', an instance"
            " after '@' for a template, and .service or nothing at the end"
        )
    return full


def drop_in_path(unit: str) -> str:
    """Return the path of a unit's drop-in, relative to the sysroot."""
    return f"{SYSTEM_UNITS}/{unit}.d/{DROP_IN}"


def with_drop_in(fs: HostFs) -> "list[str]":
    """List the units that have our drop-in."""
    units = [name[: -len(".d")] for name in fs.names(SYSTEM_UNITS) if name.endswith(".d")]
    return [unit for unit in units if NAME.match(unit) and fs.status(drop_in_path(unit)) is not None]


def ask_systemd(run: Run, names: "Sequence[str]") -> "dict[str, dict[str, str]]":
    """Read the properties of services from systemd.

    Args:
        run: runs a command.
        names: full names of services.

    Returns:
        The ``PROPERTIES`` of each service by the given name; ``Id`` is the service's own name when an alias was given.

    Raises:
        UnitError: systemctl fails.
    """
    if not names:
        return {}
    status, output, errors = run(
        ["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES), "--", *names]
    )
    blocks = [
        dict(line.partition("=")[::2] for line in block.split("\n") if "=" in line)
        for block in output.strip().split("\n\n")
    ]
    if status != 0 or len(blocks) != len(names):
        raise UnitError(
            f"systemctl show failed for {', '.join(names)[:200]}:"
            f" {errors.strip() or output.strip() or 'it printed no error message'!s:.200}"
        )
    return dict(zip(names, blocks))


def _integer(text: "str | None") -> int:
    """Return a number that systemd printed, or 0."""
    return int(text) if text and _INTEGER.match(text) else 0


def processes(fs: HostFs, cgroup: str) -> "dict[int, int]":
    """Return the OOM score adjustments of the processes in a cgroup and those below it.

    Args:
        fs: the host's files.
        cgroup: path of the cgroup as systemd prints it; may be empty.

    Returns:
        Score adjustments by process id.
    """
    scores: dict[int, int] = {}
    if not cgroup:
        return scores
    top = next((path for path in (fs.path(root + cgroup) for root in _CGROUP_ROOTS) if os.path.isdir(path)), None)
    if top is None:
        return scores
    for folder, folders, _files in os.walk(top):
        if folder.count("/") - top.count("/") >= MAX_DEPTH:
            folders.clear()
        for pid in _numbers(os.path.join(folder, "cgroup.procs")):
            score = _score(fs, pid)
            if score is not None:
                scores[int(pid)] = score
    return scores


def _numbers(path: str) -> "list[str]":
    try:
        with open(path, encoding="ascii") as handle:
            return [line for line in handle.read(1 << 20).split("\n") if line.isdigit()]
    except OSError:
        return []


def _score(fs: HostFs, pid: str) -> "int | None":
    # A process may end at any moment (ENOENT, ESRCH), which is not an error.
    try:
        with open(fs.path(f"proc/{pid}/oom_score_adj"), encoding="ascii", errors="replace") as handle:
            text = handle.read(100).strip()
    except OSError:
        return None
    return int(text) if _INTEGER.match(text) else None


def _set_scores(fs: HostFs, scores: "Mapping[int, int]") -> None:
    """Set the scores of processes, in that order; those that have ended are skipped.

    Raises:
        UnitError: The kernel does not permit it.
    """
    kernel = kernel_files.KernelFiles(fs.sysroot)
    for pid, score in scores.items():
        path = f"proc/{pid}/oom_score_adj"
        try:
            kernel.write(path, str(score))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as error:
            raise UnitError(f"{fs.path(path)}: the kernel does not accept {score}: {error.strerror}") from error


def no_work(fs: HostFs) -> Work:
    """Return that the protected services stay as they are."""
    return {"protect": {}, "release": {}, "kept": dict.fromkeys(with_drop_in(fs), SCORE)}


def work_out(fs: HostFs, run: Run, names: "Iterable[str]", saved: "Mapping[str, int]") -> Work:
    """Determine what has to be done so that exactly these services are protected. Nothing is changed.

    Args:
        fs: the host's files.
        run: runs a command.
        names: services, as users name them.
        saved: the scores that units gave their processes before, from the snapshot.

    Raises:
        UnitError: A name is not valid, systemctl fails, or there is no such service.
        MemoryPolicyError: A drop-in of ours is not a text file.
    """
    wanted = sorted({check_name(name) for name in names})
    ours = set(saved) | set(with_drop_in(fs))
    if wanted and not fs.runs_systemd:
        raise UnitError(
            f"protect names {', '.join(wanted)!s:.200}, and systemd, which gives services their scores, does not run on"
            " this host: leave protect out there"
        )
    shown = ask_systemd(run, [*wanted, *sorted(ours.difference(wanted))])
    missing = next((name for name in wanted if shown[name].get("LoadState") == "not-found"), None)
    if missing:
        raise UnitError(f"this host has no service {missing}: remove it from the protected units, or install it first")
    protect, kept = {}, {}
    for name in wanted:
        unit = check_name(shown[name].get("Id", ""))
        task = _task(_unit(fs, unit, shown[name]), shown[name], saved.get(unit))
        if task is not None:
            protect[unit] = task
        elif unit in ours:
            kept[unit] = _integer(shown[name].get("OOMScoreAdjust"))
    release = {unit: _unit(fs, unit, shown[unit]) for unit in sorted(ours.difference(protect, kept))}
    return {"protect": protect, "release": release, "kept": kept}


def _unit(fs: HostFs, unit: str, block: "Mapping[str, str]") -> Unit:
    cgroup = block.get("ControlGroup", "")
    return {"cgroup": cgroup, "drop_in": sysctl_files.own_text(fs, drop_in_path(unit)), "scores": processes(fs, cgroup)}


def _task(unit: Unit, block: "Mapping[str, str]", saved: "int | None") -> "Task | None":
    """Return what is missing for one unit, or None."""
    has_drop_in = unit["drop_in"] == TEXT
    own = _integer(block.get("OOMScoreAdjust")) if saved is None else saved
    if own <= SCORE and not has_drop_in:
        return None
    running, main = unit["scores"], _integer(block.get("MainPID"))
    # Once the main process has the score, processes without it have chosen their own.
    pending = main not in running or running[main] > SCORE
    pids = [pid for pid, score in running.items() if pending and score == own]
    if has_drop_in and not pids:
        return None
    # The main process comes last: its score shows the next run that all processes were changed.
    return {**unit, "score": own, "pids": sorted(pids, key=lambda pid: (pid == main, pid))}


def to_save(saved: "Mapping[str, int]", work: Work) -> "dict[str, int]":
    """Return the scores to save, by unit, before the work is done; scores that are already saved stay."""
    return {**{unit: task["score"] for unit, task in work["protect"].items()}, **saved}


def files(work: Work) -> "dict[str, str | None]":
    """Return the drop-ins that the work wants, by path; None for one that must not exist."""
    return {
        **{drop_in_path(unit): TEXT for unit in work["protect"]},
        **dict.fromkeys(map(drop_in_path, work["release"])),
    }


def files_before(work: Work) -> "dict[str, str | None]":
    """Return the drop-ins from before the work."""
    return {
        drop_in_path(unit): entry["drop_in"] for unit, entry in [*work["protect"].items(), *work["release"].items()]
    }


def remove_empty_folders(fs: HostFs, paths: "Iterable[str]") -> None:
    """Remove the directories of these drop-ins that are empty now."""
    for path in paths:
        # The directory may contain other drop-ins, or may not exist.
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(fs.path(path)))


def reload_units(run: Run) -> None:
    """Let systemd read its files again after drop-ins were written or removed;
    raise UnitError when it has not read them.
    """
    status, output, errors = run(["systemctl", "daemon-reload"])
    if status != 0:
        raise UnitError(
            f"systemctl daemon-reload failed, so systemd has not read the change: {(errors or output).strip()!s:.300}"
        )


def set_scores(fs: HostFs, run: Run, work: Work) -> None:
    """Set the scores of running processes, after systemd has read the drop-ins.

    Args:
        fs: the host's files.
        run: runs a command.
        work: as ``work_out`` returns it.

    Raises:
        UnitError: The kernel refused a change, or systemctl fails.
    """
    for task in work["protect"].values():
        _set_scores(fs, dict.fromkeys(task["pids"], SCORE))
    # Without the drop-in systemd shows the scores that the units give their processes themselves.
    for block in ask_systemd(run, list(work["release"])).values():
        running = processes(fs, block.get("ControlGroup", ""))
        _set_scores(
            fs,
            dict.fromkeys(
                [pid for pid, score in running.items() if score == SCORE], _integer(block.get("OOMScoreAdjust"))
            ),
        )


def changed_scores(fs: HostFs, work: Work) -> "dict[int, int]":
    """Return the scores from before the work, by process id, of those running processes that have others now.

    A process that was forked in between and has inherited the score of a protected service is included.
    """
    scores: dict[int, int] = {}
    for before, own in [
        *((task, task["score"]) for task in work["protect"].values()),
        *((unit, SCORE) for unit in work["release"].values()),
    ]:
        for pid, score in processes(fs, before["cgroup"]).items():
            wanted = before["scores"].get(pid, own if score == SCORE else score)
            if wanted != score:
                scores[pid] = wanted
    return scores


def restore_scores(fs: HostFs, work: Work) -> None:
    """Set the scores from before the work.

    Raises:
        UnitError: The kernel refused a change.
    """
    _set_scores(fs, changed_scores(fs, work))


def shown_scores(run: Run, units: "Iterable[str]") -> "dict[str, int]":
    """Read the scores that systemd gives the processes of units at the next start.

    Raises:
        UnitError: systemctl fails.
    """
    return {unit: _integer(block.get("OOMScoreAdjust")) for unit, block in ask_systemd(run, sorted(units)).items()}


def overrides(scores: "Mapping[str, int]") -> "list[str]":
    """List the protected units whose score is overridden by another drop-in, one sentence per unit.

    Args:
        scores: the scores that systemd gives their processes at the next start.
    """
    return [
        f"{unit}: another drop-in sets OOMScoreAdjust to {score} and overrides {DROP_IN}: remove that line from it"
        f" (systemctl cat {unit})"
        for unit, score in scores.items()
        if score > SCORE
    ]


def before_and_after(work: Work) -> "tuple[str, str]":
    """Return the scores of the affected processes before and after the work as lines, for a diff."""
    before, after = [], []
    for unit, task in work["protect"].items():
        before += [f"{unit}, process {pid}: {task['score']}\n" for pid in sorted(task["pids"])]
        after += [f"{unit}, process {pid}: {SCORE}\n" for pid in sorted(task["pids"])]
    for unit, entry in work["release"].items():
        released = sorted(pid for pid, score in entry["scores"].items() if score == SCORE)
        before += [f"{unit}, process {pid}: {SCORE}\n" for pid in released]
        after += [f"{unit}, process {pid}: what the unit gives it\n" for pid in released]
    return "".join(before), "".join(after)
