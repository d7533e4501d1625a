# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A number of CPUs that are started at boot, by the boot argument ``maxcpus``."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import BY_CPUS, Boot, BootedArm


class MaxCpus(BootedArm):
    """One thread of each core; smt_boot_args refuses a number that would leave others."""

    pattern = "maxcpus_[1-9][0-9]{0,3}"
    written = ("maxcpus_N",)
    summary = "`maxcpus=N`: the first N CPUs are started"
    needs = "a numbering by which they are the first threads of all cores"
    siblings = BY_CPUS

    def __init__(self, name: str) -> None:
        number = name.partition("_")[2]
        self.boot = Boot(f"maxcpus={number}", maxcpus=number)
        super().__init__(name)


ARMS = (MaxCpus,)
