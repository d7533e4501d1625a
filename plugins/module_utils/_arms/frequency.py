# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The governor of the frequency, and frequencies above the nominal one.

Sources: Documentation/admin-guide/pm/cpufreq.rst for ``scaling_governor`` and ``boost``,
Documentation/admin-guide/pm/intel_pstate.rst for ``no_turbo``, which stands in for ``boost`` there.
"""

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import ValueArm


class Governor(ValueArm):
    """A governor of all CPUs that are online."""

    pattern = "governor_(?:conservative|ondemand|performance|powersave|schedutil|userspace)"
    written = ("governor_NAME",)
    path = "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    choices = "scaling_available_governors"
    setting = "frequency governor"
    summary = "this governor of the frequency on all CPUs that are online"
    needs = "cpufreq with this governor"


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
    summary = "frequencies above the nominal one, or none (`intel_pstate/no_turbo`)"
    needs = "intel_pstate"


ARMS = (Governor, Boost, Turbo)
