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


class Awaited:
    """What waits for a boot on a host.

    Args:
        fs: the host's files.

    Raises:
        StateFileError: the record cannot be used.
    """

    def __init__(self, fs: host_files.HostFs) -> None:
        self._fs = fs
        self._earlier = RECORD.load(fs, _checked)
        self._boot = state_file.boot_id(fs)

    def in_vain(self, configured: "t.Iterable[str]") -> "str | None":
        """Return the sentence that says that another reboot would not help, or None where it may.

        Args:
            configured: the arguments that the next boot has.
        """
        earlier = self._earlier
        if earlier is None or earlier.configured != tuple(configured) or self._boot in ("", earlier.boot):
            return None
        return (
            "this host has booted since these arguments were configured, and its kernel runs without them: it boots"
            " another entry, or something else writes its arguments, so that it would be rebooted again and again. To"
            f" have it rebooted once more, remove {self._fs.path(RECORD.path)}"
        )

    def remember(self, configured: "t.Iterable[str]", is_required: bool, is_new: bool) -> "list[str]":
        """Record that arguments wait for a boot, or that they no longer do; return warnings.

        Args:
            configured: the arguments that the next boot has.
            is_required: whether the running kernel has others.
            is_new: whether this run has set them, so that no boot before counts.
        """
        arguments = tuple(configured)
        try:
            if not is_required:
                RECORD.remove(self._fs)
            elif self._boot and (is_new or self._earlier is None or self._earlier.configured != arguments):
                RECORD.save(self._fs, {"configured": list(arguments), "boot": self._boot})
        except OSError as error:
            path = self._fs.path(RECORD.path)
            return [f"{path} cannot be written, so a reboot in vain would not be noticed: {error.strerror}."]
        return []


def _checked(document: "t.Mapping[str, t.Any]") -> _Awaited:
    configured, boot = tuple(document["configured"]), document["boot"]
    if not all(isinstance(word, str) for word in (*configured, boot)):
        raise ValueError("it has something else than texts")
    return _Awaited(configured, boot)
