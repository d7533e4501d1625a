# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A number of huge pages of the default size (vm.nr_hugepages), which programs such as databases map by themselves."""

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import ArmHost, ValueArm
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    policy as memory_policy,
)

# The share of the available memory that huge pages may take: nothing else can use them.
MAX_OF_AVAILABLE = 0.5


class HugePages(ValueArm):
    """So many huge pages."""

    pattern = "hugepages_(?:0|[1-9][0-9]{0,7})"
    written = ("hugepages_N",)
    path = memory_facts.sysctl_path(memory_policy.HUGEPAGES)
    setting = "huge pages"
    takes_of = "memory"
    remark = "other memory is not available as huge pages, nor they as other memory"
    refused = "memory is too full or too fragmented for so many huge pages"
    summary = "`vm.nr_hugepages=N`: so many huge pages of the default size"
    needs = "N pages in at most half of the available memory"

    @property
    def title(self) -> str:
        """The number."""
        return f"{self.value} huge pages"

    def examine(self, host: ArmHost) -> None:
        """Look at the memory that is available, too."""
        super().examine(host)
        memory = memory_facts.read_memory(HostFs(host.files.sysroot))
        size, available = memory.hugepage, memory.available
        if self.reason or size is None or available is None:
            self.reason = self.reason or "this kernel has no huge pages"
            return
        more = int(self.value) - int(self._found or 0)
        if more * size > MAX_OF_AVAILABLE * available:
            self.reason = (
                f"{more} more huge pages take {memory_policy.size(more * size)}, and that is more than"
                f" half of the {memory_policy.size(available)} that are available"
            )


ARMS = (HugePages,)
