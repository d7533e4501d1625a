#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_restart
short_description: (internal) A reboot with a slot
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_boot#role); not to be called directly.
  - Waits for the slot that C(smt_slot) has the host ask for, and for C(smt_reboot_window), reboots the host by
    M(ansible.builtin.reboot), and gives the slot back. A host that does not come back keeps its slot.
options:
  reboot_timeout:
    description: Time limit of the reboot in seconds.
    type: int
    default: 600
  msg:
    description: The message to users of the host.
    type: str
    default: Rebooted by Ansible
  verify:
    description: Options of M(threadwise.smt.smt_boot_args), with which the host has to run afterwards.
    type: dict
  keeps_slot:
    description: Whether the slot is kept for a check of the host's health that follows.
    type: bool
    default: false
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
    details: Nobody is asked; RV(msg) has what would be asked.
  diff_mode:
    support: none
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Reboot
  threadwise.smt.smt_restart:
    reboot_timeout: 900
"""

RETURN = r"""
rebooted:
  description: Whether the host was rebooted.
  returned: success
  type: bool
by_pull:
  description: Whether the program of P(threadwise.smt.smt_pull#role) reboots the host when this play has ended.
  returned: success
  type: bool
msg:
  description: >-
    What would be asked in check mode and what forbids it now, or who reboots the host instead; empty otherwise.
  returned: success
  type: str
  sample: would ask for a slot of the group default at https://fleetlock.example.com
"""
