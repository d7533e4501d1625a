# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules that make a page of what was found on the hosts of a play."""

from __future__ import annotations


class ModuleDocFragment:
    """The page, and the hosts of which there is nothing to show."""

    DOCUMENTATION = r"""
options:
  dest:
    description:
      - The page, on the controller; a relative path is below the current directory. The name has to end in C(.html) or
        C(.htm). The file is replaced as a whole, but only if this collection wrote it.
    type: path
    required: true
"""

    NOT_CONTACTED = r"""
options:
  not_contacted:
    description: Hosts that this controller cannot reach, as M(threadwise.smt.smt_preflight) found. They have no result.
    type: list
    elements: str
    default: []
"""
