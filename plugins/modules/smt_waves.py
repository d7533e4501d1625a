#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_waves
short_description: (internal) Which drifted hosts are changed in which wave of a rollout
version_added: 1.0.0
description:
  - Used by the playbook C(threadwise.smt.smt_enforce); not to be called directly.
  - Lays the hosts of the play out in waves, in their order, and returns those that are to be changed. Hosts with the
    same value of the variable C(smt_policy_group) are never in one wave, and wait where one of them cannot be reached.
  - The waves are those of the whole fleet, so a rollout that is begun again goes on in the wave where it stopped. Run
    it once.
options:
  results:
    description: Name of the variable in which the result of M(threadwise.smt.smt_status) was registered.
    type: str
    required: true
  sizes:
    description:
      - Sizes of the waves, each a number or a share of the fleet such as V(10%). The last one is that of all further
        waves.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_status
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: One host, then a tenth of the fleet, then quarters
  threadwise.smt.smt_waves:
    results: smt_status_result
    sizes: [1, 10%, 25%]
  run_once: true
  register: smt_waves_result
"""

RETURN = r"""
members:
  description:
    - The hosts to be changed, each C(host), C(wave), counted from 1, and C(after), the host of its C(smt_policy_group)
      that was changed before it, or null, in the order of changing.
  returned: success
  type: list
  elements: dict
  sample: [{"host": "db1", "wave": 1, "after": null}]
left_out:
  description: Hosts that cannot be changed, or not now, with the reason.
  returned: success
  type: dict
  sample: {"db2": "it cannot be changed: only root may write it: use become"}
"""
