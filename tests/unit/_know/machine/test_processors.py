# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name of a processor, and its nominal frequency, by which work is set beside that of other machines."""

from __future__ import annotations

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import processors

CPU = "sys/devices/system/cpu/cpu0/"
NEOVERSE_N2 = {"CPU implementer": "0x41", "CPU part": "0xd49"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"model name": "A CPU", "cpu": "other"}, "A CPU"),
        ({"cpu": "POWER9"}, "POWER9"),
        ({"Processor": "ARMv7", "model name": ""}, "ARMv7"),
        (NEOVERSE_N2, "Arm Neoverse-N2"),
        ({"CPU implementer": "0x43", "CPU part": "0x0af"}, "Cavium ThunderX2"),
        ({"CPU implementer": "0x41", "CPU part": "0xfff"}, "Arm part 0xfff"),
        ({"CPU implementer": "0x99", "CPU part": "0x1"}, "implementer 0x99 part 0x1"),
        ({"CPU implementer": "0x41"}, None),
        ({"CPU implementer": "evil", "CPU part": "0xd49"}, None),
        ({}, None),
    ],
)
def test_the_name_is_in_another_field_on_each_architecture(fields, name):
    assert processors.model(fields) == name


@pytest.mark.parametrize(
    ("files", "fields", "mhz"),
    [
        ({CPU + "cpufreq/base_frequency": "2500000\n"}, {"model name": "X @ 3.00GHz"}, 2500),
        ({CPU + "cpufreq/cpuinfo_nominal_freq": "3800000\n"}, {"cpu": "POWER9", "clock": "2166.000000MHz"}, 3800),
        ({CPU + "acpi_cppc/nominal_freq": "2750\n", CPU + "cpufreq/scaling_governor": "x\n"}, NEOVERSE_N2, 2750),
        ({}, {"model name": "Intel(R) Xeon(R) CPU E5-2676 v3 @ 2.40GHz"}, 2400),
        ({}, {"cpu": "POWER10", "clock": "2750.000000MHz"}, 2750),
        # With cpufreq that is the frequency of the moment.
        ({CPU + "cpufreq/scaling_governor": "ondemand\n"}, {"cpu": "POWER9", "clock": "2166.000000MHz"}, None),
        ({CPU + "acpi_cppc/nominal_freq": "0\n"}, NEOVERSE_N2, None),
        ({CPU + "cpufreq/base_frequency": "<unknown>\n"}, NEOVERSE_N2, None),
        ({}, NEOVERSE_N2, None),
    ],
)
def test_the_nominal_frequency_is_the_one_that_the_maker_names(tmp_path, files, fields, mhz):
    fs = HostFs(sysfs_tree.write(tmp_path, files))
    assert processors.nominal_mhz(fs, fields) == mhz
