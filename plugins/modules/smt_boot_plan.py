#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_boot_plan
short_description: (internal) Which arms of an evaluation are booted, and in which order
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_eval#role); not to be called directly.
  - Plans, on the controller, the boots of a host - which arms have boots of their own, in a balanced order, and which
    are switched at run time within the boots of the baseline. It fails with a sentence where the arms cannot be
    compared by boots.
options:
  arms:
    description: The arms that are asked for, the baseline first; a list, or names with commas between.
    type: raw
    required: true
  boots:
    description: Number of boots in each arm.
    type: int
    required: true
  budget:
    description: Seconds of all measurements together.
    type: int
    required: true
  reboot_ok:
    description: Whether the host may be rebooted.
    type: bool
    required: true
  allow_mitigations_off:
    description: Whether V(mitigations_off) may be booted.
    type: bool
    required: true
  left_out:
    description: Arms that the host cannot have, each C(name) and C(reason).
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_boots
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Plan the boots
  threadwise.smt.smt_boot_plan:
    arms: [smt_on, smt_off, nosmt]
    boots: 4
    budget: 3600
    reboot_ok: true
    allow_mitigations_off: false
  register: boot_plan
"""

RETURN = r"""
booted:
  description:
    - The arms that have boots of their own, the baseline first. Each has C(name), C(title), the options C(smt),
      C(maxcpus) and C(mitigations) of M(threadwise.smt.smt_boot_args), null where they are left out, and C(arms), what
      is measured in each of its boots.
  returned: success
  type: list
  elements: dict
order:
  description: The arm of each boot.
  returned: success
  type: list
  elements: str
  sample: [smt_on, nosmt, nosmt, smt_on]
reboots:
  description: How often the host is rebooted.
  returned: success
  type: int
share:
  description: Seconds of the measurement in each boot.
  returned: success
  type: int
announcement:
  description: What would be done, one sentence each.
  returned: success
  type: list
  elements: str
left_out:
  description: The option O(left_out), with the title of each arm.
  returned: success
  type: list
  elements: dict
"""
