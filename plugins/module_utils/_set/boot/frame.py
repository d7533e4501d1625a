# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot arguments of a host as data, whatever they are and whoever set them, and the change that puts them back."""

import contextlib
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    awaited,
    detection,
    entries as boot_entries,
    mitigations as boot_mitigations,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.change import Diff
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base

PURPOSE = "smt_rollback"


class Frame(TypedDict):
    """What is there, plain JSON data. Lists of arguments hold those that affect SMT, and every ``mitigations=``.

    Attributes:
        loader: name of the boot loader.
        texts: the texts that its backend writes arguments into, by path; None for no file.
        entries: title and arguments of each boot entry.
        running: arguments of the running kernel.
        own: the ``mitigations=`` arguments that this collection has set.
    """

    loader: str
    texts: "dict[str, str | None]"
    entries: "list[tuple[str, list[str]]]"
    running: "list[str]"
    own: "list[str]"


class PutBack(TypedDict):
    """What came of it.

    Attributes:
        changed: whether a file was changed, or would be in check mode.
        not_back: sentences about what is not as it was.
        reboot_required: whether the running kernel has other arguments than it had, and than the next boot has.
        diff: the changes of files.
        warnings: sentences for the user.
    """

    changed: bool
    not_back: "list[str]"
    reboot_required: bool
    diff: "list[Diff]"
    warnings: "list[str]"


def present(fs: host_files.HostFs) -> Frame:
    """Return the present boot arguments of a host.

    Args:
        fs: the host's files.

    Raises:
        BootLoaderError: the boot loader is not supported, or its configuration cannot be read.
        StateFileError: the record of our own arguments cannot be used.
    """
    loader, backend = _backend(fs)
    return {
        "loader": loader.name,
        "texts": backend.texts(),
        "entries": _entries(backend),
        "running": _running(fs),
        "own": list(boot_mitigations.OwnArguments(fs).configured),
    }


def checked(document: t.Any) -> Frame:
    """Return a frame that comes from a file.

    Raises:
        ValueError: or KeyError, TypeError, AttributeError: it is not a valid one.
    """
    entries = [(title, list(arguments)) for title, arguments in document["entries"]]
    texts, own = dict(document["texts"]), list(document["own"])
    words = [
        document["loader"],
        *texts,
        *document["running"],
        *(word for title, arguments in entries for word in (title, *arguments)),
    ]
    if not all(isinstance(word, str) for word in words) or not all(
        text is None or isinstance(text, str) for text in texts.values()
    ):
        raise ValueError("its boot arguments are not texts")
    if not set(own) <= set(boot_mitigations.ARGUMENTS.values()):
        raise ValueError("it names an argument that this collection does not set")
    return {
        "loader": document["loader"],
        "texts": texts,
        "entries": entries,
        "running": list(document["running"]),
        "own": own,
    }


def described(frame: Frame) -> str:
    """Return the arguments in a few words: ``boot arguments nosmt``. Those of entries count that boot by default."""
    distinct = {
        tuple(arguments) for title, arguments in frame["entries"] if not boot_entries.RESCUE_TITLE.search(title)
    }
    if len(distinct) > 1:
        return "boot arguments that differ from entry to entry"
    words = " ".join(word for arguments in distinct for word in arguments)
    return f"boot arguments {words}" if words else "no boot arguments for SMT"


def put_back(fs: host_files.HostFs, frame: Frame, check: bool) -> PutBack:
    """Give the boot configuration the arguments that it had.

    What others have changed in it since, such as a kernel that was installed, stays.

    Args:
        fs: the files of the running system.
        frame: from `present`.
        check: change nothing.

    Raises:
        BootLoaderError: The boot loader is another one or its configuration cannot be changed; the text says what has
            become of the files.
        HostLockError: Another run is changing this host.
        StateFileError: The record of our own arguments cannot be used.
    """
    loader, backend = _backend(fs)
    if loader.name != frame["loader"]:
        raise backend_base.BootLoaderError(
            f"The boot loader of this host is {loader.title}, and its boot arguments were saved from {frame['loader']}"
        )
    if check:
        return _put_back(fs, frame, loader, backend, True)
    with locks.HostLock(fs.sysroot, PURPOSE, locks.CHANGE_SECONDS):
        return _put_back(fs, frame, loader, backend, False)


def _put_back(
    fs: host_files.HostFs, frame: Frame, loader: loader_base.Loader, backend: backend_base.Backend, check: bool
) -> PutBack:
    own = boot_mitigations.OwnArguments(fs)
    pending = backend.changes_back(frame["texts"])
    earlier = _entries(backend)
    # Of a generated configuration an interrupted run may have left the settings of one state, and the entries of
    # another.
    acts = bool(pending) or (loader.keeps_settings and bool(_differences(earlier, frame)))
    if acts and not check:
        with own.changing(next(iter(frame["own"]), "")):
            backend.put_back(frame["texts"])
        with contextlib.suppress(OSError):
            awaited.RECORD.remove(fs)
    entries = frame["entries"] if acts and check else _entries(backend)
    running = _running(fs)
    return {
        "changed": bool(pending) or entries != earlier,
        "not_back": _differences(entries, frame),
        "reboot_required": (
            running != frame["running"] and any(sorted(arguments) != sorted(running) for _title, arguments in entries)
        ),
        "diff": [
            {
                "before_header": change.where,
                "after_header": change.where,
                "before": change.before or "",
                "after": change.after or "",
            }
            for change in pending
        ],
        "warnings": backend.warnings,
    }


def _backend(fs: host_files.HostFs) -> "tuple[loader_base.Loader, backend_base.Backend]":
    detected = detection.find_loader(fs)
    if detected.loader is None or detected.blocked_by is not None:
        raise backend_base.BootLoaderError(f"The boot arguments of this host cannot be changed: {detected.blocked_by}")
    return detected.loader, detected.loader.backend(fs, detected.tool)


def _entries(backend: backend_base.Backend) -> "list[tuple[str, list[str]]]":
    return [
        (entry.title or entry.kernel, boot_arguments.related_arguments(entry.arguments)) for entry in backend.entries()
    ]


def _running(fs: host_files.HostFs) -> "list[str]":
    return boot_arguments.related_arguments(boot_arguments.split_arguments(fs.read("proc/cmdline") or ""))


def _differences(entries: "list[tuple[str, list[str]]]", frame: Frame) -> "list[str]":
    """Return sentences about entries with other arguments than before.

    One that was not there is to have those that all others had.
    """
    before = dict(frame["entries"])
    distinct = {tuple(arguments) for arguments in before.values()}
    usual = list(distinct.pop()) if len(distinct) == 1 else None
    wanted = [(title, arguments, before.get(title, usual)) for title, arguments in entries]
    return [
        f"the boot entry {title} has {' '.join(arguments) or 'no argument for SMT'} instead of"
        f" {' '.join(expected) or 'none'}"
        for title, arguments, expected in wanted
        if expected is not None and sorted(arguments) != sorted(expected)
    ]
