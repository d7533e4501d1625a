# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The argument ``mitigations=`` as this collection sets it: beside the arguments for SMT, and known as ours,
so that it can be removed again.

``mitigations=`` is often the administrator's own, unlike ``nosmt``. Where a boot loader keeps arguments in the entries
themselves, only a record tells which one is ours. Where it is generated from settings, those of the administrator are
not written, and are back when ours are removed.
"""

import contextlib
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.state_file import StateFile
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base

AUTO, AUTO_NOSMT, OFF = "auto", "auto_nosmt", "off"
ARGUMENTS = {AUTO: "mitigations=auto", AUTO_NOSMT: boot_arguments.MITIGATIONS_NOSMT_ARGUMENT, OFF: "mitigations=off"}

RECORD = StateFile("var/lib/threadwise-smt/boot-mitigations.json", "threadwise.smt/boot-mitigations")
"""Which arguments in the boot configuration are ours."""
REMOVED = StateFile("run/threadwise-smt/boot-mitigations.json", "threadwise.smt/boot-mitigations")
"""Which of ours were removed since the host booted: the running kernel may have them.

It is gone with the next boot, as all of /run.
"""

_EVERY = boot_arguments.DesiredArguments((), (boot_arguments.MITIGATIONS,), removes_parts=False)


def combined(
    desired: "boot_arguments.DesiredArguments | None", mitigations: "str | None", is_smt_on: bool
) -> boot_arguments.DesiredArguments:
    """Return the desired arguments with those for mitigations.

    Args:
        desired: the desired arguments for SMT; None when they are left as they are.
        mitigations: a key of `ARGUMENTS`, or None when ``mitigations=`` is left as it is.
        is_smt_on: whether `desired` turns SMT on.

    Returns:
        The arguments to set and to remove.

    Raises:
        BootArgsError: The value is not valid, or the two contradict each other.
    """
    if mitigations is None:
        if desired is None:
            raise boot_arguments.BootArgsError("nothing is requested: set smt, maxcpus or mitigations")
        return desired
    if mitigations not in ARGUMENTS:
        raise boot_arguments.BootArgsError(
            f"mitigations is {mitigations!r:.60}: it must be one of {', '.join(ARGUMENTS)}"
        )
    if desired is not None and (desired.mitigations or mitigations == AUTO_NOSMT):
        states = f"it cannot be combined with {'smt: enabled' if is_smt_on else 'what turns SMT off'}"
        raise boot_arguments.BootArgsError(
            f"mitigations is {mitigations}: {states}, because mitigations=auto,nosmt alone decides about SMT. Give one"
            " of them"
        )
    base = desired or boot_arguments.DesiredArguments((), (), removes_parts=False)
    arguments = (*base.arguments, ARGUMENTS[mitigations])
    if mitigations == OFF:
        # It takes out every attack vector, and a later mitigations=auto would undo it.
        return base._replace(arguments=arguments, removed_names=(*base.removed_names, boot_arguments.MITIGATIONS))
    return base._replace(arguments=arguments, keeps_vectors=True)


class OwnArguments:
    """The arguments of this collection on one host.

    Args:
        fs: the host's files.

    Raises:
        StateFileError: A record exists and cannot be used.
    """

    def __init__(self, fs: host_files.HostFs) -> None:
        self._fs = fs
        self.configured: tuple[str, ...] = RECORD.load(fs, _checked) or ()
        self.removed: tuple[str, ...] = REMOVED.load(fs, _checked) or ()

    def refuse_others(self, backend: backend_base.Backend, loader: loader_base.Loader) -> None:
        """Refuse to replace an argument of the administrator that could not be put back.

        Raises:
            BootLoaderError: There is one.
        """
        if loader.keeps_settings:
            return
        for entry in backend.to_remove(_EVERY):
            if entry["argument"] not in self.configured:
                raise backend_base.BootLoaderError(
                    f"{entry['where']} has {entry['argument']!r:.200} of its own, and {loader.title} keeps arguments in"
                    " the entries themselves, so it could not be put back as it was: remove it there, or leave"
                    " mitigations out"
                )

    @contextlib.contextmanager
    def changing(self, argument: str) -> "t.Iterator[None]":
        """Record what is going to be ours, and what is going to be removed, around the change.

        Args:
            argument: the ``mitigations=`` argument that is set; empty when ours are removed.

        Raises:
            BootLoaderError: A record cannot be written.
        """
        going = tuple(configured for configured in self.configured if configured != argument)
        if going:
            self._save(REMOVED, {*self.removed, *going})
        # Both, until the change is made: a run that is killed leaves one or the other.
        self._save(RECORD, {*self.configured, argument} - {""})
        try:
            yield
        except boot_arguments.BootError:
            self._save(RECORD, self.configured)
            raise
        self.settle(argument)

    def settle(self, argument: str) -> None:
        """Record what is ours now.

        Args:
            argument: as for `changing`.

        Raises:
            BootLoaderError: The record cannot be written.
        """
        self._save(RECORD, {argument} - {""})

    def _save(self, file: StateFile, arguments: "t.Iterable[str]") -> None:
        content = sorted(arguments)
        try:
            if content:
                file.save(self._fs, {"arguments": content})
            else:
                file.remove(self._fs)
        except OSError as error:
            raise backend_base.BootLoaderError(
                f"{self._fs.path(file.path)} cannot be written: {error.strerror}"
            ) from error


def _checked(document: "t.Mapping[str, t.Any]") -> "tuple[str, ...]":
    arguments = tuple(document["arguments"])
    if not all(argument in ARGUMENTS.values() for argument in arguments):
        raise ValueError("it names an argument that this collection does not set")
    return arguments
