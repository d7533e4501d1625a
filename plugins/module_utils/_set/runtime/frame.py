# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run-time state of a host as data, in whatever form it is: the CPUs that are online,
what keeps a setting over boots, and the snapshot.

What goes back to a state before a change goes back to this data, because most states have no name.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    config_files,
    cpulist,
    files as host_files,
    kernel_files,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    snapshot as smt_snapshot,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence, udev_rules


class Frame(TypedDict):
    """The run-time state of a host, plain JSON data.

    Attributes:
        cpu: its CPUs and smt/control.
        files: path below the sysroot -> text of each file that keeps a setting over boots or disables udev rules; None
            where there is none.
        snapshot: the state before the first change, None where there was no change.
    """

    cpu: smt_state.State
    files: "dict[str, str | None]"
    snapshot: "smt_snapshot.Snapshot | None"


def present(host: kernel_files.KernelFiles, fs: host_files.HostFs) -> Frame:
    """Return the present state of a host.

    Raises:
        StateError: the kernel does not show which CPUs are online.
        SmtSnapshotError: the snapshot cannot be used.
    """
    paths = [*persistence.PATHS, *udev_rules.ours(fs)]
    return {
        "cpu": smt_state.read(files=host),
        "files": {path: config_files.content(fs, path) for path in paths},
        "snapshot": smt_snapshot.load(fs),
    }


def described(frame: Frame) -> str:
    """Return the state in a few words: ``CPUs 0-4,6 online, kept over boots``."""
    is_kept = any(frame["files"].get(path) is not None for path in persistence.PATHS)
    return f"CPUs {cpulist.render(frame['cpu']['online'])} online{', kept over boots' if is_kept else ''}"


def wanted_files(fs: host_files.HostFs, frame: Frame) -> "dict[str, str | None]":
    """Return the text of each file as the frame has it; None for a file that must not exist,
    such as one that was written since.
    """
    return {**udev_rules.wanted(fs, neutralise=False), **frame["files"]}


def check(document: t.Any) -> Frame:
    """Return a frame, for example from a file; raise ValueError, KeyError or TypeError when it is not one."""
    smt_state.check(document["cpu"])
    if document["snapshot"] is not None:
        smt_snapshot.check(document["snapshot"])
    files = document["files"]
    if not isinstance(files, dict):
        raise ValueError("it is not the run-time state of a host")
    for path, text in files.items():
        if not (path in persistence.PATHS or udev_rules.is_ours(path)) or not isinstance(text, (str, type(None))):
            raise ValueError(f"{path!r:.80} is not a file of the run-time state of a host")
    frame: Frame = document
    return frame
