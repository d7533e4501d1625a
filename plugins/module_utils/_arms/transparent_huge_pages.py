# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transparent huge pages: always, only where a program asks for them (madvise(2)), or never."""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import Arm, ArmError, Host, Values
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles

# Documentation/admin-guide/mm/transhuge.rst: the file reads ``always [madvise] never``.
ENABLED = "sys/kernel/mm/transparent_hugepage/enabled"


def in_force(files: KernelFiles) -> "str | None":
    """Return which of the values of the file is in force, or None where the kernel has no transparent huge pages."""
    found = re.search(r"\[([a-z]{1,20})\]", files.read(ENABLED) or "")
    return found.group(1) if found else None


class TransparentHugePages(Arm):
    """One value of the file."""

    pattern = "thp_(?:always|madvise|never)"
    lever = "transparent_huge_pages"
    written = ("thp_always", "thp_madvise", "thp_never")
    summary = "transparent huge pages for all memory, for memory that a program names with madvise(2), or for none"
    needs = "a kernel with transparent huge pages"

    def __init__(self, name: str, host: Host) -> None:
        super().__init__(name, host)
        self._value = name.rpartition("_")[2]
        self._found = in_force(host.files)
        self.settings = {ENABLED: self._value}
        self.is_as_found = self._found == self._value
        if self._found is None:
            self.reason = f"this kernel has no transparent huge pages (no /{ENABLED})"

    @classmethod
    def title_of(cls, name: str) -> str:
        """Return the title of the arm with a name."""
        return f"transparent huge pages: {name.rpartition('_')[2]}"

    def announcement(self) -> "list[str]":
        """Describe the switch."""
        if self.is_as_found:
            return [f"/{ENABLED} is {self._value}, as it is now."]
        return [
            (
                f"/{ENABLED} is switched from {self._found} to {self._value}; memory that is mapped by then keeps its"
                " pages."
            )
        ]

    def restoration(self) -> "str | None":
        """Name the setting."""
        return f"transparent huge pages ({self._found})"

    def switch(self) -> None:
        """Write the value."""
        self._write(self._value)

    def _write(self, value: str) -> None:
        try:
            self.host.files.write(ENABLED, value)
        except OSError as error:
            raise ArmError(f"/{ENABLED}: the kernel does not accept {value}: {error.strerror}") from error
        if in_force(self.host.files) != value:
            raise ArmError(f"/{ENABLED} reads {in_force(self.host.files)} after {value} was written to it")

    def prove(self) -> None:
        """Read the value."""
        if in_force(self.host.files) != self._value:
            raise ArmError(f"/{ENABLED} reads {in_force(self.host.files)}, not {self._value}")

    def save(self) -> "dict[str, t.Any]":
        """Return the present value."""
        return {ENABLED: in_force(self.host.files)}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Write the saved value."""
        value = saved[self.lever][ENABLED]
        try:
            if in_force(self.host.files) != value:
                self._write(value)
        except ArmError as error:
            return [str(error)]
        return []

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return the value, as it was saved and as it is."""
        return saved, {ENABLED: in_force(files)}


ARMS = (TransparentHugePages,)
