# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The governor of the frequency, and frequencies above the nominal one.

Sources: Documentation/admin-guide/pm/cpufreq.rst for ``scaling_governor`` and ``boost``,
Documentation/admin-guide/pm/intel_pstate.rst for ``no_turbo``, which stands in for ``boost`` there.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    ArmHost,
    ValueArm,
    Values,
    paths_of,
    values_of,
)

_FREQUENCY = "sys/devices/system/cpu/cpufreq/"


class Governor(ValueArm):
    """A governor of all CPUs that are online."""

    pattern = "governor_(?:conservative|ondemand|performance|powersave|schedutil|userspace)"
    written = ("governor_NAME",)
    path = "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    choices = "scaling_available_governors"
    setting = "frequency governor"
    summary = "this governor of the frequency on all CPUs that are online"
    needs = "cpufreq with this governor"

    def save(self) -> "dict[str, t.Any]":
        """Return the governors, and their own settings: the kernel forgets these with the last CPU of a governor
        (drivers/cpufreq/cpufreq_governor.c), and the speed that was set (cpufreq_userspace.c).
        """
        present = self._present()
        patterns = [f"{_FREQUENCY}{where}{name}/*" for name in set(present.values()) for where in ("", "policy*/")]
        if "userspace" in present.values():
            patterns.append(self.path.replace("scaling_governor", "scaling_setspeed"))
        return {
            **present,
            **values_of(self.host.files, [path for pattern in patterns for path in paths_of(self.host.files, pattern)]),
        }

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore the governors, and then their settings, which exist with them only."""
        super().restore(saved)
        # What the kernel refused is tried again, and named once.
        return super().restore(saved)

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return the governors, as they were saved and as they are, and the settings of theirs that differ."""
        governors = {path: value for path, value in saved.items() if path.endswith("scaling_governor")}
        was, now = super().states(files, governors)
        own = {path: value for path, value in saved.items() if path not in governors}
        present = values_of(files, own)
        differing = [path for path in own if path in present and present[path] != own[path]]
        return (
            {**was, **{path: own[path] for path in differing}},
            {**now, **{path: present[path] for path in differing}},
        )


class _Switch(ValueArm):
    """A file that reads 1 or 0.

    Attributes:
        on: what it reads where the processor may exceed its nominal frequency.
    """

    on: int = 1

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.value = self.on if name.endswith("_on") else 1 - self.on
        self.settings = {self._key(): self.value}

    @property
    def title(self) -> str:
        """The setting, on or off."""
        return f"{self.setting} {self.name.rpartition('_')[2]}"


class Boost(_Switch):
    """Frequencies above the nominal one, by cpufreq."""

    pattern = "boost_(?:on|off)"
    written = ("boost_on", "boost_off")
    path = "sys/devices/system/cpu/cpufreq/boost"
    setting = "boost"
    summary = "frequencies above the nominal one, or none (`cpufreq/boost`)"
    needs = "cpufreq with `boost`, as acpi-cpufreq and amd-pstate have it"


class Turbo(_Switch):
    """The same for intel_pstate."""

    pattern = "turbo_(?:on|off)"
    written = ("turbo_on", "turbo_off")
    path = "sys/devices/system/cpu/intel_pstate/no_turbo"
    setting = "turbo"
    on = 0
    # The bit of CPUID leaf 6 that the kernel shows as this flag is 0 where the firmware has switched turbo off (Intel's
    # manual, volume 3, "Intel Turbo Boost Technology").
    flag = "ida"
    summary = "frequencies above the nominal one, or none (`intel_pstate/no_turbo`)"
    needs = "intel_pstate"

    def examine(self, host: ArmHost) -> None:
        """Look at what the firmware has left, too: the kernel refuses turbo where that has switched it off (EPERM,
        drivers/cpufreq/intel_pstate.c).
        """
        super().examine(host)
        if self.reason is None and self.value == self.on and not self.is_as_found:
            flags = cpuinfo.read_first(HostFs(host.files.sysroot)).get("flags", "")
            if self.flag not in flags.split():
                self.reason = (
                    f"turbo is off in the firmware, or the processor has none (no {self.flag} in /proc/cpuinfo)"
                )


ARMS = (Governor, Boost, Turbo)
