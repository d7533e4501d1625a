# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the boot loaders' backends share: files that are replaced whole or taken back, and tools whose exit code counts.

A backend is a class with

- ``entries()``: the boot entries (list of `boot_entries.Entry`) that count,
- ``found(wanted)``: ``[{'argument': str, 'where': str}]``, what the administrator's own settings hold that `wanted` drops,
- ``pending(wanted)``: list of `Change`, empty when there is nothing to do; nothing is written,
- ``apply(wanted)``: brings it about, or raises `BootLoaderError` and leaves everything as it was,
- ``warnings``: sentences (list of str) for the user.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._host import durable

NEW = ".threadwise-smt-new"
BEFORE = ".threadwise-smt-before"
TOOL_SECONDS = 900
# How often it is looked, while a tool runs, whether the run was told to end.
LOOK_SECONDS = 0.2
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
LARGEST = 16 << 20

_LOCALE_FILES = ("etc/default/locale", "etc/locale.conf")
_LANG = re.compile(r'^\s*LANG=["\']?([A-Za-z0-9_.@-]+)["\']?\s*$', re.MULTILINE)


class BootLoaderError(Exception):
    """The boot loader's configuration was not changed; the text names the file or the tool and the reason."""


@dataclass(frozen=True)
class Change:
    """A text that is to be replaced: a file's (None: it is not there), or a list of boot entries and their arguments."""

    where: str
    before: str
    after: str


def entries_change(where, entries, wanted):
    """The Change of the entries' SMT arguments; None when all are as wanted. One line an entry, so that it reads the same before and after."""
    if all(not boot_arguments.faults(entry.arguments, wanted) for entry in entries):
        return None
    before = "".join(_entry_line(entry, entry.arguments) for entry in entries)
    after = "".join(_entry_line(entry, boot_arguments.applied(entry.arguments, wanted)) for entry in entries)
    return Change(where, before, after)


def _entry_line(entry, arguments):
    return f"{entry.title or entry.kernel}: {' '.join(boot_arguments.smt_arguments(arguments)) or '(nothing about SMT)'}\n"


def faulty_entries(entries, wanted):
    """What is wrong with entries, in one text (str, empty when nothing is), for a message."""
    faulty = [
        f"{entry.title or entry.kernel!r}: {', '.join(faults)}"
        for entry, faults in ((entry, boot_arguments.faults(entry.arguments, wanted)) for entry in entries)
        if faults
    ]
    return "; ".join(faulty[:5]) + (f"; and {len(faulty) - 5} more" if len(faulty) > 5 else "")


# ---- told to end ----------------------------------------------------------------------------------------------------------------------------------

_ended_by = []


def heed_signals():
    """Take the signals that end a process as a wish, which :func:`go_on` and a running tool hear: an exception out of a handler would tear apart what puts
    files in place or back. From the moment in which the new configuration is in place nobody asks any more, and the run ends as what it is, done.
    """
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda told, dummy: _ended_by.append(told))


def go_on():
    """Raises BootLoaderError when the run was told to end. To be called only where leaving takes everything back."""
    if _ended_by:
        raise BootLoaderError(f"It was ended by signal {_ended_by[0]}. Nothing was changed")


# ---- files ----------------------------------------------------------------------------------------------------------------------------------------


def read_exact(fs, path):
    """A file's text such that writing it gives the same bytes (str with surrogate escapes), or None when there is no file.

    Raises:
        BootLoaderError: it cannot be read, or is too large to be a configuration file.
    """
    try:
        with open(fs.path(path), encoding="utf-8", errors="surrogateescape", newline="") as stream:
            text = stream.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as trouble:
        raise BootLoaderError(f"{fs.path(path)} cannot be read: {trouble.strerror}") from trouble
    if len(text) > LARGEST:
        raise BootLoaderError(f"{fs.path(path)} is larger than {LARGEST} bytes: that is no configuration file")
    return text


def beside(fs, path, suffix):
    """(full path of the file that a path leads to, full path of a hidden file in the same directory).

    The name ends such that no loader reads it: not in .cfg, not in .conf.
    """
    target = os.path.realpath(fs.path(path))
    return target, os.path.join(os.path.dirname(target), "." + os.path.basename(target) + suffix)


def leftovers(fs, paths):
    """Changes that remove what a killed run left beside the files (list of Change)."""
    hidden = [beside(fs, path, suffix)[1] for path in paths for suffix in (NEW, NEW + ".new", BEFORE)]
    return [Change(name, "left by a run that was killed\n", None) for name in hidden if os.path.lexists(name)]


def replace(fs, path, text):
    """Put a file in place whole, with owner and mode of the one before, or take it away when `text` is None.

    Raises:
        BootLoaderError: the file is as it was.
    """
    target, new = beside(fs, path, NEW)
    try:
        if text is None:
            remove(target)
            return
        durable.make_folders(os.path.dirname(target), 0o755)
        remove(new)
        with open(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600),
            "w",
            encoding="utf-8",
            errors="surrogateescape",
            newline="",
        ) as stream:
            stream.write(text)
        install(new, target)
    except OSError as trouble:
        remove_quietly(new)
        raise BootLoaderError(f"{target} cannot be written: {trouble.strerror}. Nothing was changed") from trouble


def install(new, target):
    """Rename a file over another one, with that one's owner and mode, after all of it has reached the disk, and for good. Raises OSError."""
    with open(new, "rb") as stream:
        try:
            status = os.stat(target)
            os.fchown(stream.fileno(), status.st_uid, status.st_gid)
            os.fchmod(stream.fileno(), status.st_mode & 0o7777)
        except FileNotFoundError:
            os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())
    durable.replace(new, target)


def remove(full):
    """Unlink a file that may not be there, for good. Raises OSError."""
    try:
        durable.unlink(full)
    except FileNotFoundError:
        return


def remove_quietly(full):
    """Unlink on the way out of another trouble, which is the one to tell."""
    try:
        os.unlink(full)
    except OSError:
        return


class Undo:
    """Files that are as they were when the block is left by an exception.

    Each is copied beside itself before it may change, so that taking it back is a rename: that works on a full disk too.
    """

    def __init__(self, fs):
        self._fs = fs
        self._kept = []

    def keep(self, path):
        """Raises BootLoaderError when no copy can be made."""
        go_on()
        target, copy = beside(self._fs, path, BEFORE)
        try:
            remove(copy)
            try:
                shutil.copy2(target, copy)
                status = os.stat(target)
                os.chown(copy, status.st_uid, status.st_gid)
                # Where it is renamed back, a power cut must not find it empty.
                durable.flush(copy)
            except FileNotFoundError:
                self._kept.append((target, None))
                return
        except OSError as trouble:
            remove_quietly(copy)
            raise BootLoaderError(f"{target} cannot be copied before it is changed: {trouble.strerror}. Nothing was changed") from trouble
        self._kept.append((target, copy))

    def __enter__(self):
        return self

    def __exit__(self, kind, trouble, where):
        failed = []
        for target, copy in self._kept:
            try:
                if copy is None:
                    if kind is not None:
                        remove(target)
                elif kind is None:
                    remove(copy)
                else:
                    durable.replace(copy, target)
            except OSError as failure:
                failed.append(f"{target}: {failure.strerror}")
        if failed:
            raise BootLoaderError(f"{trouble or 'The copies made before the change remain'}. Not put back as it was: {'; '.join(failed)}") from trouble


# ---- tools ----------------------------------------------------------------------------------------------------------------------------------------


def run_tool(fs, arguments):
    """Run a program and give back what it printed (str).

    Its locale is the host's, not that of who runs Ansible: menu titles are translated, and GRUB_DEFAULT may name one.

    Args:
        arguments: list of str, the first one a full path. No shell is involved.

    Raises:
        BootLoaderError: it cannot be started, ends with another exit code than 0, or takes longer than `TOOL_SECONDS`; or this run was told to end.
    """
    go_on()
    environment = {"PATH": os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    match = next((match for match in (_LANG.search(fs.read(path) or "") for path in _LOCALE_FILES) if match is not None), None)
    if match is not None:
        environment["LANG"] = match.group(1)
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    except OSError as trouble:
        raise BootLoaderError(f"{arguments[0]} cannot be run: {trouble.strerror}. Nothing was changed") from trouble
    output, errors = _await(process, arguments[0])
    if process.returncode != 0:
        lines = (errors or output).decode("utf-8", "replace").strip().split("\n")
        said = " / ".join(lines[-8:])[-800:].rstrip(".")
        raise BootLoaderError(f"{arguments[0]} failed with exit code {process.returncode}: {said}. Nothing was changed")
    return output.decode("utf-8", "surrogateescape")


def _await(process, name):
    """(stdout, stderr) of a tool in a session of its own, once it has ended. It goes with all it started when it takes too long, or this run is told to end:
    what a part of it wrote later would undo that everything was put back.
    """
    end = time.monotonic() + TOOL_SECONDS
    with process:
        try:
            while True:
                try:
                    return process.communicate(timeout=LOOK_SECONDS)
                except subprocess.TimeoutExpired as trouble:
                    go_on()
                    if time.monotonic() > end:
                        raise BootLoaderError(f"{name} did not end within {TOOL_SECONDS} seconds. Nothing was changed") from trouble
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
