# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernels obey the argument ``nosmt``: those that are built with CONFIG_HOTPLUG_SMT.

Sources: kernel/cpu.c; arch/*/Kconfig, where HOTPLUG_SMT is selected: x86 since Linux 4.19, POWER since 6.6, arm64 since
6.15. Others take no notice of it, s390 before it had HOTPLUG_SMT has an argument of the same name that means another
thing, and POWER knows ``smt-enabled=``.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments

_CONTROL = "sys/devices/system/cpu/smt/control"
# What the file reads where the kernel has it and cannot switch.
_NOT_IMPLEMENTED = "notimplemented"
_NEEDS_IT = ("nosmt", "nosmt=force", boot_arguments.MITIGATIONS_NOSMT_ARGUMENT)


def configuration(fs: host_files.HostFs, kernel: str) -> "str | None":
    """Return the text of a kernel's build configuration, or None where it is not on this host.

    Args:
        fs: the host's files.
        kernel: release of the kernel, such as ``6.1.0-13-amd64``.
    """
    for path in (f"boot/config-{kernel}", f"lib/modules/{kernel}/config", f"usr/lib/modules/{kernel}/config"):
        text = fs.read(path)
        if text and "CONFIG_SMP=" in text:
            return text
    return None


def refusal(
    fs: host_files.HostFs,
    arguments: "t.Iterable[str]",
    kernels: "t.Iterable[str]",
    architecture: str,
    running: str,
) -> "str | None":
    """Return why arguments would have no effect with any kernel that can be booted; None when they have one, or when
    that is not known.

    Args:
        fs: the host's files.
        arguments: the arguments to set.
        kernels: releases of the kernels that can be booted.
        architecture: architecture as ``uname -m`` prints it.
        running: release of the running kernel.
    """
    needed = [argument for argument in arguments if argument in _NEEDS_IT]
    bootable = sorted(set(kernels) or {running})
    if not needed or any(_has(fs, kernel, kernel == running) for kernel in bootable):
        return None
    instead = "the argument smt-enabled=off by hand" if architecture.startswith("ppc64") else "maxcpus"
    return (
        f"Linux {bootable[-1]} would take no notice of {needed[0]}: it is built without CONFIG_HOTPLUG_SMT, which"
        f" {architecture} has {_SINCE.get(architecture, 'in later kernels at best')}. Use smt_runtime_persist of the"
        f" role smt_runtime, or {instead}"
    )


_SINCE = {
    "x86_64": "since Linux 4.19",
    "ppc64le": "since Linux 6.6",
    "ppc64": "since Linux 6.6",
    "aarch64": "since Linux 6.15",
}


def _has(fs: host_files.HostFs, kernel: str, is_running: bool) -> bool:
    text = configuration(fs, kernel)
    if text is not None:
        return "CONFIG_HOTPLUG_SMT=y" in text.split("\n")
    if not is_running or fs.status("sys/devices/system/cpu") is None:
        return True
    return (fs.read(_CONTROL) or _NOT_IMPLEMENTED).strip() != _NOT_IMPLEMENTED
