# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of the statuses of hosts, as users name them (``smt_compliance_source``)."""

from __future__ import annotations

PUSH = "push"
FILES = "files"
PROMETHEUS = "prometheus"
ALL = (PUSH, FILES, PROMETHEUS)
