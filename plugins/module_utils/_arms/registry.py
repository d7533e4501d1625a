# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All arms. Written by tools/registries.py: do not edit."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._arms import (
    as_found,
    memory,
    smt,
)

ALL = (
    as_found.ARMS,
    memory.ARMS,
    smt.ARMS,
)
