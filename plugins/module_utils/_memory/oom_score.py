# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services protected from the OOM killer: a drop-in with OOMScoreAdjust= for the next start, oom_score_adj for the running processes.

A process inherits its score when it is forked, and systemd does not change running processes (systemd.exec(5)). Some services set scores of their own
(sshd itself -1000, PostgreSQL its backends 0): only scores that a process has from its unit are changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs

SYSTEM_UNITS = "etc/systemd/system"
DROP_IN = "zz-threadwise-smt-memory.conf"
# Killed only when nothing else is left. With -1000 a service that leaks memory would bring down all others, and then the kernel.
SCORE = -900
TEXT = f"# Written by the role threadwise.smt.smt_memory.\n[Service]\nOOMScoreAdjust={SCORE}\n"
# systemd.unit(5): "unit name prefix" and instance; at most 255 characters. Without a slash the name cannot leave the directory of units.
NAME = re.compile(r"\A[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service\Z")
MAX_NAME_LENGTH = 255
PROPERTIES = ("Id", "LoadState", "MainPID", "ControlGroup", "OOMScoreAdjust")
MAX_DEPTH = 8
_INTEGER = re.compile(r"\A-?[0-9]{1,10}\Z")
_CGROUP_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/systemd", "sys/fs/cgroup/unified")

# Runs a command; returns its exit status, output and error output, like AnsibleModule.run_command.
Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]


class UnitError(Exception):
    """A unit cannot be protected; the text names the unit, the reason and the way out."""


class Task(t.TypedDict):
    """What has to be done to protect one unit.

    Attributes:
        score: OOM score adjustment that the unit itself gives its processes.
        drop_in: whether the drop-in has to be written.
        pids: processes whose score has to be changed, in that order.
    """

    score: int
    drop_in: bool
    pids: list[int]


class Work(t.TypedDict):
    """What has to be done so that exactly the wanted services are protected.

    Attributes:
        protect: tasks by unit.
        release: units that are protected and no longer wanted.
    """

    protect: dict[str, Task]
    release: list[str]


class Protection(t.TypedDict):
    """The protection of one unit, for a diff: whether the drop-in exists, and the scores by process."""

    drop_in: bool
    processes: dict[int, int]


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
            f"{name!r:.80} is not a valid name of a systemd service: use letters, digits and ':-_.\\', an instance after '@' for a template, "
            "and .service or nothing at the end"
        )
    return full


def drop_in_path(unit: str) -> str:
    """Return the path of a unit's drop-in, relative to the sysroot."""
    return f"{SYSTEM_UNITS}/{unit}.d/{DROP_IN}"


def with_drop_in(fs: HostFs) -> list[str]:
    """List the units that have our drop-in."""
    units = [name[: -len(".d")] for name in fs.names(SYSTEM_UNITS) if name.endswith(".service.d")]
    return [unit for unit in units if fs.status(drop_in_path(unit)) is not None]


def ask_systemd(run: Run, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read the properties of services from systemd.

    Args:
        run: runs a command.
        names: full names of services.

    Returns:
        The ``PROPERTIES`` of each service by the given name; ``Id`` is the service's own name when an alias was given.

    Raises:
        UnitError: systemctl fails, or there is no such service.
    """
    if not names:
        return {}
    status, output, errors = run(["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES), "--", *names])
    blocks = [dict(line.partition("=")[::2] for line in block.split("\n") if "=" in line) for block in output.strip().split("\n\n")]
    if status != 0 or len(blocks) != len(names):
        raise UnitError(f"systemctl show failed for {', '.join(names)[:200]}: {errors.strip() or output.strip() or 'it printed no error message'!s:.200}")
    for name, block in zip(names, blocks):
        if block.get("LoadState") == "not-found":
            raise UnitError(f"this host has no service {name}: remove it from the protected units, or install it first")
    return dict(zip(names, blocks))


def _integer(text: str | None) -> int:
    """Return a number that systemd printed, or 0."""
    return int(text) if text and _INTEGER.match(text) else 0


def processes(fs: HostFs, cgroup: str) -> dict[int, int]:
    """Return the OOM score adjustments of the processes in a cgroup and those below it.

    Args:
        fs: the host's files.
        cgroup: path of the cgroup as systemd prints it; may be empty.

    Returns:
        Score adjustments by process id.
    """
    found: dict[int, int] = {}
    if not cgroup:
        return found
    top = next((path for path in (fs.path(root + cgroup) for root in _CGROUP_ROOTS) if os.path.isdir(path)), None)
    if top is None:
        return found
    for folder, folders, _files in os.walk(top):
        if folder.count("/") - top.count("/") >= MAX_DEPTH:
            folders.clear()
        for pid in _numbers(os.path.join(folder, "cgroup.procs")):
            score = _score(fs, pid)
            if score is not None:
                found[int(pid)] = score
    return found


def _numbers(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as handle:
            return [line for line in handle.read(1 << 20).split("\n") if line.isdigit()]
    except OSError:
        return []


def _score(fs: HostFs, pid: str) -> int | None:
    # A process may end at any moment (ENOENT, ESRCH), which is not an error.
    try:
        with open(fs.path(f"proc/{pid}/oom_score_adj"), encoding="ascii", errors="replace") as handle:
            text = handle.read(100).strip()
    except OSError:
        return None
    return int(text) if _INTEGER.match(text) else None


def _set_scores(fs: HostFs, pids: Iterable[int], score: int) -> None:
    """Set the score of processes; those that have ended are skipped.

    Raises:
        UnitError: The kernel does not permit it.
    """
    for pid in pids:
        path = fs.path(f"proc/{pid}/oom_score_adj")
        try:
            with open(path, "w", encoding="ascii") as handle:
                handle.write(f"{score}\n")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as error:
            raise UnitError(f"{path}: the kernel does not accept {score}: {error.strerror}") from error


def work_out(fs: HostFs, run: Run, names: Iterable[str], saved: Mapping[str, int]) -> Work:
    """Determine what has to be done so that exactly these services are protected. Nothing is changed.

    Args:
        fs: the host's files.
        run: runs a command.
        names: services, as users name them.
        saved: the scores that units gave their processes before, from the snapshot.

    Raises:
        UnitError: A name is not valid, systemctl fails, or there is no such service.
    """
    shown = ask_systemd(run, sorted({check_name(name) for name in names}))
    wanted = {}
    for block in shown.values():
        unit = check_name(block["Id"])
        task = _task(fs, unit, block, saved.get(unit))
        if task is not None:
            wanted[unit] = task
    kept = {block["Id"] for block in shown.values()}
    return {"protect": wanted, "release": sorted((set(saved) | set(with_drop_in(fs))) - kept)}


def _task(fs: HostFs, unit: str, block: Mapping[str, str], saved: int | None) -> Task | None:
    """Return what is missing for one unit, or None."""
    has_drop_in = fs.read(drop_in_path(unit)) == TEXT
    own = _integer(block.get("OOMScoreAdjust")) if saved is None else saved
    if own <= SCORE and not has_drop_in:
        return None
    running = processes(fs, block.get("ControlGroup", ""))
    main = _integer(block.get("MainPID"))
    # Once the main process has the score, processes without it have chosen their own.
    pending = main not in running or running[main] > SCORE
    pids = [pid for pid, score in running.items() if pending and score == own]
    if has_drop_in and not pids:
        return None
    # The main process comes last: its score shows the next run that all processes were changed.
    return {"score": own, "drop_in": not has_drop_in, "pids": sorted(pids, key=lambda pid: (pid == main, pid))}


def to_save(saved: Mapping[str, int], work: Work) -> dict[str, int]:
    """Return the scores to save, by unit, before the work is done; scores that are already saved stay."""
    return {**{unit: task["score"] for unit, task in work["protect"].items()}, **saved}


def carry_out(fs: HostFs, run: Run, work: Work) -> None:
    """Do the work, after what it needs was saved.

    Args:
        fs: the host's files.
        run: runs a command.
        work: as ``work_out`` returns it.

    Raises:
        UnitError: The kernel or systemd refused a change; another run continues from there.
        OSError: A drop-in could not be written or removed; another run continues from there.
    """
    for unit, task in work["protect"].items():
        if task["drop_in"]:
            fs.write(drop_in_path(unit), TEXT)
    for unit in work["release"]:
        _remove_drop_in(fs, unit)
    if work["release"] or any(task["drop_in"] for task in work["protect"].values()):
        _reload(run)
    for task in work["protect"].values():
        _set_scores(fs, task["pids"], SCORE)
    for unit in work["release"]:
        _restore_scores(fs, run, unit)


def _remove_drop_in(fs: HostFs, unit: str) -> None:
    path = fs.path(drop_in_path(unit))
    if os.path.lexists(path):
        durable.unlink(path)
    # The directory may contain other drop-ins, or may not exist.
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _reload(run: Run) -> None:
    status, output, errors = run(["systemctl", "daemon-reload"])
    if status != 0:
        raise UnitError(f"systemctl daemon-reload failed, so systemd has not read the change: {(errors or output).strip()!s:.300}")


def _restore_scores(fs: HostFs, run: Run, unit: str) -> None:
    """Set the scores of a unit's processes to the one that the unit gives them without the drop-in."""
    try:
        block = ask_systemd(run, [unit])[unit]
    except UnitError:
        # The service has been removed from the host, so it has no processes.
        return
    changed = [pid for pid, score in processes(fs, block.get("ControlGroup", "")).items() if score == SCORE]
    _set_scores(fs, changed, _integer(block.get("OOMScoreAdjust")))


def overrides(run: Run, units: Collection[str]) -> list[str]:
    """List the protected units whose score is overridden by another drop-in.

    Args:
        run: runs a command.
        units: full names of services.

    Returns:
        One sentence per unit.

    Raises:
        UnitError: systemctl fails, or there is no such service.
    """
    return [
        f"{unit}: another drop-in sets OOMScoreAdjust to {block.get('OOMScoreAdjust')!s:.20} and overrides {DROP_IN}: "
        f"remove that line from it (systemctl cat {unit})"
        for unit, block in ask_systemd(run, sorted(units)).items()
        if _integer(block.get("OOMScoreAdjust")) > SCORE
    ]


def before_and_after(work: Work) -> tuple[dict[str, Protection], dict[str, Protection]]:
    """Return the protection of the affected units before and after the work, for a diff."""
    before = {unit: _protection(not task["drop_in"], task["pids"], task["score"]) for unit, task in work["protect"].items()}
    after = {unit: _protection(True, task["pids"], SCORE) for unit, task in work["protect"].items()}
    before.update({unit: _protection(True, [], SCORE) for unit in work["release"]})
    return before, after


def _protection(drop_in: bool, pids: Iterable[int], score: int) -> Protection:
    return {"drop_in": drop_in, "processes": dict.fromkeys(pids, score)}
