# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run-time setting made persistent over boots, for hosts whose boot arguments must not be changed.

Either a file for systemd-tmpfiles (tmpfiles.d(5), type ``w``) or a unit that runs before sysinit.target. Both write the
control, and switch single CPUs if the control alone cannot express the state.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state

NONE, TMPFILES, SYSTEMD = "none", "tmpfiles", "systemd"
TMPFILES_PATH = "etc/tmpfiles.d/threadwise-smt.conf"
UNIT_PATH = "etc/systemd/system/threadwise-smt.service"
WANTED_BY = "etc/systemd/system/sysinit.target.wants/threadwise-smt.service"
PATHS = (TMPFILES_PATH, UNIT_PATH, WANTED_BY)
LINK = "../threadwise-smt.service"

HEADER = (
    "# Written by the Ansible role threadwise.smt.smt_runtime (smt_runtime_persist); removed when it is set to none.\n"
)

UNIT = (
    HEADER
    + """[Unit]
Description=SMT state kept over boots
DefaultDependencies=no
Before=sysinit.target shutdown.target
Conflicts=shutdown.target
ConditionPathIsReadWrite=/sys

[Service]
Type=oneshot
RemainAfterExit=yes
%s
[Install]
WantedBy=sysinit.target
"""
)


def writes(state: smt_state.State, cores: "t.Sequence[t.Sequence[int]]") -> "list[tuple[str, str]]":
    """Return path below / and text of each write that leads to ``state`` after a boot: the control,
    and each sibling that the control leaves online.
    """
    control = state["control"]
    control_write = (
        []
        if control in smt_state.WITHOUT_CONTROL
        else [(smt_state.CONTROL, "off" if control == smt_state.FORCE_OFF else control)]
    )
    if control in smt_state.OFF:
        return control_write
    online = set(state["online"])
    most = int(control) if control.isdigit() else max([len(core) for core in cores] + [0])
    offline = sorted(cpu for core in cores if online.intersection(core) for cpu in core[:most] if cpu not in online)
    return control_write + [(f"{smt_state.CPU_DIRECTORY}/cpu{cpu}/online", "0") for cpu in offline]


def wanted(mode: str, state: smt_state.State, cores: "t.Sequence[t.Sequence[int]]") -> "dict[str, str | None]":
    """Return the text of each file that makes the setting persistent in this mode;
    None for a file that must not exist.
    """
    files: dict[str, t.Optional[str]] = dict.fromkeys(PATHS)
    if mode == TMPFILES:
        files[TMPFILES_PATH] = HEADER + "".join(f"w /{path} - - - - {text}\n" for path, text in writes(state, cores))
    elif mode == SYSTEMD:
        files[UNIT_PATH] = UNIT % "".join(
            f"ExecStart=/bin/sh -c 'echo {text} > /{path}'\n" for path, text in writes(state, cores)
        )
        files[WANTED_BY] = LINK
    return files


def is_kept(fs: host_files.HostFs) -> bool:
    """Return whether a setting is persistent over boots on this host."""
    return any(map(fs.status, PATHS))
