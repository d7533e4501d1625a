# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that the OOM killer should spare: a drop-in with OOMScoreAdjust= for the next start, oom_score_adj for the processes that run.

What a process inherits is decided when it is forked, and systemd does not touch running processes (systemd.exec(5)). Some services give their
processes scores of their own (sshd itself -1000, PostgreSQL its backends 0): only what a process has from its unit is changed.
"""

from __future__ import annotations

import os
import re

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable

SYSTEM_UNITS = "etc/systemd/system"
DROP_IN = "zz-threadwise-smt-memory.conf"
# Spared until nothing else is left: with -1000 a service that leaks would bring down all others, and then the kernel.
SCORE = -900
TEXT = f"# Written by the role threadwise.smt.smt_memory.\n[Service]\nOOMScoreAdjust={SCORE}\n"
# systemd.unit(5): "unit name prefix" and instance; at most 255 characters. No slash, so no path but one directory comes of it.
NAME = re.compile(r"\A[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service\Z")
LONGEST_NAME = 255
PROPERTIES = ("Id", "LoadState", "MainPID", "ControlGroup", "OOMScoreAdjust")
MOST_DEPTH = 8
_INTEGER = re.compile(r"\A-?[0-9]{1,10}\Z")
_CGROUP_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/systemd", "sys/fs/cgroup/unified")


class UnitError(Exception):
    """A unit cannot be protected; the text names it, the reason and the way out."""


def check_name(name):
    """The full name (str) of a service: ``sshd`` is ``sshd.service``.

    Raises:
        UnitError: it is no name of one service.
    """
    full = name if name.endswith(".service") else name + ".service"
    if not NAME.match(full) or len(full) > LONGEST_NAME:
        raise UnitError(
            "%.80r is no name of a systemd service: letters, digits and ':-_.\\', with an instance after '@' for a template, "
            "and .service or nothing at the end" % name
        )
    return full


def drop_in_path(unit):
    return f"{SYSTEM_UNITS}/{unit}.d/{DROP_IN}"


def with_drop_in(fs):
    """The units (list of str) that have our drop-in."""
    folders = [name[:-2] for name in fs.names(SYSTEM_UNITS) if name.endswith(".service.d")]
    return [unit for unit in folders if fs.status(drop_in_path(unit)) is not None]


def ask_systemd(run, names):
    """What systemd knows of services.

    Args:
        run: ``callable(list of str) -> (exit status, output, errors)``, as AnsibleModule.run_command.
        names: full names of services.

    Returns:
        dict: name asked for -> dict of ``PROPERTIES`` (str); ``Id`` is the service's own name where another one was asked for.

    Raises:
        UnitError: systemctl does not answer, or there is no such service.
    """
    if not names:
        return {}
    status, output, errors = run(["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES), "--", *list(names)])
    blocks = [dict(line.partition("=")[::2] for line in block.split("\n") if "=" in line) for block in output.strip().split("\n\n")]
    if status != 0 or len(blocks) != len(names):
        raise UnitError(f"systemctl show does not answer for {', '.join(names)[:200]}: {errors.strip() or output.strip() or 'nothing was said'!s:.200}")
    for name, block in zip(names, blocks):
        if block.get("LoadState") == "not-found":
            raise UnitError(f"this host has no service {name}: take it out of the protected units, or install it first")
    return dict(zip(names, blocks))


def _whole(text):
    """A number from systemd, or 0."""
    return int(text) if _INTEGER.match(text or "") else 0


def processes(fs, cgroup):
    """The processes in a unit's cgroup and those below it: ``{pid: oom_score_adj}``."""
    found = {}
    if not cgroup:
        return found
    root = next((root for root in _CGROUP_ROOTS if os.path.isdir(fs.path(root + cgroup))), None)
    for folder, folders, _files in os.walk(fs.path(root + cgroup)) if root else ():
        if folder.count("/") - fs.path(root + cgroup).count("/") >= MOST_DEPTH:
            folders.clear()
        for pid in _lines(os.path.join(folder, "cgroup.procs")):
            score = _score(fs, pid)
            if score is not None:
                found[int(pid)] = score
    return found


def _lines(path):
    try:
        with open(path, encoding="ascii") as handle:
            return [line for line in handle.read(1 << 20).split("\n") if line.isdigit()]
    except OSError:
        return []


def _score(fs, pid):
    # A process may be gone at any moment (ENOENT, ESRCH), and that is no trouble.
    try:
        with open(fs.path(f"proc/{pid}/oom_score_adj"), encoding="ascii", errors="replace") as handle:
            text = handle.read(100).strip()
    except OSError:
        return None
    return int(text) if _INTEGER.match(text) else None


def _set_scores(fs, pids, score):
    """Give processes a score; those that have ended meanwhile are passed over.

    Raises:
        UnitError: the kernel does not permit it.
    """
    for pid in pids:
        try:
            with open(fs.path(f"proc/{pid}/oom_score_adj"), "w", encoding="ascii") as handle:
                handle.write(f"{score}\n")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as trouble:
            raise UnitError("%s: the kernel does not take %d: %s" % (fs.path("proc/%d/oom_score_adj" % pid), score, trouble.strerror)) from trouble


def work_out(fs, run, names, saved):
    """What has to be done so that exactly these services are protected. Nothing is changed.

    Args:
        fs: ``files.HostFs``.
        run: as for ``ask_systemd``.
        names: services, as users name them.
        saved: ``{unit: score}``, what units gave their processes before, as memory_state keeps it.

    Returns:
        dict: ``protect`` (``{unit: {"score": its own, "drop_in": whether it has to be written, "pids": [those that have the score to be changed]}}``),
        ``release`` (list of units that are protected and no longer wanted).
    """
    asked = ask_systemd(run, sorted({check_name(name) for name in names}))
    wanted = {}
    for block in asked.values():
        unit = check_name(block["Id"])
        task = _to_do(fs, unit, block, saved.get(unit))
        if task is not None:
            wanted[unit] = task
    kept = {block["Id"] for block in asked.values()}
    return {"protect": wanted, "release": sorted((set(saved) | set(with_drop_in(fs))) - kept)}


def _to_do(fs, unit, block, kept):
    """What is missing for one unit, or None."""
    ours = fs.read(drop_in_path(unit)) == TEXT
    own = _whole(block.get("OOMScoreAdjust")) if kept is None else kept
    if own <= SCORE and not ours:
        return None
    running = processes(fs, block.get("ControlGroup", ""))
    main = _whole(block.get("MainPID"))
    # Once the main process has the score, others without it have chosen theirs.
    pending = main not in running or running[main] > SCORE
    pids = [pid for pid, score in running.items() if pending and score == own]
    if ours and not pids:
        return None
    # The main process last: it is what tells the next run that all is done.
    return {"score": own, "drop_in": not ours, "pids": sorted(pids, key=lambda pid: (pid == main, pid))}


def to_save(saved, work):
    """What has to be kept before the work is done, ``{unit: score}``: a unit's own score, the first one."""
    return dict({unit: task["score"] for unit, task in work["protect"].items()}, **saved)


def carry_out(fs, run, work):
    """Do what was worked out, after what it needs was saved.

    Raises:
        UnitError, OSError: it could not be done; another run goes on from there.
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
        _put_back(fs, run, unit)


def _remove_drop_in(fs, unit):
    path = fs.path(drop_in_path(unit))
    if os.path.lexists(path):
        durable.unlink(path)
    try:
        os.rmdir(os.path.dirname(path))
    except OSError:
        # The administrator keeps drop-ins of his own in it, or it is gone.
        pass


def _reload(run):
    status, output, errors = run(["systemctl", "daemon-reload"])
    if status != 0:
        raise UnitError(f"systemctl daemon-reload failed, so systemd does not know of the change: {(errors or output).strip()!s:.300}")


def _put_back(fs, run, unit):
    """Give the unit's processes what it gives them without the drop-in."""
    try:
        block = ask_systemd(run, [unit])[unit]
    except UnitError:
        # The service was removed from the host meanwhile: there is nobody left to put back.
        return
    ours = [pid for pid, score in processes(fs, block.get("ControlGroup", "")).items() if score == SCORE]
    _set_scores(fs, ours, _whole(block.get("OOMScoreAdjust")))


def overrides(run, units):
    """The protected units for which another drop-in has the last word, one sentence (str) each."""
    return [
        f"{unit}: another drop-in makes OOMScoreAdjust {block.get('OOMScoreAdjust')!s:.20} in spite of {DROP_IN}: take that line out of it (systemctl cat {unit})"
        for unit, block in ask_systemd(run, sorted(units)).items()
        if _whole(block.get("OOMScoreAdjust")) > SCORE
    ]


def shown(work):
    """What the work changes, before and after, as plain data for a diff; a unit's processes as ``{pid: score}``."""
    before = {unit: _shown(not task["drop_in"], task["pids"], task["score"]) for unit, task in work["protect"].items()}
    after = {unit: _shown(True, task["pids"], SCORE) for unit, task in work["protect"].items()}
    before.update({unit: _shown(True, [], SCORE) for unit in work["release"]})
    return before, after


def _shown(drop_in, pids, score):
    return {"drop_in": drop_in, "processes": dict.fromkeys(pids, score)}
