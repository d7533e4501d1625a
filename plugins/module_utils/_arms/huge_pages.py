# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A number of huge pages of the default size (vm.nr_hugepages), which programs such as databases map by themselves."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import Arm, ArmError, Host, Values
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._memory import (
    facts as memory_facts,
    policy as memory_policy,
    snapshot as memory_snapshot,
)

# The share of the available memory that huge pages may take: nothing else can use them.
MAX_OF_AVAILABLE = 0.5


class HugePages(Arm):
    """So many huge pages."""

    pattern = "hugepages_(?:0|[1-9][0-9]{0,7})"
    lever = "huge_pages"
    written = ("hugepages_N",)
    summary = "`vm.nr_hugepages=N`: so many huge pages of the default size"
    needs = "N pages in at most half of the available memory"

    def __init__(self, name: str, host: Host) -> None:
        super().__init__(name, host)
        self._fs = HostFs(host.files.sysroot)
        self._pages = int(name.rpartition("_")[2])
        self._found = _present(self._fs)
        self.settings = {memory_policy.HUGEPAGES: self._pages}
        self.is_as_found = self._found == self._pages
        self.reason = self._why_not()

    def _why_not(self) -> "str | None":
        memory = memory_facts.read_memory(self._fs)
        size, available = memory["hugepage"], memory["available"]
        if self._found is None or size is None or available is None:
            return "this kernel has no huge pages"
        more = (self._pages - self._found) * size
        if more > MAX_OF_AVAILABLE * available:
            return (
                f"{self._pages - self._found} more huge pages take {memory_policy.size(more)}, and that is more than"
                f" half of the {memory_policy.size(available)} that are available"
            )
        return None

    @classmethod
    def title_of(cls, name: str) -> str:
        """Return the title of the arm with a name."""
        return f"{name.rpartition('_')[2]} huge pages"

    def announcement(self) -> "list[str]":
        """Describe the switch."""
        if self.is_as_found:
            return [f"{memory_policy.HUGEPAGES} is {self._pages}, as it is now."]
        return [
            (
                f"{memory_policy.HUGEPAGES} is switched from {self._found} to {self._pages}; other memory is not"
                " available as huge pages, nor they as other memory."
            )
        ]

    def restoration(self) -> "str | None":
        """Name the number."""
        return f"the number of huge pages ({self._found})"

    def switch(self) -> None:
        """Write the number; a kernel that finds fewer pages gets the number from before again."""
        try:
            memory_snapshot.write(self._fs, {memory_policy.HUGEPAGES: self._pages})
        except memory_snapshot.MemorySnapshotError as error:
            left = [] if self._found is None else self._write_back(self._found)
            raise ArmError("; ".join([str(error), *left])) from error

    def prove(self) -> None:
        """Read the number."""
        if _present(self._fs) != self._pages:
            raise ArmError(f"{memory_policy.HUGEPAGES} reads {_present(self._fs)}, not {self._pages}")

    def save(self) -> "dict[str, t.Any]":
        """Return the present number."""
        return {memory_policy.HUGEPAGES: _present(self._fs)}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Write the saved number."""
        return self._write_back(saved[self.lever][memory_policy.HUGEPAGES])

    def _write_back(self, pages: int) -> "list[str]":
        try:
            memory_snapshot.write(self._fs, {} if _present(self._fs) == pages else {memory_policy.HUGEPAGES: pages})
        except memory_snapshot.MemorySnapshotError as error:
            return [str(error)]
        return []

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return the number, as it was saved and as it is."""
        return saved, {memory_policy.HUGEPAGES: _present(HostFs(files.sysroot))}


def _present(fs: HostFs) -> "int | None":
    return memory_facts.read_setting(fs, memory_policy.HUGEPAGES)


ARMS = (HugePages,)
