# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of the statuses of hosts, as users name them (``smt_compliance_source``): a file of this folder each,
with a ``SOURCE``. To know the names, nothing of theirs is loaded.
"""

from __future__ import annotations

ALL = ("push", "files", "prometheus")
