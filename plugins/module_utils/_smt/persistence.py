# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run-time setting kept over boots, for hosts whose boot arguments may not be touched.

Either a file of systemd-tmpfiles (tmpfiles.d(5), type ``w``) or a unit that runs before sysinit.target. Both write the control, and where the
control cannot say it, the CPUs one by one.
"""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state

NONE, TMPFILES, SYSTEMD = "none", "tmpfiles", "systemd"
TMPFILES_PATH = "etc/tmpfiles.d/threadwise-smt.conf"
UNIT_PATH = "etc/systemd/system/threadwise-smt.service"
WANTED_BY = "etc/systemd/system/sysinit.target.wants/threadwise-smt.service"
PATHS = (TMPFILES_PATH, UNIT_PATH, WANTED_BY)
LINK = "../threadwise-smt.service"

HEADER = "# Written by the Ansible role threadwise.smt.smt_runtime (smt_runtime_persist); removed when it is set to none.\n"

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


def writes(state: dict, cores) -> list[tuple[str, str]]:
    """(file below /, text) that bring a freshly booted host to ``state``: the control, and siblings that it leaves online."""
    control = state["control"]
    kept = [] if control in smt_state.WITHOUT_CONTROL else [(smt_state.CONTROL, "off" if control == "forceoff" else control)]
    if control in smt_state.OFF:
        return kept
    online = set(state["online"])
    most = int(control) if control.isdigit() else max([len(core) for core in cores] + [0])
    gone = sorted(cpu for core in cores if online.intersection(core) for cpu in core[:most] if cpu not in online)
    return kept + [(f"{smt_state.CPU_DIRECTORY}/cpu{cpu}/online", "0") for cpu in gone]


def wanted(mode: str, state: dict, cores) -> dict:
    """``{path: text}`` of the files that should be there; None for each that should not."""
    files = dict.fromkeys(PATHS)
    if mode == TMPFILES:
        files[TMPFILES_PATH] = HEADER + "".join("w /{} - - - - {}\n".format(*entry) for entry in writes(state, cores))
    elif mode == SYSTEMD:
        files[UNIT_PATH] = UNIT % "".join(f"ExecStart=/bin/sh -c 'echo {text} > /{path}'\n" for path, text in writes(state, cores))
        files[WANTED_BY] = LINK
    return files


def is_kept(fs) -> bool:
    """Whether a setting is kept over boots on this host."""
    return any(fs.status(path) is not None for path in PATHS)
