# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of files that is made completely or undone, and what else loaders share: termination signals,
and running of tools.
"""

import contextlib
import hashlib
import os
import re
import selectors
import shutil
import signal
import stat
import subprocess
import time
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends.base import (
    NOTHING_WAS_CHANGED,
    BootLoaderError,
    TextChange,
)

NEW_SUFFIX = ".threadwise-smt-new"
BACKUP_SUFFIX = ".threadwise-smt-before"
TOOL_SECONDS = 900
# How often to check for a termination signal while a tool runs.
POLL_SECONDS = 0.2
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
MAX_CONFIG_SIZE = 16 << 20

_LOCALE_FILES = ("etc/default/locale", "etc/locale.conf")
_LANG = re.compile(r'^\s*LANG=["\']?([A-Za-z0-9_.@-]+)["\']?\s*$', re.MULTILINE)

# ---- termination signals ---------------------------------------------------------------------------------------------

_received_signals: "list[int]" = []


def defer_termination_signals() -> None:
    """Record the signals that end a process instead of ending at once;
    `check_signals` and a running tool react to them.

    An exception from a signal handler could interrupt the code that replaces or restores files. Once the new
    configuration is in place, no code checks for signals any more, and the run ends with success.
    """
    for number in TERMINATION_SIGNALS:
        signal.signal(number, lambda received, dummy: _received_signals.append(received))


def check_signals() -> None:
    """Raise BootLoaderError after a termination signal. Call this only where an exception undoes all changes."""
    if _received_signals:
        raise BootLoaderError(f"The run was ended by signal {_received_signals[0]}")


# ---- files -----------------------------------------------------------------------------------------------------------


def read_exact(fs: host_files.HostFs, path: str) -> "str | None":
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
        raise BootLoaderError(
            f"{fs.path(path)} is larger than {MAX_CONFIG_SIZE} bytes, so it is not a configuration file"
        )
    return text


def resolved_and_hidden(fs: host_files.HostFs, path: str, suffix: str) -> "tuple[str, str]":
    """Return the full path of a file with symbolic links resolved, and that of a hidden file in the same directory.

    The suffix has to be one that no boot loader reads: neither .cfg nor .conf.
    """
    target = os.path.realpath(fs.path(path))
    return target, os.path.join(os.path.dirname(target), "." + os.path.basename(target) + suffix)


def leftovers(fs: host_files.HostFs, paths: "t.Iterable[str]") -> "list[TextChange]":
    """Return changes that remove the hidden files of an interrupted run."""
    hidden = [
        resolved_and_hidden(fs, path, suffix)[1]
        for path in paths
        for suffix in (NEW_SUFFIX, NEW_SUFFIX + ".new", BACKUP_SUFFIX)
    ]
    return [TextChange(name, "left behind by an interrupted run\n", None) for name in hidden if os.path.lexists(name)]


def replace(fs: host_files.HostFs, path: str, text: "str | None") -> None:
    """Replace a file atomically, keeping its owner and mode, or remove it.

    Args:
        fs: the host's files.
        path: path below the sysroot.
        text: the new content, or None to remove the file.

    Raises:
        BootLoaderError: The file cannot be written and is unchanged.
    """
    target, new = resolved_and_hidden(fs, path, NEW_SUFFIX)
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
        install(new, target, boots(fs, target))
    except OSError as error:
        remove_quietly(new)
        raise BootLoaderError(f"{target} cannot be written: {error.strerror}") from error


def replace_all(fs: host_files.HostFs, texts: "t.Mapping[str, str | None]") -> None:
    """Replace or remove all of these files, or none.

    Args:
        fs: the host's files.
        texts: the new content of each, by its path below the sysroot; None to remove it.

    Raises:
        BootLoaderError: One of them cannot be written; all are as they were, or the error says which are not.
    """
    with Undo(fs) as undo:
        for path in texts:
            undo.back_up(path)
        for path, text in texts.items():
            replace(fs, path, text)


def boots(fs: host_files.HostFs, target: str) -> bool:
    """Return whether a boot loader of this host reads a file.

    Settings that a tool makes its files of are in /etc; other trees are not booted.
    """
    return fs.is_host and not target.startswith(fs.path("etc") + "/")


def install(new: str, target: str, is_booted: bool) -> None:
    """Rename a file durably over another one, with the owner and mode of that one,
    after its content has reached the disk.

    Args:
        new: path of the file.
        target: path of the file to replace.
        is_booted: from :func:`boots`.

    Raises:
        OSError: It could not be renamed or flushed.
    """
    with open(new, "rb") as stream:
        try:
            status = os.stat(target)
            os.fchown(stream.fileno(), status.st_uid, status.st_gid)
            os.fchmod(stream.fileno(), status.st_mode & 0o7777)
        except FileNotFoundError:
            os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())
    (durable.replace_for_boot_loaders if is_booted else durable.replace)(new, target)


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


class _Backup(t.NamedTuple):
    """A file that may change: its path, its copy (None when it does not exist),
    and its state as `_state` returns it.
    """

    target: str
    copy: "str | None"
    state: str


class Undo:
    """A context in which an exception restores files, and an error says what has become of them.

    Each file is copied into its own directory before it may change. Restoring it is then a rename, which works on a
    full disk too.

    Args:
        fs: the host's files.
    """

    def __init__(self, fs: host_files.HostFs) -> None:
        self._fs = fs
        self._backups: list[_Backup] = []

    def back_up(self, path: str) -> None:
        """Make a copy of a file that may change. Raises BootLoaderError when that fails."""
        check_signals()
        target, copy = resolved_and_hidden(self._fs, path, BACKUP_SUFFIX)
        try:
            remove(copy)
            state = _state(target)
            if state != _MISSING:
                _copy(target, copy)
        except OSError as error:
            remove_quietly(copy)
            raise BootLoaderError(f"The backup copy of {target} cannot be made: {error.strerror}") from error
        self._backups.append(_Backup(target, None if state == _MISSING else copy, state))

    def __enter__(self) -> "Undo":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        traceback: t.Optional[types.TracebackType],
    ) -> None:
        try:
            self._end(kind, error)
        finally:
            self._settle()

    def _settle(self) -> None:
        """See that a boot loader finds the files after a power failure, once for each file system:
        it may not replay a journal.
        """
        folders = {os.path.dirname(backup.target) for backup in self._backups if boots(self._fs, backup.target)}
        by_device: dict[int, str] = {}
        for folder in sorted(folders):
            with contextlib.suppress(OSError):
                by_device.setdefault(os.stat(folder).st_dev, folder)
        for folder in by_device.values():
            durable.settle(folder)

    def _end(self, kind: "type[BaseException] | None", error: "BaseException | None") -> None:
        if kind is None:
            remaining = [text for text in (_removal_error(backup.copy) for backup in self._backups) if text]
            if remaining:
                failure = BootLoaderError(f"Backup copies cannot be removed: {'; '.join(remaining)}")
                failure.outcome = "The boot arguments were changed"
                raise failure
            return
        outcome, is_complete = self._restore()
        if isinstance(error, BootLoaderError):
            error.outcome = outcome
        elif not is_complete:
            failure = BootLoaderError(f"The change failed: {error!r}")
            failure.outcome = outcome
            raise failure from error

    def _restore(self) -> "tuple[str, bool]":
        """Restore the files, and return what has become of them and whether all are as they were.

        The files themselves are compared, because a tool that fails may or may not have written them, and a call that
        fails may have had its effect.
        """
        restored, failed, remaining = [], [], []
        for target, copy, state in self._backups:
            if _current_state(target) == state:
                remaining += [text for text in [_removal_error(copy)] if text]
                continue
            reason = "it was changed again"
            try:
                if copy is None:
                    remove(target)
                elif boots(self._fs, target):
                    durable.replace_for_boot_loaders(copy, target)
                else:
                    durable.replace(copy, target)
            except OSError as error:
                reason = error.strerror or str(error)
            if _current_state(target) == state:
                restored.append(target)
            else:
                failed.append(
                    f"{target}: {reason}"
                    + (f" (what it contained is in {copy})" if copy is not None and os.path.lexists(copy) else "")
                )
        if failed:
            sentences = [f"Not restored: {'; '.join(failed)}"] + (
                ["The other changed files were restored"] if restored else []
            )
        else:
            sentences = ["All changed files were restored" if restored else NOTHING_WAS_CHANGED]
        if remaining:
            sentences.append(f"Backup copies cannot be removed: {'; '.join(remaining)}")
        return ". ".join(sentences), not failed


_MISSING = "missing"


def _state(full: str) -> str:
    """Return a text that differs when the content, the owner or the mode of a file does, or `_MISSING`.

    Raises OSError.
    """
    try:
        with open(full, "rb") as stream:
            status = os.fstat(stream.fileno())
            digest = hashlib.sha256(stream.read())
    except FileNotFoundError:
        return _MISSING
    return f"{status.st_mode:o} {status.st_uid} {status.st_gid} {digest.hexdigest()}"


def _current_state(full: str) -> "str | None":
    """Return `_state` of a file, or None when it cannot be read."""
    try:
        return _state(full)
    except OSError:
        return None


def _copy(full: str, copy: str) -> None:
    """Copy a file with its owner, mode, times and extended attributes, onto the disk.

    At no moment may more users open the copy. Raises OSError.
    """
    with open(full, "rb") as source:
        status = os.fstat(source.fileno())
        # The bits of the group and of others follow when the group is the right one.
        descriptor = os.open(
            copy,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            stat.S_IMODE(status.st_mode) & 0o700,
        )
        with open(descriptor, "wb") as stream:
            os.fchown(descriptor, status.st_uid, status.st_gid)
            shutil.copystat(full, copy)
            shutil.copyfileobj(source, stream)
            stream.flush()
            os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
            # After it is renamed back, a power failure must not leave it empty.
            os.fsync(descriptor)


def _removal_error(copy: "str | None") -> str:
    """Remove a backup copy, if there is one; return why it still exists, or an empty text."""
    if copy is None:
        return ""
    try:
        remove(copy)
    except OSError as error:
        if os.path.lexists(copy):
            return f"{copy}: {error.strerror}"
    return ""


# ---- tools -----------------------------------------------------------------------------------------------------------


def run_tool(fs: host_files.HostFs, arguments: "list[str]") -> str:
    """Run a program without a shell, in the locale of the host.

    The locale of the Ansible session would be wrong: menu titles are translated, and GRUB_DEFAULT may name one.

    Args:
        fs: the host's files.
        arguments: command line, with the full path of the program.

    Returns:
        What the program wrote to standard output.

    Raises:
        BootLoaderError: The program cannot be started, ends with another exit code than 0, or takes longer than
            `TOOL_SECONDS`; or this run got a termination signal.
    """
    check_signals()
    environment = {
        "PATH": os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
    }
    match = next(
        (match for match in (_LANG.search(fs.read(path) or "") for path in _LOCALE_FILES) if match is not None), None
    )
    if match is not None:
        environment["LANG"] = match.group(1)
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise BootLoaderError(f"{arguments[0]} cannot be run: {error.strerror}") from error
    output, errors = _wait_for(process, arguments[0])
    if process.returncode != 0:
        lines = (errors or output).decode("utf-8", "replace").strip().split("\n")
        excerpt = " / ".join(lines[-8:])[-800:].rstrip(".")
        raise BootLoaderError(f"{arguments[0]} failed with exit code {process.returncode}: {excerpt}")
    return output.decode("utf-8", "surrogateescape")


def _wait_for(process: "subprocess.Popen[bytes]", name: str) -> "tuple[bytes, bytes]":
    """Wait until a tool in its own session has ended, and return its standard output and standard error.

    After the time limit or a termination signal the tool is killed with all its children: a child that kept running
    could overwrite restored files.
    """
    end = time.monotonic() + TOOL_SECONDS
    with process:
        try:
            output = _read_all(process, name, end)
            while True:
                try:
                    process.wait(POLL_SECONDS)
                    return output
                except subprocess.TimeoutExpired:
                    _see_that_it_may_run(name, end)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def _read_all(process: "subprocess.Popen[bytes]", name: str, end: float) -> "tuple[bytes, bytes]":
    """Read both outputs of a tool to their end.

    Before Python 3.7.2, communicate() fails when it is called again after a time limit and the tool has closed one of
    its outputs (bpo-35182).
    """
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    parts: dict[int, list[bytes]] = {pipe.fileno(): [] for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for number in parts:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(POLL_SECONDS)
            if not ready:
                _see_that_it_may_run(name, end)
            for key, _events in ready:
                data = os.read(key.fd, 1 << 16)
                parts[key.fd].append(data)
                if not data:
                    selector.unregister(key.fd)
    output, errors = (b"".join(chunks) for chunks in parts.values())
    return output, errors


def _see_that_it_may_run(name: str, end: float) -> None:
    """Raise BootLoaderError after a termination signal or after the time limit, a moment of the monotonic clock."""
    check_signals()
    if time.monotonic() > end:
        raise BootLoaderError(f"{name} did not end within {TOOL_SECONDS} seconds")
