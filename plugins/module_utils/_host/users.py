# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations with the privileges of another user, in a process of their own.

Never enter a directory that another user may write with root's privileges. Its owner can replace any name in it with a
symbolic link, a FIFO or a mount at any moment, so checking a name does not tell what a later open will find.
"""

import json
import os
import secrets
import select
import shutil
import signal
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

# Seconds. Operations in another user's directory take moments, but that user's own file system (FUSE) can block them
# for ever.
TIME_LIMIT = 120.0

_Result = t.TypeVar("_Result")


class OtherUserError(HostError):
    """An operation with the privileges of another user failed; the message says why."""


def become(owner: "tuple[int, int]") -> None:
    """Switch this process to a user's privileges; neither it nor any program it executes can gain others.

    Only for a process that was just forked.

    Args:
        owner: (uid, gid).

    Raises:
        OSError: this process is not allowed to become that user.
    """
    uid, gid = owner
    if os.geteuid() == 0:
        os.setgroups([])
    if (os.geteuid(), os.getegid()) != (uid, gid):
        os.setgid(gid)
        os.setuid(uid)
    processes.gain_no_privileges()


def call(owner: "tuple[int, int]", work: "t.Callable[..., _Result]", *arguments: object) -> _Result:
    """Return the result of ``work(*arguments)``, called with a user's privileges.

    Args:
        owner: (uid, gid).
        work: returns JSON data and raises no exception but OSError.
        *arguments: its arguments.

    Raises:
        OSError: from ``work``, when no separate process was needed.
        OtherUserError: ``work`` raised OSError in its separate process, or that process exceeded the time limit or was
            killed.
    """
    if owner[0] == os.geteuid():
        return work(*arguments)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_child(owner, work, arguments, writer)
    os.close(writer)
    try:
        text = _read_all(reader, time.monotonic() + TIME_LIMIT)
    finally:
        os.close(reader)
        # A child that has sent its reply exits by itself; one that hangs, or whose caller is interrupted, must be
        # killed.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if text is None:
        raise OtherUserError(f"the process of user {owner[0]} did not finish within {TIME_LIMIT:g} s")
    try:
        reply = json.loads(text)
    except ValueError:
        raise OtherUserError(f"the process of user {owner[0]} was killed") from None
    if "error" in reply:
        raise OtherUserError(reply["error"])
    result: _Result = reply["result"]
    return result


def _run_child(
    owner: "tuple[int, int]", work: "t.Callable[..., object]", arguments: "tuple[object, ...]", writer: int
) -> t.NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        reply: dict[str, object]
        try:
            become(owner)
            # After the change of user, which would cancel it.
            processes.die_with_parent(signal.SIGKILL)
            reply = {"result": work(*arguments)}
        except OSError as error:
            reply = {"error": str(error)}
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            json.dump(reply, stream)
    finally:
        os._exit(0)


def _read_all(reader: int, until: float) -> "str | None":
    """Return all text from a pipe up to its end, or None when the end does not come in time."""
    data = b""
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(reader, 65536)
        if not chunk:
            return data.decode("utf-8", "replace")
        data += chunk
    return None


def make_folder(path: str, owner: "tuple[int, int]") -> None:
    """Create a directory that belongs to a user, accessible to that user alone.

    Args:
        path: its parent must be writable by this process's user only.
        owner: (uid, gid).

    Raises:
        OSError: it could not be created.
    """
    os.mkdir(path, 0o700)
    if owner[0] != os.geteuid():
        os.chown(path, *owner)


def remove_folder(path: str, owner: "tuple[int, int]") -> "str | None":
    """Remove a directory that belongs to a user, with everything that this user may remove in it.

    Args:
        path: its parent must be writable by this process's user only.
        owner: (uid, gid).

    Returns:
        None when the directory is gone, else a sentence about what is left. The name is free again in either case,
        unless the sentence says otherwise.
    """
    # Under a name that the user cannot find, nothing can be added during the removal.
    hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}-{secrets.token_hex(8)}")
    try:
        os.rename(path, hidden)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path} could not be removed: {error.strerror}"
    try:
        call(owner, _empty, hidden)
        os.rmdir(hidden)
    except (OSError, OtherUserError) as error:
        return f"{path} could not be removed, and is now {hidden}: {error}"
    return None


def _empty(path: str) -> None:
    """Remove everything in a directory, with its owner's privileges."""
    for folder, folders, _files in os.walk(path):
        for name in folders:
            below = os.path.join(folder, name)
            # A directory without permissions for its owner could be neither listed nor emptied.
            if not os.path.islink(below) and os.lstat(below).st_uid == os.geteuid():
                os.chmod(below, 0o700)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
