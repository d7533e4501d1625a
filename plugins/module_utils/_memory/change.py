# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a memory policy on the host: save the present values, protect services, restore everything. Values are saved before they are changed."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from collections.abc import Iterable, Iterator

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.locks import CHANGE_SECONDS, HostLock
from ansible_collections.threadwise.smt.plugins.module_utils._memory import facts as memory_facts, oom_score, snapshot as memory_snapshot, sysctl_files


class Diff(t.TypedDict):
    """A module's ``diff``, as Ansible shows it."""

    before: str
    after: str
    before_header: str
    after_header: str


@contextlib.contextmanager
def _locked_host(purpose: str, check: bool) -> Iterator[HostFs]:
    """Yield the host's files while no other run changes the host. Check mode changes nothing, so it does not take the lock."""
    if os.geteuid() != 0:
        raise memory_snapshot.MemorySnapshotError("only root can read the saved state and change the memory policy: use become")
    if check:
        yield HostFs("/")
        return
    with HostLock("/", purpose, CHANGE_SECONDS):
        yield HostFs("/")


def _diff(before: object, after: object, header: str) -> Diff:
    return {
        "before": json.dumps(before, indent=1, sort_keys=True) + "\n",
        "after": json.dumps(after, indent=1, sort_keys=True) + "\n",
        "before_header": header,
        "after_header": header,
    }


def save(names: Iterable[str], check: bool) -> dict[str, t.Any]:
    """Save the present values of sysctls, unless they are already saved.

    Args:
        names: sysctl names.
        check: whether to change nothing and only report.

    Returns:
        Plain data: ``changed``, ``sysctls`` (the saved values), ``diff``.

    Raises:
        MemorySnapshotError: The values cannot be saved; nothing must be changed.
        HostLockError: Another run changes this host.
    """
    with _locked_host("smt_memory_state", check) as fs:
        saved = memory_snapshot.load(fs)
        kept = memory_snapshot.with_present(saved, memory_facts.read_settings(fs), names)
        if kept != saved and not check:
            memory_snapshot.save(fs, kept)
    return {"changed": kept != saved, "sysctls": kept["sysctls"], "diff": _diff(saved["sysctls"], kept["sysctls"], fs.path(memory_snapshot.PATH))}


def protect(run: oom_score.Run, names: Iterable[str], check: bool) -> dict[str, t.Any]:
    """Protect exactly these services from the OOM killer.

    Args:
        run: runs a command, like AnsibleModule.run_command.
        names: services.
        check: whether to change nothing and only report.

    Returns:
        Plain data: ``changed``, ``protected``, ``released`` (units), ``overrides`` (sentences), ``diff``.

    Raises:
        UnitError: A service does not exist, or systemd or the kernel refused a change.
        MemorySnapshotError: The snapshot cannot be read or written.
        HostLockError: Another run changes this host.
        OSError: A drop-in cannot be written or removed.
    """
    with _locked_host("smt_memory_protect", check) as fs:
        saved = memory_snapshot.load(fs)
        work = oom_score.work_out(fs, run, names, saved["units"])
        changed = bool(work["protect"] or work["release"])
        if changed and not check:
            kept = oom_score.to_save(saved["units"], work)
            memory_snapshot.save(fs, {**saved, "units": kept})
            oom_score.carry_out(fs, run, work)
            memory_snapshot.save(fs, {**saved, "units": {unit: score for unit, score in kept.items() if unit not in work["release"]}})
        overrides = [] if check else oom_score.overrides(run, set(oom_score.with_drop_in(fs)))
    before, after = oom_score.before_and_after(work)
    return {
        "changed": changed,
        "protected": sorted(work["protect"]),
        "released": work["release"],
        "overrides": overrides,
        "diff": _diff(before, after, "services protected from the OOM killer"),
    }


def protect_differences(run: oom_score.Run, names: Iterable[str]) -> list[str]:
    """List what ``protect`` would change, one sentence per service. Nothing is changed.

    Args:
        run: runs a command, like AnsibleModule.run_command.
        names: services.

    Raises:
        UnitError: A service does not exist, or systemctl fails.
        MemorySnapshotError: The snapshot cannot be read.
    """
    found = protect(run, names, check=True)
    return [f"{unit} is not protected from the OOM killer, or will not be after its next start" for unit in found["protected"]] + [
        f"{unit} is protected from the OOM killer, but should not be" for unit in found["released"]
    ]


def restore(run: oom_score.Run, margin: int, check: bool) -> dict[str, t.Any]:
    """Restore everything that was saved, and remove the files of the collection.

    Args:
        run: runs a command, like AnsibleModule.run_command.
        margin: percent of the committed memory that a strict policy must leave free.
        check: whether to change nothing and only report.

    Returns:
        Plain data: ``changed``, ``sysctls`` (what was written, in order), ``units`` (whose protection was removed), ``diff``.

    Raises:
        MemorySnapshotError: The previous policy is not safe or not known, and nothing was changed; or the kernel did not accept a value.
        UnitError: systemd or the kernel refused a change.
        HostLockError: Another run changes this host.
        OSError: A file cannot be removed.
    """
    with _locked_host("smt_memory_state", check) as fs:
        saved = memory_snapshot.load(fs)
        has_file = fs.status(sysctl_files.OURS) is not None
        if has_file and not saved["sysctls"]:
            raise memory_snapshot.MemorySnapshotError(
                f"{fs.path(sysctl_files.OURS)} exists, but the values from before it are unknown, because {fs.path(memory_snapshot.PATH)} is missing: "
                "set the values that you want, and remove the file"
            )
        refusal = memory_snapshot.restore_refusal(fs, saved["sysctls"], margin)
        if refusal:
            raise memory_snapshot.MemorySnapshotError(f"nothing was restored, because the previous policy {refusal}")
        present = memory_facts.read_settings(fs)
        settings = memory_snapshot.settings_to_restore(present, saved["sysctls"])
        work = oom_score.work_out(fs, run, [], saved["units"])
        changed = bool(has_file or saved["sysctls"] or work["release"])
        if changed and not check:
            memory_snapshot.write(fs, settings)
            oom_score.carry_out(fs, run, work)
            memory_snapshot.remove_our_file(fs)
            memory_snapshot.save(fs, {"sysctls": {}, "units": {}})
    before = {
        "file": fs.path(sysctl_files.OURS) if has_file else None,
        "units": work["release"],
        "sysctls": {name: present[name] for name in saved["sysctls"]},
    }
    return {
        "changed": changed,
        "sysctls": settings,
        "units": work["release"],
        "diff": _diff(before, {"file": None, "units": [], "sysctls": saved["sysctls"]}, "memory policy"),
    }
