# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The change of the boot loader's configuration to a requested SMT state,
and the differences that the running system still has.
"""

import os
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import find, settings as consumer_settings
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base as consumer_base
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology, read_topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    awaited,
    bringup,
    detection,
    entries as boot_entries,
    mitigations as boot_mitigations,
    supported,
    tuned,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import others, udev_rules

ERRORS = (boot_arguments.BootError, HostError)

# Values of smt/control on a machine where SMT cannot be switched.
_NO_CONTROL = smt_state.WITHOUT_CONTROL


class Request(t.NamedTuple):
    """A requested boot configuration. At most one of `smt` and `maxcpus` is given, and at least one of all three.

    Attributes:
        smt: `enabled`, `disabled`, `forced_off`, `mitigations_nosmt`, or None.
        maxcpus: a number in digits or ``one_per_core``, or None.
        force: accept a `maxcpus` that would not leave one thread of each core.
        check: change nothing.
        mitigations: `auto`, `auto_nosmt`, `off`, or None when this collection sets none.
        affinity_conflicts: ``fail`` or ``warn``: what to do about affinity conflicts of CPUs that would not be started.
        conflicts_of: whose conflicts ``fail`` counts, as `affinity.selected` takes them.
        consumers: by kind, what is done after the boot to services that would be wrong then.
    """

    smt: "str | None"
    maxcpus: "str | None"
    force: bool
    check: bool
    mitigations: "str | None" = None
    affinity_conflicts: str = "warn"
    conflicts_of: "tuple[str, ...]" = (affinity.SERVICES,)
    consumers: "t.Mapping[str, str]" = types.MappingProxyType({})


class Diff(TypedDict):
    """One change as Ansible's diff mode shows it.

    Attributes:
        before_header: the file or the list of boot entries.
        after_header: the same.
        before: the text before the change.
        after: the text after the change.
    """

    before_header: str
    after_header: str
    before: str
    after: str


class _Warnings(TypedDict, total=False):
    # Not required, so that the module may remove the warnings from its result.
    warnings: "list[str]"


class Result(_Warnings):
    """The result of `run`, as smt_boot_args documents it; the lists of arguments hold those that affect SMT, and
    ``mitigations=`` where it is set or undone.

    Attributes:
        changed: whether the configuration was changed, or would be in check mode.
        loader: name of the boot loader.
        arguments: the arguments that are set.
        found: arguments in the administrator's settings that had to be removed.
        configured_before: arguments that all boot entries had.
        configured: arguments that all boot entries have now, or would have.
        running: arguments of the running kernel.
        mitigations_running: all of its arguments ``mitigations``.
        reboot_required: whether the next boot has other arguments than the running kernel.
        reboot_in_vain: why another reboot would not help, where one is required; None where it may.
        differences: sentences about what the running system has other than it should.
        affinity_conflicts: what is bound to CPUs that the next boot would not start.
        diff: the changes.
        warnings: sentences for the user.
    """

    changed: bool
    loader: str
    arguments: "list[str]"
    found: "list[backend_base.FoundArgument]"
    configured_before: "list[str]"
    configured: "list[str]"
    running: "list[str]"
    mitigations_running: "list[str]"
    reboot_required: bool
    reboot_in_vain: "str | None"
    differences: "list[str]"
    affinity_conflicts: "list[str]"
    diff: "list[Diff]"


class _Expected(t.NamedTuple):
    """The state after a boot with the arguments; None where it is not known."""

    controls: "tuple[str, ...] | None"
    active: "bool | None"
    online: "tuple[int, ...] | None"


def run(
    fs: host_files.HostFs, request: Request, architecture: "str | None" = None, running_kernel: "str | None" = None
) -> Result:
    """Bring the boot configuration to the requested state.

    Args:
        fs: the files of the running system.
        request: the requested state.
        architecture: architecture as ``uname -m`` prints it; None for that of this machine.
        running_kernel: release of the running kernel; None for that of this machine.

    Returns:
        Plain data as smt_boot_args documents it, and ``warnings``.

    Raises:
        BootLoaderError: The boot loader is not supported, or its configuration cannot be changed.
        BootArgsError: The request is not valid.
        HostLockError: Another run is changing this host.
        StateFileError: The record of our own arguments cannot be used.
    """
    detected = detection.find_loader(fs)
    count = None if request.maxcpus is None else boot_arguments.maxcpus_value(request.maxcpus)
    if detected.loader is None or detected.blocked_by is not None:
        raise backend_base.BootLoaderError(f"The boot arguments of this host cannot be changed: {detected.blocked_by}")
    if request.check:
        return _Update(fs, request, detected.loader, detected.tool, count, architecture, running_kernel).run()
    with locks.HostLock(fs.sysroot, "smt_boot_args", locks.CHANGE_SECONDS):
        return _Update(fs, request, detected.loader, detected.tool, count, architecture, running_kernel).run()


class _Update:
    def __init__(
        self,
        fs: host_files.HostFs,
        request: Request,
        loader: loader_base.Loader,
        tool: str,
        count: "int | str | None",
        architecture: "str | None",
        running_kernel: "str | None",
    ) -> None:
        self._fs = fs
        self._request = request
        self._loader = loader
        self._backend = loader.backend(fs, tool)
        self._architecture = architecture or os.uname().machine
        self._running_kernel = running_kernel or os.uname().release
        self._topology: Topology = read_topology(fs, topology_cache.load(fs))
        self._entries = self._backend.entries()
        self._count: t.Optional[int] = None
        self._own = boot_mitigations.OwnArguments(fs)
        self._awaited = awaited.Awaited(fs)
        # What the running system has to have, and what this collection still has to set for it.
        self._wanted = self._desired_arguments(count)
        self._refuse_without_effect()
        self._desired, by_tuned = tuned.left_to_set(fs, self._entries, self._wanted)
        self._backend.warnings.extend(filter(None, [by_tuned]))
        # Hosts whose mitigations= is none of ours are not asked to reboot for it.
        concerned = request.mitigations is not None or self._own.configured or self._own.removed
        self._related = boot_arguments.related_arguments if concerned else boot_arguments.smt_arguments

    def _desired_arguments(self, count: "int | str | None") -> boot_arguments.DesiredArguments:
        smt = self._request.smt
        for_smt = (
            self._desired_count(count)
            if count is not None
            else None
            if smt is None
            else boot_arguments.desired_smt(smt)
        )
        desired = boot_mitigations.combined(for_smt, self._request.mitigations, smt == boot_arguments.ENABLED)
        # What a generated configuration has of ours is gone when it is generated again.
        return desired if self._loader.keeps_settings else desired._replace(removed_arguments=self._own.configured)

    def _refuse_without_effect(self) -> None:
        kernels = [entry.release for entry in self._entries if entry.release and not entry.is_rescue]
        reason = supported.refusal(self._fs, self._wanted.arguments, kernels, self._architecture, self._running_kernel)
        if reason is not None:
            raise backend_base.BootLoaderError(reason)

    def _desired_count(self, count: "int | str") -> boot_arguments.DesiredArguments:
        topology = self._topology
        if not topology.complete and (count == boot_arguments.ONE_PER_CORE or not self._request.force):
            unknown = cpulist.render(set(topology.present).difference(*topology.cores))
            raise backend_base.BootLoaderError(
                f"The effect of maxcpus cannot be determined: the cores of CPUs {unknown} are not known. "
                "Bring all CPUs online first, or use smt: disabled, which needs no number"
            )
        number = len(topology.cores) if isinstance(count, str) else count
        self._count = number
        desired = boot_arguments.desired_maxcpus(number)
        if not self._request.force:
            self._refuse_wrong_count(number)
        return desired

    def _refuse_wrong_count(self, count: int) -> None:
        """Check the number for each kernel that can be booted, because its effect depends on the kernel."""
        kernels = {entry.release: entry.arguments for entry in self._entries if entry.release}
        kernels = kernels or {self._running_kernel: ()}
        for kernel, arguments in sorted(kernels.items()):
            reason = bringup.miscount(self._topology, count, self._bringup_mode(kernel, arguments))
            if reason is not None:
                raise backend_base.BootLoaderError(
                    f"maxcpus={count} would not leave one thread of each core with Linux {kernel}: {reason}. Use smt:"
                    " disabled (nosmt), which does not depend on numbers, or force: true if this is what you want"
                )

    def _bringup_mode(self, kernel: str, arguments: "t.Iterable[str]") -> str:
        return bringup.bringup_mode(self._fs, kernel, arguments, self._architecture, self._running_kernel)

    def run(self) -> Result:
        """Make the change, unless this is check mode, and return the result."""
        desired, backend = self._desired, self._backend
        before = [self._related(entry.arguments + entry.borrowed) for entry in _booted_by_default(self._entries)]
        removed = backend.to_remove(desired)
        pending = backend.pending(desired)
        conflicts = self._conflicts()
        if pending and self._request.mitigations is not None:
            self._own.refuse_others(backend, self._loader)
        if pending and not self._request.check:
            self._save_topology()
            with self._own.changing(self._set_here()):
                backend.apply(desired)
        elif self._own.configured and not self._request.check:
            self._own.settle(self._set_here())
        configured = self._configured(bool(pending))
        running = self._running()
        required = any(not boot_arguments.are_same(self._related(running), entry) for entry in configured)
        in_vain = self._awaited.in_vain(_common(configured)) if required and not pending else None
        if not self._request.check:
            backend.warnings.extend(self._awaited.remember(_common(configured), required, bool(pending)))
        return {
            "changed": bool(pending),
            "loader": self._loader.name,
            "arguments": list(self._wanted.arguments),
            "found": removed,
            "configured_before": _common(before),
            "configured": _common(configured),
            "running": self._related(running),
            "mitigations_running": [
                argument for argument in running if argument.partition("=")[0] == boot_arguments.MITIGATIONS
            ],
            "reboot_required": required,
            "reboot_in_vain": in_vain,
            "differences": self._differences(running),
            "affinity_conflicts": conflicts,
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

    def _set_here(self) -> str:
        """Return the ``mitigations=`` argument that the option `mitigations` sets; empty where it sets none."""
        return self._desired.mitigations if self._request.mitigations is not None else ""

    def _configured(self, is_changed: bool) -> "list[list[str]]":
        """Return the related arguments of each entry after the change."""
        if is_changed and not self._request.check:
            entries = _booted_by_default(self._backend.entries())
            return [self._related(entry.arguments + entry.borrowed) for entry in entries]
        # In check mode the arguments of the administrator that would be back are not known.
        desired = self._desired._replace(removed_arguments=self._own.configured)
        return [
            self._related([*boot_arguments.applied(entry.arguments, desired), *entry.borrowed])
            for entry in _booted_by_default(self._entries)
        ]

    def _running(self) -> "list[str]":
        return boot_arguments.split_arguments(self._fs.read("proc/cmdline") or "")

    def _conflicts(self) -> "list[str]":
        """Return what is bound to CPUs that the next boot would not start; refuse that, or warn of it.

        Raises:
            BootLoaderError: the request is to fail.
            HostError: it names somebody who is no user of this host.
        """
        kernel = KernelFiles(self._fs.sysroot)
        affinity.check_users(kernel, self._request.conflicts_of)
        online = self._expected(self._boot_arguments()).online
        now = smt_state.read(self._fs.sysroot)["online"]
        going = set() if online is None else set(now).difference(online)
        leaves_some = self._count is not None and (online is None or set(self._topology.present).difference(online))
        if going or leaves_some:
            self._backend.warnings += [f"{sentence}. It may undo this." for sentence in others.find(self._fs)]
        # What only maxcpus leaves offline may come online; siblings are refused by the kernel after nosmt.
        rules = udev_rules.active(self._fs) if leaves_some else []
        if rules:
            self._backend.warnings.append(
                f"udev rules bring CPUs online, and would undo maxcpus at each boot: /{', /'.join(rules)}. Use smt:"
                " disabled, which they cannot undo, or override each by an empty file of its name in /etc/udev/rules.d,"
                " and build the initramfs anew, which may have it too."
            )
        actions = consumer_settings.actions(self._request.consumers)
        followed = {kind for kind, action in actions.items() if action != consumer_settings.NONE}
        findings = [finding for finding in affinity.find(kernel, now, going) if finding.consumer not in followed]
        refused = affinity.selected(findings, self._request.conflicts_of)
        what = f"affinity conflict(s) with a boot without CPUs {cpulist.render(going)}"
        if refused and self._request.affinity_conflicts == "fail":
            raise backend_base.BootLoaderError(
                f"{len(refused)} {what}. Move what is bound to these CPUs, or set affinity_conflicts to"
                f" warn:\n{affinity.readable(refused)}\n"
            )
        if findings:
            self._backend.warnings.append(f"{len(findings)} {what}: {affinity.in_one_line(findings)}.")
        known = {*followed, *(finding.consumer for finding in findings)}
        # After a boot most programs have counted the CPUs that there are.
        after = [] if online is None else find.wrong(kernel, consumer_base.Online(frozenset(online)))
        self._backend.warnings += [
            f"{entry.consumer.process.title} has {entry.counted}, and will have {entry.consumer.gets} after the boot:"
            f" {entry.kind.remedy}."
            for entry in after
            if entry.kind.name not in known and actions.get(entry.kind.name) != consumer_settings.NONE
        ]
        return [finding.text for finding in findings]

    def _boot_arguments(self) -> "list[str]":
        """Return the arguments of the next boot, as far as they tell how it starts CPUs."""
        return list(_booted_by_default(self._entries)[0].arguments) if self._entries else []

    def _save_topology(self) -> None:
        # After the boot the siblings may be offline, and then only this cache knows which CPUs share a core.
        try:
            topology_cache.save(self._fs, self._topology)
        except OSError as error:
            raise backend_base.BootLoaderError(
                f"{self._fs.path(topology_cache.PATH)} cannot be written: {error.strerror}"
            ) from error

    # ---- the running system

    def _differences(self, running: "list[str]") -> "list[str]":
        """Return sentences about what the running system has other than desired;
        empty when the arguments are in effect.
        """
        # TuneD may have set an argument that is set here, too: the kernel does not mind.
        distinct = list(dict.fromkeys(running))
        differences = [f"/proc/cmdline: {fault}" for fault in boot_arguments.differences(distinct, self._wanted)]
        state = smt_state.read(self._fs.sysroot)
        controls, active, online = self._expected(running)
        if controls is not None and state["control"] not in controls + _NO_CONTROL:
            differences.append(
                f"smt/control reads {cpulist.quoted(state['control'])}, expected is {' or '.join(controls)}"
            )
        if active is not None and state["active"] not in (None, active):
            differences.append(f"smt/active reads {int(state['active'])}, expected is {int(active)}")
        if online is not None and tuple(state["online"]) != tuple(online):
            differences.append(
                f"CPUs {cpulist.render(state['online'])} are online, expected are {cpulist.render(online)}"
            )
        return differences

    def _expected(self, running: "list[str]") -> _Expected:
        """Return the expected state after a boot with the arguments."""
        topology = self._topology
        has_siblings = bool(topology.secondaries) if topology.complete else None
        smt = self._request.smt
        if smt == boot_arguments.ENABLED:
            return _Expected(("on",), has_siblings, topology.present)
        if smt == boot_arguments.FORCED_OFF:
            return _Expected(("forceoff",), False, topology.primaries if topology.complete else None)
        if smt == boot_arguments.DISABLED:
            return _Expected(("off", "forceoff"), False, topology.primaries if topology.complete else None)
        if self._count is None or not topology.complete:
            return _Expected(None, None, None)
        left = bringup.left_online(topology, self._count, self._bringup_mode(self._running_kernel, running))
        return _Expected(("on",), any(len(set(core).intersection(left)) > 1 for core in topology.cores), left)


def _booted_by_default(entries: "list[boot_entries.Entry]") -> "list[boot_entries.Entry]":
    """Return the entries without those for recovery, which need not have what a tool gives to the others."""
    return [entry for entry in entries if not entry.is_rescue] or entries


def _common(entries: "list[list[str]]") -> "list[str]":
    """Return the arguments that all entries have."""
    return [argument for argument in entries[0] if all(argument in entry for entry in entries)] if entries else []
