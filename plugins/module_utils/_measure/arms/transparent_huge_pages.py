# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transparent huge pages: always, only where a program asks for them (madvise(2)), or never."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import ValueArm


class TransparentHugePages(ValueArm):
    """Documentation/admin-guide/mm/transhuge.rst: the file reads ``always [madvise] never``."""

    pattern = "thp_(?:always|madvise|never)"
    written = ("thp_always", "thp_madvise", "thp_never")
    path = "sys/kernel/mm/transparent_hugepage/enabled"
    setting = "transparent huge pages"
    remark = "memory that is mapped by then keeps its pages"
    summary = "transparent huge pages for all memory, for memory that a program names with madvise(2), or for none"
    needs = "a kernel with transparent huge pages"


ARMS = (TransparentHugePages,)
