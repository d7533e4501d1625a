# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of a host's memory policy, with all its parts: the values in the kernel, their file for each boot,
protected services, the snapshot.
"""

import json
import os
import typing as t
from collections.abc import Iterable

from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files, durable, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    frame as memory_frame,
    late_writers,
    policy as memory_policy,
    snapshot as memory_snapshot,
    sysctl_files,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.errors import MemoryPolicyError
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.services import oom_score

RESTORED, PREVIOUS = "restored", "previous"
ERRORS = (MemoryPolicyError, config_files.ConfigFileError, locks.HostLockError)


class Request(t.NamedTuple):
    """What is requested."""

    state: str  # "present", RESTORED or PREVIOUS
    options: memory_policy.Options  # the policy and its margin; the other two states use only the margin
    # Services to protect from the OOM killer, and no others; None leaves them as they are.
    protect: t.Optional[t.Sequence[str]]
    check: bool  # whether nothing is written
    frame: t.Optional[memory_frame.Frame] = None  # what PREVIOUS puts back


class Setting(TypedDict):
    """Where the value of one sysctl comes from.

    Attributes:
        name: the sysctl.
        value: its value in the kernel after the change; None when the kernel does not have it.
        at_boot: the value that the host's files set at the next boot; None when they set none, or no number.
        source: the file or TuneD profile that sets it at boot, or None.
        original: the value that ``restored`` writes, or None when it is not saved.
    """

    name: str
    value: "int | None"
    at_boot: "int | None"
    source: "str | None"
    original: "int | None"


class Result(TypedDict):
    """The result of the module smt_memory."""

    changed: bool
    before: memory_policy.InForce
    after: memory_policy.InForce
    settings: "list[Setting]"
    protected: "list[str]"
    released: "list[str]"
    diff: "list[dict[str, str]]"


class _Plan(t.NamedTuple):
    """A change, worked out before anything is written."""

    wanted: memory_policy.Settings  # values that have to be in force afterwards
    writes: memory_policy.Settings  # values to write, in order
    files: "dict[str, str | None]"  # the text of each file of ours that the change is about; None for no file
    work: oom_score.Work
    first: memory_snapshot.Snapshot  # on the disk during the change
    last: memory_snapshot.Snapshot  # on the disk after it


class MemoryChange:
    """One request on one host. ``warnings`` are sentences for the user.

    Args:
        request: what is requested.
        run_command: runs a command, like AnsibleModule.run_command.
        sysroot: root of the host's files.
    """

    def __init__(self, request: Request, run_command: oom_score.Run, sysroot: str = "/") -> None:
        self.request = request
        self.run_command = run_command
        self.fs = HostFs(sysroot)
        self.warnings: list[str] = []

    def run(self) -> Result:
        """Carry out the request and return the module's result.

        Raises:
            MemoryPolicyError: The change was refused, or it failed and was undone; the text says what is different if
                it could not be undone completely.
            HostLockError: Another run changes this host.
        """
        _check_root(self.fs)
        if self.request.check:
            self._read_host()
            return self._result(self.plan.work["kept"])
        with locks.HostLock(self.fs.sysroot, "smt_memory", locks.CHANGE_SECONDS):
            self._read_host()
            return self._result(self._carry_out() if self._changes() else self.plan.work["kept"])

    def _read_host(self) -> None:
        """Read the host, and work out ``plan``."""
        fs = self.fs
        self.saved = memory_snapshot.load(fs)
        self.present, self.memory, self.page = (
            memory_facts.read_settings(fs),
            memory_facts.read_memory(fs),
            memory_facts.page_size(fs),
        )
        self.boot = sysctl_files.BootFiles(fs)
        self.text = sysctl_files.own_text(fs, sysctl_files.OURS)
        if self.request.frame is not None:
            self.plan = self._previous(self.request.frame)
        else:
            self.plan = self._restored() if self.request.state == RESTORED else self._policy()
        known = {sysctl_files.OURS: self.text, **oom_score.files_before(self.plan.work)}
        self.texts = {
            path: known[path] if path in known else sysctl_files.own_text(fs, path) for path in self.plan.files
        }
        self.files = {
            path: (self.texts[path], text) for path, text in self.plan.files.items() if self.texts[path] != text
        }
        refusal = next(
            filter(None, (fs.write_refusal(memory_facts.sysctl_path(name)) for name in self.plan.writes)), None
        )
        if refusal:
            raise MemoryPolicyError(f"{refusal}. Nothing was changed")

    def _policy(self) -> _Plan:
        """Return the change to the requested policy."""
        wanted = memory_policy.settings(self.request.options, self.present)
        self._refuse(wanted, "nothing was changed, because the host would not survive the policy", None)
        if self.request.protect is None:
            work = oom_score.no_work(self.fs)
        else:
            work = oom_score.work_out(self.fs, self.run_command, self.request.protect, self.saved["units"])
        first = memory_snapshot.with_present(self.saved, self.present, wanted)
        first["units"] = oom_score.to_save(self.saved["units"], work)
        self.warnings += self.boot.overrides(wanted)
        return _Plan(
            wanted,
            {name: value for name, value in wanted.items() if self.present[name] != value},
            {
                sysctl_files.OURS: sysctl_files.our_text(self.text, wanted) if wanted else self.text,
                **oom_score.files(work),
            },
            work,
            first,
            {**first, "units": {unit: score for unit, score in first["units"].items() if unit not in work["release"]}},
        )

    def _restored(self) -> _Plan:
        """Return the change to the state from before the first change."""
        wanted = self.saved["sysctls"]
        if self.text is not None and not wanted:
            raise memory_snapshot.MemorySnapshotError(
                f"{self.fs.path(sysctl_files.OURS)} exists, but the values from before it are unknown, because"
                f" {self.fs.path(memory_snapshot.PATH)} is missing: set the values that you want, and remove the file"
            )
        writes = memory_snapshot.settings_to_restore(self.present, wanted)
        way_out = "stop a process that uses much memory, or lower the margin, and restore again"
        self._refuse(writes, "nothing was restored, because the host would not survive the previous policy", way_out)
        work = oom_score.work_out(self.fs, self.run_command, [], self.saved["units"])
        return _Plan(
            wanted,
            writes,
            {sysctl_files.OURS: None, **oom_score.files(work)},
            work,
            self.saved,
            {"sysctls": {}, "units": {}},
        )

    def _previous(self, frame: memory_frame.Frame) -> _Plan:
        """Return the change to the frame of the request: the settings that this collection has changed, its files,
        and its snapshot.
        """
        first = memory_snapshot.joined(self.saved, frame["snapshot"])
        wanted = {name: value for name, value in frame["sysctls"].items() if name in first["sysctls"]}
        writes = memory_snapshot.settings_to_restore(self.present, wanted)
        self._refuse(
            writes,
            "nothing was put back, because the host would not survive the previous policy",
            "stop a process that uses much memory",
        )
        is_protected = memory_frame.present(self.fs)["drop_ins"] == frame["drop_ins"]
        # A service that is gone since does not keep the rest from being put back.
        work = (
            oom_score.no_work(self.fs)
            if is_protected
            else oom_score.work_out(self.fs, self.run_command, frame["drop_ins"], first["units"])
        )
        files = {
            sysctl_files.OURS: frame["text"],
            **oom_score.files(work),
            **{oom_score.drop_in_path(unit): text for unit, text in frame["drop_ins"].items()},
        }
        return _Plan(wanted, writes, files, work, first, frame["snapshot"])

    def _refuse(self, wanted: memory_policy.Settings, what: str, way_out: "str | None") -> None:
        refusal = memory_policy.refusal(
            self.memory, self.present, wanted, self.request.options["margin"], self.page, way_out
        )
        if refusal:
            raise memory_policy.PolicyError(f"{what}: {refusal}")

    def _changes(self) -> bool:
        return bool(
            self.plan.writes
            or self.files
            or self.plan.work["protect"]
            or self.plan.work["release"]
            or self.plan.last != self.saved
        )

    def _carry_out(self) -> "dict[str, int]":
        """Make the change, and undo it when any part of it fails.

        Returns the scores that protected services have at their next start.
        """
        fs, plan = self.fs, self.plan
        kept = self._keep_files()
        try:
            if plan.first != self.saved:
                memory_snapshot.save(fs, plan.first)
            config_files.apply(fs, self.files)
            self._reload_units()
            memory_snapshot.write(fs, plan.writes)
            oom_score.set_scores(fs, self.run_command, plan.work)
            wrong = memory_policy.differences(memory_facts.read_settings(fs), plan.wanted)
            if wrong:
                raise memory_snapshot.MemorySnapshotError(
                    f"{', '.join(wrong)}, although the requested values were written"
                )
            scores = (
                oom_score.shown_scores(self.run_command, [*plan.work["kept"], *plan.work["protect"]])
                if plan.work["protect"]
                else plan.work["kept"]
            )
            if plan.last != plan.first:
                memory_snapshot.save(fs, plan.last)
        except ERRORS as error:
            raise MemoryPolicyError(f"{error}. {self._undone(kept)}") from error
        except BaseException:
            self._undone(kept)
            raise
        finally:
            for file in kept.values():
                file.forget()
            oom_score.remove_empty_folders(fs, self._drop_ins())
        return scores

    def _keep_files(self) -> "dict[str, durable.Kept]":
        """Keep each file as it is, so that it comes back on a full disk, too, whether another one does or not."""
        kept = {path: durable.Kept([self.fs.path(path)]) for path in (*self.texts, memory_snapshot.PATH)}
        try:
            for file in kept.values():
                file.keep()
        except OSError as error:
            for file in kept.values():
                file.forget()
            raise MemoryPolicyError(f"{error.filename}: {error.strerror}. Nothing was changed") from error
        return kept

    def _reload_units(self) -> None:
        # Also where only scores are left to be set: an interrupted call may have written the drop-in without this.
        if self._drop_ins():
            oom_score.reload_units(self.run_command)

    def _drop_ins(self) -> "set[str]":
        return self.plan.files.keys() - {sysctl_files.OURS}

    def _undone(self, kept: "dict[str, durable.Kept]") -> str:
        """Undo the change as far as possible, and return what came of it."""
        failed = self._undo({path: file for path, file in kept.items() if path != memory_snapshot.PATH})
        try:
            if failed:
                # What could not be undone can still be restored from the snapshot.
                memory_snapshot.save(self.fs, self.plan.first)
            else:
                _put_back(kept[memory_snapshot.PATH])
        except ERRORS as error:
            failed.append(str(error))
        text = (
            f"The change could not be undone completely: {'; '.join(failed)}"
            if failed
            else "Everything is as it was before"
        )
        if self.request.state == RESTORED:
            left = memory_policy.differences(memory_facts.read_settings(self.fs), self.plan.wanted)
            left += [
                f"{self.fs.path(path)} exists"
                for path, (_before, after) in self.files.items()
                if after is None and self.fs.status(path) is not None
            ]
            text += f". Still different from before the first change: {'; '.join(left) or 'nothing'}"
        return text

    def _undo(self, kept: "dict[str, durable.Kept]") -> "list[str]":
        """Put back the files, the values and the scores. Returns the errors and what is still different."""
        fs, failed = self.fs, []
        touched = {
            *self.plan.writes,
            *(memory_policy.COUNTERPARTS[name] for name in self.plan.writes if name in memory_policy.COUNTERPARTS),
        }
        before = {name: value for name, value in self.present.items() if name in touched and value is not None}
        settings = memory_snapshot.settings_to_restore(memory_facts.read_settings(fs), before)
        steps: list[t.Callable[[], None]] = [
            *(lambda file=file: _put_back(file) for file in kept.values()),
            self._reload_units,
            *(
                lambda name=name, value=value: memory_snapshot.write(fs, {name: value})
                for name, value in settings.items()
            ),
            lambda: oom_score.restore_scores(fs, self.plan.work),
        ]
        for step in steps:
            try:
                step()
            except ERRORS as error:
                failed.append(str(error))
        failed += memory_policy.differences(memory_facts.read_settings(fs), before)
        failed += [f"{fs.path(path)} is not as it was" for path in config_files.changes(fs, self.texts)]
        return failed + [
            f"the OOM score of process {pid} is not {score}"
            for pid, score in oom_score.changed_scores(fs, self.plan.work).items()
        ]

    def _result(self, scores: "dict[str, int]") -> Result:
        plan, work = self.plan, self.plan.work
        self.warnings += oom_score.overrides(scores) + self.fs.problems
        self.warnings += late_writers.daemons_without_scores(self.boot.running) if self.request.protect else []
        values = memory_policy.resulting(self.present, plan.writes)
        boot = self.boot.sources(plan.files[sysctl_files.OURS])
        return {
            "changed": self._changes(),
            "before": memory_policy.in_force(self.memory, self.present, self.present, self.page),
            "after": memory_policy.in_force(self.memory, self.present, values, self.page),
            "settings": [
                {
                    "name": name,
                    "value": value,
                    "at_boot": sysctl_files.number(boot[name].value) if name in boot else None,
                    "source": boot[name].source if name in boot else None,
                    "original": plan.last["sysctls"].get(name),
                }
                for name, value in values.items()
            ],
            "protected": sorted([*work["kept"], *work["protect"]]),
            "released": sorted(work["release"]),
            "diff": self._diff(values),
        }

    def _diff(self, values: memory_policy.HostSettings) -> "list[dict[str, str]]":
        diffs = [
            ("/proc/sys", _lines(self.present), _lines(values)),
            ("OOM scores of processes", *oom_score.before_and_after(self.plan.work)),
            (self.fs.path(memory_snapshot.PATH), _document(self.saved), _document(self.plan.last)),
        ]
        shown = [
            {"before_header": header, "after_header": header, "before": before, "after": after}
            for header, before, after in diffs
            if before != after
        ]
        return shown + config_files.diff(self.files)


def protect_differences(fs: HostFs, run: oom_score.Run, names: "Iterable[str]") -> "list[str]":
    """List what a change to the protection of exactly these services would change, one sentence per service.

    Nothing is changed.

    Raises:
        MemoryPolicyError: A service does not exist, systemctl fails, or the snapshot cannot be read.
    """
    _check_root(fs)
    work = oom_score.work_out(fs, run, names, memory_snapshot.load(fs)["units"])
    return [
        f"{unit} is not protected from the OOM killer, or will not be after its next start"
        for unit in sorted(work["protect"])
    ] + [f"{unit} is protected from the OOM killer, but should not be" for unit in work["release"]]


def _put_back(file: durable.Kept) -> None:
    try:
        file.put_back()
    except OSError as error:
        raise config_files.ConfigFileError(f"{error.filename}: {error.strerror}") from error


def _check_root(fs: HostFs) -> None:
    if fs.is_host and os.geteuid() != 0:
        raise memory_snapshot.MemorySnapshotError(
            "only root can read the saved state and change the memory policy: use become"
        )


def _lines(values: memory_policy.HostSettings) -> str:
    return "".join(f"{name} = {value}\n" for name, value in values.items() if value is not None)


def _document(saved: memory_snapshot.Snapshot) -> str:
    return json.dumps(saved, indent=1, sort_keys=True) + "\n"
