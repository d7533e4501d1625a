# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other memory policies than the one found; the CPUs are not switched."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    ArmError,
    ArmHost,
    RuntimeArm,
    Values,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    overcommit_test,
    policy as memory_policy,
    snapshot as memory_snapshot,
)

# A host that panics during a measurement reboots by itself after so many seconds.
PANIC_REBOOT_SECONDS = "60"
# Percent of the committed memory that a strict policy must leave free; the default of the role smt_memory.
MARGIN = 10
# What the process of the overcommit test may use, in a cgroup of its own, before the kernel kills it.
CONFINED_BYTES = 64 * memory_policy.MIB
# The share of RAM and swap that the overcommit test requests where the sum is not limited; the heuristic policy refuses
# a request for all of it.
OVERCOMMIT_TEST_SHARE = 0.9


class _MemoryPolicy(RuntimeArm):
    """The base: a policy that is written as sysctl values."""

    lever = "memory"
    # Huge pages are not available to what the policy allows.
    takes_of = "memory"

    def examine(self, host: ArmHost) -> None:
        """Look at the host."""
        super().examine(host)
        self._fs = HostFs(host.files.sysroot)
        self._found = _settings(self._fs)
        self._desired: memory_policy.Settings = {}
        try:
            self._desired = memory_policy.settings(self._options(), self._found)
            self.is_as_found = all(self._found.get(name) == value for name, value in self._desired.items())
            self.reason = self._why_not()
        except memory_policy.PolicyError as error:
            self.reason = str(error)
        self.settings = dict(self._desired)

    def _options(self) -> memory_policy.Options:
        """Return the policy as users of the role smt_memory write it."""
        raise NotImplementedError

    def _why_not(self) -> "str | None":
        """Return why the policy cannot be switched, or None."""
        missing = sorted(name for name in self._desired if self._found.get(name) is None)
        if missing:
            return f"this kernel has no {', '.join(missing)}"
        if self.is_as_found:
            return None
        page = memory_facts.page_size(self._fs)
        return memory_policy.refusal(memory_facts.read_memory(self._fs), self._found, self._desired, MARGIN, page)

    def announcement(self) -> "list[str]":
        """Describe which settings are switched."""
        present = ", ".join(f"{name} {self._found[name]}" for name in self._desired)
        other = ", ".join(f"{name} {value:d}" for name, value in self._desired.items())
        switched = f"the memory policy is switched from the present one ({present}) to {other}."
        return [
            f"the memory policy is {other}, as it is now." if self.is_as_found else switched,
            "A test process that requests too much memory is killed, in a cgroup of its own.",
        ]

    def restoration(self) -> "str | None":
        """Name the memory policy."""
        return "the memory policy"

    def switch(self) -> None:
        """Write the settings, after undoing those of another policy."""
        try:
            memory_snapshot.write(self._fs, self._to_restore(self._found))
            memory_snapshot.write(self._fs, self._desired)
        except memory_snapshot.MemorySnapshotError as error:
            raise ArmError(str(error)) from error

    def _to_restore(self, saved: memory_policy.HostSettings) -> memory_policy.Settings:
        known = {name: value for name, value in saved.items() if value is not None}
        return memory_snapshot.settings_to_restore(memory_facts.read_settings(self._fs), known)

    def prove(self) -> None:
        """Read the settings."""
        present = memory_facts.read_settings(self._fs)
        wrong = [
            f"{name} reads {present[name]}, not {value}"
            for name, value in self._desired.items()
            if present[name] != value
        ]
        if wrong:
            raise ArmError(", ".join(wrong))

    def observe(self) -> "dict[str, t.Any]":
        """Measure how much memory a process can allocate,
        and what happens to one that requests more than the host has.
        """
        values = memory_facts.read_settings(self._fs)
        memory = memory_facts.read_memory(self._fs)
        limit = memory_policy.headroom(
            memory, memory_policy.resulting(values, self._desired), memory_facts.page_size(self._fs)
        )["bytes"]
        everything = (memory.total or 0) + (memory.swap or 0)
        asked = int(OVERCOMMIT_TEST_SHARE * everything) if limit is None else max(limit, 0) + CONFINED_BYTES
        return {
            "settings": {name: values[name] for name in self._desired},
            "headroom_bytes": limit,
            "asked_bytes": asked,
            **_allocatable(),
            **_overcommit_test(asked),
        }

    def save(self) -> "dict[str, t.Any]":
        """Return the memory policy."""
        return {**_settings(self._fs)}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore the memory policy."""
        try:
            memory_snapshot.write(self._fs, self._to_restore(saved[self.lever]))
        except memory_snapshot.MemorySnapshotError as error:
            return [str(error)]
        return []

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return the memory policy, as it was saved and as it is."""
        return saved, _settings(HostFs(files.sysroot))


class _Overcommit(_MemoryPolicy):
    """The base of the arms that are named after a value of vm.overcommit_memory."""

    @property
    def title(self) -> str:
        """The name for people."""
        return f"{self.name.partition('_')[2]} overcommit"

    def _options(self) -> memory_policy.Options:
        return {"overcommit": self.name.partition("_")[2]}


class OvercommitStrict(_Overcommit):
    """Strict accounting of committed memory."""

    pattern = "overcommit_strict"
    summary = "`vm.overcommit_memory=2`: the kernel promises no more memory than there is (`smt_eval_overcommit_ratio`)"
    needs = "a limit above what is committed already"

    def _options(self) -> memory_policy.Options:
        return {**super()._options(), "overcommit_ratio": self.host.overcommit_ratio}


class OvercommitHeuristic(_Overcommit):
    """The kernel's default: only requests that are obviously too large are refused."""

    pattern = "overcommit_heuristic"
    summary = "`vm.overcommit_memory=0`: only a request for more than all memory is refused"


class OvercommitAlways(_Overcommit):
    """Every request for memory is granted."""

    pattern = "overcommit_always"
    summary = "`vm.overcommit_memory=1`: each request is granted"


class PanicOnOom(_MemoryPolicy):
    """A kernel panic and a reboot when memory runs out."""

    pattern = "panic_on_oom"
    title = "panic when out of memory"
    summary = "`vm.panic_on_oom=1` with `kernel.panic`: the host panics and reboots when memory runs out"

    def _options(self) -> memory_policy.Options:
        return {"on_oom": "panic", "panic_reboot_after": PANIC_REBOOT_SECONDS}

    def conflicts(self) -> "list[str]":
        """Warn of the panic."""
        return [
            (
                "A real out-of-memory situation during that time makes the host panic and reboot after"
                f" {self._desired[memory_policy.PANIC]} s."
            )
        ]


def _settings(fs: HostFs) -> "dict[str, int | None]":
    """Return the settings of the memory policy; huge pages are another lever."""
    return {name: value for name, value in memory_facts.read_settings(fs).items() if name != memory_policy.HUGEPAGES}


def _allocatable() -> "dict[str, t.Any]":
    try:
        return {"allocatable": overcommit_test.allocatable()}
    except overcommit_test.OvercommitTestError as error:
        return {"allocatable": None, "allocatable_reason": str(error)}


def _overcommit_test(asked: int) -> "dict[str, t.Any]":
    try:
        return {"overcommit_test": overcommit_test.run(asked, touch=True, confine=CONFINED_BYTES)}
    except overcommit_test.OvercommitTestError as error:
        return {"overcommit_test": None, "overcommit_test_reason": str(error)}


ARMS = (OvercommitStrict, OvercommitHeuristic, OvercommitAlways, PanicOnOom)
