# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host has already booted since its boot configuration got arguments that its running kernel has not: another
reboot would not help then, and a pipeline would reboot it at each run.

A boot counts by the kernel's random id of it, whoever has rebooted the host.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file

RECORD = state_file.StateFile("var/lib/threadwise-smt/boot-awaited.json", "threadwise.smt/boot-awaited")
"""The configured arguments that wait for a boot, and the boot during which they were first seen."""


class _Awaited(t.NamedTuple):
    configured: "tuple[str, ...]"
    boot: str


def in_vain(fs: host_files.HostFs, configured: "t.Iterable[str]") -> "str | None":
    """Return the sentence that says that another reboot would not help, or None where it may.

    Args:
        fs: the host's files.
        configured: the arguments that the next boot has.

    Raises:
        StateFileError: the record cannot be used.
    """
    earlier = RECORD.load(fs, _checked)
    now = state_file.boot_id(fs)
    if earlier is None or not now or earlier.configured != tuple(configured) or earlier.boot == now:
        return None
    return (
        "this host has booted since these arguments were configured, and its kernel runs without them: it boots another"
        " entry, or something else writes its arguments, so that it would be rebooted again and again. To have it"
        f" rebooted once more, remove {fs.path(RECORD.path)}"
    )


def remember(fs: host_files.HostFs, configured: "t.Iterable[str]", is_required: bool) -> "list[str]":
    """Record that arguments wait for a boot, or that they no longer do; return warnings.

    Args:
        fs: the host's files.
        configured: the arguments that the next boot has.
        is_required: whether the running kernel has others.

    Raises:
        StateFileError: the record cannot be used.
    """
    arguments = tuple(configured)
    earlier = RECORD.load(fs, _checked)
    try:
        if not is_required:
            RECORD.remove(fs)
        elif state_file.boot_id(fs) and (earlier is None or earlier.configured != arguments):
            RECORD.save(fs, {"configured": list(arguments), "boot": state_file.boot_id(fs)})
    except OSError as error:
        return [
            f"{fs.path(RECORD.path)} cannot be written, so a reboot in vain would not be noticed: {error.strerror}."
        ]
    return []


def _checked(document: "t.Mapping[str, t.Any]") -> _Awaited:
    configured, boot = tuple(document["configured"]), document["boot"]
    if not all(isinstance(word, str) for word in (*configured, boot)):
        raise ValueError("it has something else than texts")
    return _Awaited(configured, boot)
