# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts whose CPUs the kernel manages, as those of the queues of NVMe and virtio disks.

The errnos are those of guests with Linux 6.1 and 6.12.
"""

from __future__ import annotations

import errno

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity, bindings

CPUS = frozenset({1})


class Kernel:
    """The files of one interrupt."""

    is_host = True

    def __init__(self, code):
        self.code, self.written = code, []

    def read(self, path):
        return "0\n" if path.endswith("affinity_hint") else "0-3\n"

    def write(self, path, text):
        self.written.append(text)
        raise OSError(self.code, "refused")


@pytest.mark.parametrize(("code", "managed"), [(errno.EIO, True), (errno.EPERM, True), (errno.EINVAL, False)])
def test_a_managed_interrupt_is_told_by_what_a_write_gives_and_needs_no_restoring(code, managed):
    kernel = Kernel(code)
    assert bindings.is_placed_by_kernel(kernel, "22", CPUS) is managed
    assert kernel.written == ["none"], "a text that changes nothing"
    assert len(affinity._restore_interrupt(Kernel(code), "22", CPUS, frozenset(range(4)))) == (not managed)
