# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a wish about SMT at boot to the boot loader's configuration, and what the running system still differs in."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, bringup, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base, grub_debian, grubby, suse, systemd_boot
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, locks
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import read_topology

BACKENDS = {
    boot_entries.GRUB_DEBIAN: grub_debian.GrubDebian,
    boot_entries.GRUBBY: grubby.Grubby,
    boot_entries.GRUB_SUSE: suse.GrubSuse,
    boot_entries.SYSTEMD_BOOT: systemd_boot.SystemdBoot,
}
ERRORS = (loader_base.BootLoaderError, boot_arguments.BootArgsError, locks.HostLockError)

# What smt/control reads where there is nothing to switch.
_NO_CONTROL = ("notsupported", "notimplemented", "absent", "")


@dataclass(frozen=True)
class Request:
    """A wish. Exactly one of `smt` and `maxcpus` is given.

    Attributes:
        smt: `enabled`, `disabled`, `forced_off`, `mitigations_nosmt`, or None.
        maxcpus: a number in digits or ``one_per_core`` (str), or None.
        force: take a `maxcpus` that would not leave one thread of each core.
        check: change nothing.
    """

    smt: str
    maxcpus: str
    force: bool
    check: bool


def run(fs, request, architecture=None, running_kernel=None):
    """Bring the configuration to what is wanted.

    Args:
        fs: `files.HostFs` of the running system.

    Returns:
        dict of plain data as smt_boot_args documents it, and ``warnings``.

    Raises:
        BootLoaderError, BootArgsError, HostLockError: nothing was changed.
    """
    loader = boot_entries.find_loader(fs)
    count = None if request.maxcpus is None else boot_arguments.maxcpus_value(request.maxcpus)
    if loader.hindrance is not None:
        raise loader_base.BootLoaderError(f"The boot arguments of this host cannot be changed here: {loader.hindrance}")
    if request.check:
        return _Change(fs, request, loader, count, architecture, running_kernel).run()
    with locks.HostLock(fs.sysroot, "smt_boot_args"):
        return _Change(fs, request, loader, count, architecture, running_kernel).run()


class _Change:
    def __init__(self, fs, request, loader, count, architecture, running_kernel):
        self._fs = fs
        self._request = request
        self._backend = BACKENDS[loader.name](fs, loader)
        self._architecture = architecture or os.uname().machine
        self._running_kernel = running_kernel or os.uname().release
        self._topology = read_topology(fs, topology_cache.load(fs))
        self._entries = self._backend.entries()
        self._count = None
        self._wanted = self._wish(count)

    def _wish(self, count):
        if count is None:
            return boot_arguments.wanted_smt(self._request.smt)
        topology = self._topology
        if not topology.complete and (count == boot_arguments.ONE_PER_CORE or not self._request.force):
            raise loader_base.BootLoaderError(
                f"What maxcpus would leave cannot be worked out: the cores of CPUs {cpulist.render(set(topology.present).difference(*topology.cores))} are not known. Bring all CPUs online first, or use smt: disabled, which "
                "needs no count"
            )
        self._count = len(topology.cores) if count == boot_arguments.ONE_PER_CORE else count
        wanted = boot_arguments.wanted_maxcpus(self._count)
        if not self._request.force:
            self._refuse_wrong_count(wanted)
        return wanted

    def _refuse_wrong_count(self, wanted):
        """For each kernel that can be booted: the same number means another thing with another one."""
        kernels = {entry.release: entry.arguments for entry in self._entries if entry.release}
        kernels = kernels or {self._running_kernel: ()}
        for kernel, arguments in sorted(kernels.items()):
            objection = bringup.objection(self._topology, self._count, self._way(kernel, arguments))
            if objection is not None:
                raise loader_base.BootLoaderError(
                    "maxcpus=%d would not leave one thread of each core with Linux %s: %s. Use smt: disabled (nosmt), which does not depend on numbers, or "
                    "force: true if this is what you want" % (self._count, kernel, objection)
                )

    def _way(self, kernel, arguments):
        return bringup.way(self._fs, kernel, arguments, self._architecture, self._running_kernel)

    def run(self):
        wanted, backend = self._wanted, self._backend
        before = [boot_arguments.smt_arguments(entry.arguments) for entry in self._entries]
        found = backend.found(wanted)
        pending = backend.pending(wanted)
        if pending and not self._request.check:
            self._save_map()
            backend.apply(wanted)
        configured = [boot_arguments.smt_arguments(boot_arguments.applied(entry.arguments, wanted)) for entry in self._entries]
        running = self._running()
        return {
            "changed": bool(pending),
            "loader": backend.name,
            "arguments": list(wanted.arguments),
            "found": found,
            "configured_before": _common(before),
            "configured": _common(configured),
            "running": boot_arguments.smt_arguments(running),
            "reboot_required": any(sorted(boot_arguments.smt_arguments(running)) != sorted(entry) for entry in configured),
            "differences": self._differences(running),
            "diff": [
                {"before_header": change.where, "after_header": change.where, "before": change.before or "", "after": change.after or ""} for change in pending
            ],
            "warnings": backend.warnings,
        }

    def _running(self):
        return boot_arguments.split_arguments(self._fs.read("proc/cmdline") or "")

    def _save_map(self):
        # After the boot the siblings may be offline, and then nothing but this map tells which CPUs share a core.
        try:
            topology_cache.save(self._fs, self._topology)
        except OSError as trouble:
            raise loader_base.BootLoaderError(f"{self._fs.path(topology_cache.PATH)} cannot be written: {trouble.strerror}. Nothing was changed") from trouble

    # ---- what runs

    def _differences(self, running):
        """What the running system has other than wanted (list of sentences); empty when the arguments are in force and have their effect."""
        differences = [f"/proc/cmdline: {fault}" for fault in boot_arguments.faults(running, self._wanted)]
        state = smt_state.read(self._fs.sysroot)
        controls, active, online = self._expected(running)
        if controls is not None and state["control"] not in controls + _NO_CONTROL:
            differences.append(f"smt/control reads {cpulist.quoted(state['control'])}, expected is {' or '.join(controls)}")
        if active is not None and state["active"] not in (None, active):
            differences.append(f"smt/active reads {int(state['active'])}, expected is {int(active)}")
        if online is not None and tuple(state["online"]) != tuple(online):
            differences.append(f"CPUs {cpulist.render(state['online'])} are online, expected are {cpulist.render(online)}")
        return differences

    def _expected(self, running):
        """(values of smt/control, smt/active, CPUs online) after a boot with the arguments; None for what cannot be told."""
        topology = self._topology
        has_siblings = bool(topology.secondaries) if topology.complete else None
        smt = self._request.smt
        if smt == boot_arguments.ENABLED:
            return ("on",), has_siblings, topology.present
        if smt == boot_arguments.FORCED_OFF:
            return ("forceoff",), False, topology.primaries if topology.complete else None
        if smt == boot_arguments.DISABLED:
            return ("off", "forceoff"), False, topology.primaries if topology.complete else None
        if smt == boot_arguments.MITIGATIONS_NOSMT or not topology.complete:
            return None, None, None
        left = bringup.left_online(topology, self._count, self._way(self._running_kernel, running))
        return ("on",), any(len(set(core).intersection(left)) > 1 for core in topology.cores), left


def _common(entries):
    return [argument for argument in entries[0] if all(argument in entry for entry in entries)] if entries else []
