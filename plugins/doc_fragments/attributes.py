# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all modules say of themselves in the same words; each adds what it supports."""

from __future__ import annotations


class ModuleDocFragment:
    """The attributes of a module that runs on a managed host, and those of one whose work is done on the controller."""

    DOCUMENTATION = r"""
options: {}
requirements:
  - msgspec (on the controller)
attributes:
  check_mode:
    description: Can run in check mode, says what it would do, and changes nothing.
  diff_mode:
    description: Shows what has changed, or in check mode would change.
  platform:
    description: Target OS that can be operated on.
    details: Linux with Python 3.6 or later. Newer versions of ansible-core need a newer Python on hosts.
    support: full
    platforms: linux
"""

    CONTROLLER = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode, says what it would do, and changes nothing.
  diff_mode:
    description: Shows what has changed, or in check mode would change.
  action:
    description: Has work done on the controller.
    support: full
  platform:
    description: Target OS that can be operated on.
    details: The controller, whatever the task's host.
    support: full
    platforms: posix
"""
