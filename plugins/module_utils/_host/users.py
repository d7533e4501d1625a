# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in the name of another user: with that user's rights and no others, in a process of its own.

A folder that another user may write is never entered with root's rights. Whoever owns it can put a link, a FIFO or a mount in the place of any name in it, at
any moment, so no look at a name says what will be opened a moment later.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes

# What is done in another's folder takes moments. A file system of that user's own (FUSE) can make it last for ever.
PATIENCE = 120.0


class OtherUserError(Exception):
    """What was to be done in the name of another user was not done; the text says why."""


def become(owner):
    """Give up this process's rights for those of a user; neither it nor what it executes can gain others. For a process that was just forked.

    Args:
        owner: (uid, gid).

    Raises:
        OSError: this process may not become that user.
    """
    uid, gid = owner
    if os.geteuid() == 0:
        os.setgroups([])
    if (os.geteuid(), os.getegid()) != (uid, gid):
        os.setgid(gid)
        os.setuid(uid)
    processes.gain_no_privileges()


def call(owner, work, *arguments):
    """What ``work(*arguments)`` returns, called with the rights of a user.

    Args:
        owner: (uid, gid).
        work: returns plain data; of its exceptions only OSError is expected.

    Raises:
        OSError: as of ``work``, where it could be called without a process of its own.
        OtherUserError: the same from a process of its own, or that process did not end in time, or was ended.
    """
    if owner[0] == os.geteuid():
        return work(*arguments)
    told_read, told_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work(owner, work, arguments, told_write)
    os.close(told_write)
    try:
        text = _listen(told_read, time.monotonic() + PATIENCE)
    finally:
        os.close(told_read)
        # One that has told all ends by itself; one that hangs, or whose caller leaves early, has to be ended.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if text is None:
        raise OtherUserError(f"it did not end within {PATIENCE} s")
    try:
        answer = json.loads(text)
    except ValueError:
        raise OtherUserError(f"the process that worked for user {owner[0]} was ended") from None
    if "trouble" in answer:
        raise OtherUserError(answer["trouble"])
    return answer["done"]


def _work(owner, work, arguments, told):
    """In the child. Never returns."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        try:
            become(owner)
            # After the change of user, which takes it away.
            processes.die_with_parent(signal.SIGKILL)
            answer = {"done": work(*arguments)}
        except OSError as error:
            answer = {"trouble": str(error)}
        with os.fdopen(told, "w", encoding="utf-8") as stream:
            json.dump(answer, stream)
    finally:
        os._exit(0)


def _listen(told, until):
    """All that is told until its end, as text; None when that takes too long."""
    said = b""
    while select.select([told], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(told, 65536)
        if not chunk:
            return said.decode("utf-8", "replace")
        said += chunk
    return None


def make_folder(path, owner):
    """Make a folder that belongs to a user, for that user alone. Its parent has to be one that only this process's user may write.

    Raises:
        OSError: it cannot be made.
    """
    os.mkdir(path, 0o700)
    if owner[0] != os.geteuid():
        os.chown(path, *owner)


def remove_folder(path, owner):
    """Remove a folder that belongs to a user, and what that user may remove in it. Its parent has to be one that only this process's user may write.

    Returns:
        None when it is gone, or a sentence about what is still there. Its name is free then, too, unless the sentence says otherwise.
    """
    # Where that user cannot find it nothing can be put into it meanwhile.
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


def _empty(path):
    """With the owner's rights: remove what is in a folder."""
    for folder, folders, _files in os.walk(path):
        for name in folders:
            below = os.path.join(folder, name)
            # What its owner has closed could be neither listed nor emptied.
            if not os.path.islink(below) and os.lstat(below).st_uid == os.geteuid():
                os.chmod(below, 0o700)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
