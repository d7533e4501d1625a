# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of the boot loader backends and what they share: atomic replacement of files, undo, and running of tools."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import types
import typing as t
from dataclasses import dataclass

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files

NEW_SUFFIX = ".threadwise-smt-new"
BACKUP_SUFFIX = ".threadwise-smt-before"
TOOL_SECONDS = 900
# How often to check for a termination signal while a tool runs.
POLL_SECONDS = 0.2
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
MAX_CONFIG_SIZE = 16 << 20

_LOCALE_FILES = ("etc/default/locale", "etc/locale.conf")
_LANG = re.compile(r'^\s*LANG=["\']?([A-Za-z0-9_.@-]+)["\']?\s*$', re.MULTILINE)


class BootLoaderError(Exception):
    """A failed change of the boot loader's configuration; the text names the file or the tool, and the reason."""


@dataclass(frozen=True)
class TextChange:
    """A pending change of a text: the content of a file, or a list of boot entries with their arguments.

    Attributes:
        where: the file or the list.
        before: the current text; None when the file does not exist.
        after: the new text; None when the file will be removed.
    """

    where: str
    before: str | None
    after: str | None


class FoundArgument(t.TypedDict):
    """An argument in the administrator's own settings that has to be removed.

    Attributes:
        argument: the boot argument.
        where: the file or the boot entry that contains it.
    """

    argument: str
    where: str


class Backend(t.Protocol):
    """The interface of a boot loader's backend.

    Attributes:
        name: name of the boot loader.
        warnings: sentences for the user.
    """

    name: str
    warnings: list[str]

    def entries(self) -> list[boot_entries.Entry]:
        """Return the boot entries that the backend manages."""

    def found(self, wanted: boot_arguments.Wanted) -> list[FoundArgument]:
        """Return the arguments in the administrator's own settings that `wanted` removes."""

    def pending(self, wanted: boot_arguments.Wanted) -> list[TextChange]:
        """Return the changes that `apply` would make, without writing anything; empty when there are none."""

    def apply(self, wanted: boot_arguments.Wanted) -> None:
        """Make the changes, or raise `BootLoaderError` and leave everything as it was."""


def entries_change(where: str, entries: list[boot_entries.Entry], wanted: boot_arguments.Wanted) -> TextChange | None:
    """Return the change of the entries' SMT arguments, one line for each entry; None when all entries are as wanted."""
    if all(not boot_arguments.faults(entry.arguments, wanted) for entry in entries):
        return None
    before = "".join(_entry_line(entry, entry.arguments) for entry in entries)
    after = "".join(_entry_line(entry, boot_arguments.applied(entry.arguments, wanted)) for entry in entries)
    return TextChange(where, before, after)


def _entry_line(entry: boot_entries.Entry, arguments: t.Iterable[str]) -> str:
    return f"{entry.title or entry.kernel}: {' '.join(boot_arguments.smt_arguments(arguments)) or '(no SMT arguments)'}\n"


def faulty_entries(entries: list[boot_entries.Entry], wanted: boot_arguments.Wanted) -> str:
    """Return what is wrong with the arguments of entries, as text for a message; empty when nothing is."""
    faulty = [
        f"{entry.title or entry.kernel!r}: {', '.join(faults)}"
        for entry, faults in ((entry, boot_arguments.faults(entry.arguments, wanted)) for entry in entries)
        if faults
    ]
    return "; ".join(faulty[:5]) + (f"; and {len(faulty) - 5} more" if len(faulty) > 5 else "")


# ---- termination signals --------------------------------------------------------------------------------------------------------------------------

_received_signals: list[int] = []


def heed_signals() -> None:
    """Record the signals that end a process instead of ending at once; `check_signals` and a running tool react to them.

    An exception from a signal handler could interrupt the code that replaces or restores files. Once the new configuration is in place, no code
    checks for signals any more, and the run ends with success.
    """
    for number in TERMINATION_SIGNALS:
        signal.signal(number, lambda received, dummy: _received_signals.append(received))


def check_signals() -> None:
    """Raise BootLoaderError after a termination signal. Call this only where an exception undoes all changes."""
    if _received_signals:
        raise BootLoaderError(f"The run was ended by signal {_received_signals[0]}. Nothing was changed")


# ---- files ----------------------------------------------------------------------------------------------------------------------------------------


def read_exact(fs: host_files.HostFs, path: str) -> str | None:
    """Read a file so that writing the text gives the same bytes.

    Args:
        fs: the host's files.
        path: path below the sysroot.

    Returns:
        The text, with surrogate escapes; None when the file does not exist.

    Raises:
        BootLoaderError: The file cannot be read, or is too large to be a configuration file.
    """
    try:
        with open(fs.path(path), encoding="utf-8", errors="surrogateescape", newline="") as stream:
            text = stream.read(MAX_CONFIG_SIZE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BootLoaderError(f"{fs.path(path)} cannot be read: {error.strerror}") from error
    if len(text) > MAX_CONFIG_SIZE:
        raise BootLoaderError(f"{fs.path(path)} is larger than {MAX_CONFIG_SIZE} bytes, so it is not a configuration file")
    return text


def beside(fs: host_files.HostFs, path: str, suffix: str) -> tuple[str, str]:
    """Return the full path of a file with symbolic links resolved, and that of a hidden file in the same directory.

    The suffix has to be one that no boot loader reads: neither .cfg nor .conf.
    """
    target = os.path.realpath(fs.path(path))
    return target, os.path.join(os.path.dirname(target), "." + os.path.basename(target) + suffix)


def leftovers(fs: host_files.HostFs, paths: t.Iterable[str]) -> list[TextChange]:
    """Return changes that remove the hidden files of an interrupted run."""
    hidden = [beside(fs, path, suffix)[1] for path in paths for suffix in (NEW_SUFFIX, NEW_SUFFIX + ".new", BACKUP_SUFFIX)]
    return [TextChange(name, "left behind by an interrupted run\n", None) for name in hidden if os.path.lexists(name)]


def replace(fs: host_files.HostFs, path: str, text: str | None) -> None:
    """Replace a file atomically, keeping its owner and mode, or remove it.

    Args:
        fs: the host's files.
        path: path below the sysroot.
        text: the new content, or None to remove the file.

    Raises:
        BootLoaderError: The file cannot be written and is unchanged.
    """
    target, new = beside(fs, path, NEW_SUFFIX)
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
    except OSError as error:
        remove_quietly(new)
        raise BootLoaderError(f"{target} cannot be written: {error.strerror}. Nothing was changed") from error


def install(new: str, target: str) -> None:
    """Rename a file durably over another one, with the owner and mode of that one, after its content has reached the disk. Raises OSError."""
    with open(new, "rb") as stream:
        try:
            status = os.stat(target)
            os.fchown(stream.fileno(), status.st_uid, status.st_gid)
            os.fchmod(stream.fileno(), status.st_mode & 0o7777)
        except FileNotFoundError:
            os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())
    durable.replace(new, target)


def remove(full: str) -> None:
    """Unlink a file durably, if it exists. Raises OSError."""
    try:
        durable.unlink(full)
    except FileNotFoundError:
        return


def remove_quietly(full: str) -> None:
    """Unlink a file during the handling of another error, which is the one to report."""
    try:
        os.unlink(full)
    except OSError:
        return


class Undo:
    """A context in which an exception restores files.

    Each file is copied into its own directory before it may change. Restoring it is then a rename, which works on a full disk too.

    Args:
        fs: the host's files.
    """

    def __init__(self, fs: host_files.HostFs) -> None:
        self._fs = fs
        self._copies: list[tuple[str, str | None]] = []

    def back_up(self, path: str) -> None:
        """Make a copy of a file that may change. Raises BootLoaderError when that fails."""
        check_signals()
        target, copy = beside(self._fs, path, BACKUP_SUFFIX)
        try:
            remove(copy)
            try:
                shutil.copy2(target, copy)
                status = os.stat(target)
                os.chown(copy, status.st_uid, status.st_gid)
                # After it is renamed back, a power failure must not leave it empty.
                durable.flush(copy)
            except FileNotFoundError:
                self._copies.append((target, None))
                return
        except OSError as error:
            remove_quietly(copy)
            raise BootLoaderError(f"The backup copy of {target} cannot be made: {error.strerror}. Nothing was changed") from error
        self._copies.append((target, copy))

    def __enter__(self) -> Undo:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None) -> None:
        failed = []
        for target, copy in self._copies:
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
            raise BootLoaderError(f"{error or 'The backup copies remain'}. Not restored: {'; '.join(failed)}") from error


# ---- tools ----------------------------------------------------------------------------------------------------------------------------------------


def run_tool(fs: host_files.HostFs, arguments: list[str]) -> str:
    """Run a program without a shell, in the locale of the host.

    The locale of the Ansible session would be wrong: menu titles are translated, and GRUB_DEFAULT may name one.

    Args:
        fs: the host's files.
        arguments: command line, with the full path of the program.

    Returns:
        What the program wrote to standard output.

    Raises:
        BootLoaderError: The program cannot be started, ends with another exit code than 0, or takes longer than `TOOL_SECONDS`; or this run got a
            termination signal.
    """
    check_signals()
    environment = {"PATH": os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    match = next((match for match in (_LANG.search(fs.read(path) or "") for path in _LOCALE_FILES) if match is not None), None)
    if match is not None:
        environment["LANG"] = match.group(1)
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    except OSError as error:
        raise BootLoaderError(f"{arguments[0]} cannot be run: {error.strerror}. Nothing was changed") from error
    output, errors = _wait_for(process, arguments[0])
    if process.returncode != 0:
        lines = (errors or output).decode("utf-8", "replace").strip().split("\n")
        excerpt = " / ".join(lines[-8:])[-800:].rstrip(".")
        raise BootLoaderError(f"{arguments[0]} failed with exit code {process.returncode}: {excerpt}. Nothing was changed")
    return output.decode("utf-8", "surrogateescape")


def _wait_for(process: subprocess.Popen[bytes], name: str) -> tuple[bytes, bytes]:
    """Wait until a tool in its own session has ended, and return its standard output and standard error.

    After the time limit or a termination signal the tool is killed with all its children: a child that kept running could overwrite restored files.
    """
    end = time.monotonic() + TOOL_SECONDS
    with process:
        try:
            while True:
                try:
                    return process.communicate(timeout=POLL_SECONDS)
                except subprocess.TimeoutExpired as error:
                    check_signals()
                    if time.monotonic() > end:
                        raise BootLoaderError(f"{name} did not end within {TOOL_SECONDS} seconds. Nothing was changed") from error
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
