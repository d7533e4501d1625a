# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a memory policy on the host, each whole: keep what is there, protect services, bring all back. What is kept is kept before a change."""

from __future__ import annotations

import contextlib
import json
import os

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.locks import HostLock
from ansible_collections.threadwise.smt.plugins.module_utils._memory import facts as memory_facts, oom_score, snapshot as memory_snapshot, sysctl_files

LOCK_SECONDS = 30


@contextlib.contextmanager
def _alone(purpose, check):
    """The host's files, for nobody else to change meanwhile. A check changes nothing and waits for nobody."""
    if os.geteuid() != 0:
        raise memory_snapshot.MemoryStateError("only root may read what was saved and change a memory policy: use become")
    if check:
        yield HostFs("/")
        return
    with HostLock("/", purpose, LOCK_SECONDS):
        yield HostFs("/")


def _diff(before, after, header):
    return {
        "before": json.dumps(before, indent=1, sort_keys=True) + "\n",
        "after": json.dumps(after, indent=1, sort_keys=True) + "\n",
        "before_header": header,
        "after_header": header,
    }


def save(names, check):
    """Keep the present values of the named sysctls, unless they are kept already.

    Returns:
        dict: ``changed``, ``sysctls`` (what is kept), ``diff``.

    Raises:
        MemoryStateError, HostLockError: nothing may be changed.
    """
    with _alone("smt_memory_state", check) as fs:
        saved = memory_snapshot.load(fs)
        kept = memory_snapshot.with_present(saved, memory_facts.read_settings(fs), names)
        if kept != saved and not check:
            memory_snapshot.save(fs, kept)
    return {"changed": kept != saved, "sysctls": kept["sysctls"], "diff": _diff(saved["sysctls"], kept["sysctls"], fs.path(memory_snapshot.PATH))}


def protect(run, names, check):
    """Protect exactly these services.

    Args:
        run: ``callable(list of str) -> (exit status, output, errors)``.
        names: services.

    Returns:
        dict: ``changed``, ``protected``, ``released`` (lists of units), ``overrides`` (sentences), ``diff``.

    Raises:
        UnitError, MemoryStateError, HostLockError, OSError.
    """
    with _alone("smt_memory_protect", check) as fs:
        saved = memory_snapshot.load(fs)
        work = oom_score.work_out(fs, run, names, saved["units"])
        changed = bool(work["protect"] or work["release"])
        if changed and not check:
            kept = oom_score.to_save(saved["units"], work)
            memory_snapshot.save(fs, dict(saved, units=kept))
            oom_score.carry_out(fs, run, work)
            memory_snapshot.save(fs, dict(saved, units={unit: one for unit, one in kept.items() if unit not in work["release"]}))
        overrides = [] if check else oom_score.overrides(run, set(oom_score.with_drop_in(fs)))
    before, after = oom_score.shown(work)
    return {
        "changed": changed,
        "protected": sorted(work["protect"]),
        "released": work["release"],
        "overrides": overrides,
        "diff": _diff(before, after, "services that the OOM killer spares"),
    }


def protect_differences(run, names):
    """What ``protect`` would change: a sentence (str) for each service. Nothing is changed; errors as there."""
    found = protect(run, names, check=True)
    return [f"{unit} is not spared by the OOM killer, or will not be from its next start on" for unit in found["protected"]] + [
        f"{unit} is spared by the OOM killer, and is not to be" for unit in found["released"]
    ]


def restore(run, margin, check):
    """Bring back all that was kept, and remove what is ours.

    Args:
        run: as for ``protect``.
        margin: percent of what is promised that a strict policy from before has to leave.

    Returns:
        dict: ``changed``, ``sysctls`` (what was written, in order), ``units`` (that were released), ``diff``.

    Raises:
        MemoryStateError: it is refused, or what was there is not known; nothing was changed.
        UnitError, HostLockError, OSError.
    """
    with _alone("smt_memory_state", check) as fs:
        saved = memory_snapshot.load(fs)
        ours = fs.status(sysctl_files.OURS) is not None
        if ours and not saved["sysctls"]:
            raise memory_snapshot.MemoryStateError(
                f"{fs.path(sysctl_files.OURS)} is there, but what was before it is not known, because {fs.path(memory_snapshot.PATH)} is gone: set the values you want, and "
                "remove the file"
            )
        refusal = memory_snapshot.why_not_back(fs, saved["sysctls"], margin)
        if refusal:
            raise memory_snapshot.MemoryStateError(f"nothing was restored, because the policy from before {refusal}")
        present = memory_facts.read_settings(fs)
        back = memory_snapshot.way_back(present, saved["sysctls"])
        work = oom_score.work_out(fs, run, [], saved["units"])
        changed = bool(ours or saved["sysctls"] or work["release"])
        if changed and not check:
            memory_snapshot.write(fs, back)
            oom_score.carry_out(fs, run, work)
            memory_snapshot.remove_our_file(fs)
            memory_snapshot.save(fs, {"sysctls": {}, "units": {}})
    before = {"file": fs.path(sysctl_files.OURS) if ours else None, "units": work["release"], "sysctls": {name: present[name] for name in saved["sysctls"]}}
    return {
        "changed": changed,
        "sysctls": back,
        "units": work["release"],
        "diff": _diff(before, {"file": None, "units": [], "sysctls": saved["sysctls"]}, "memory policy"),
    }
