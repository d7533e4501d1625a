#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_sample
short_description: (internal) Which hosts of each hardware class are measured
version_added: 1.0.0
description:
  - Used by the playbook C(threadwise.smt.smt_eval); not to be called directly.
  - Chooses the first hosts of each hardware class among the hosts of the play, and shows which hosts they represent and
    for how long each is measured. Hosts without a known class represent no other host. Run it once.
options:
  results:
    description: Name of the variable in which the result of M(threadwise.smt.smt_facts) was registered.
    type: str
    required: true
  size:
    description: How many hosts of each class are measured.
    type: int
    required: true
  shared:
    description: Whether the measured hosts of a class share the work of one.
    type: bool
    default: true
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_facts
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Choose two hosts of each class
  threadwise.smt.smt_sample:
    results: smt_facts_result
    size: 2
  run_once: true
  register: smt_sample_result
"""

RETURN = r"""
measured:
  description: The chosen hosts.
  returned: success
  type: list
  elements: str
  sample: [web1, web2, db1]
shared_by:
  description: How many hosts share the work of one with each of them, itself included.
  returned: success
  type: dict
  sample: {web1: 2, web2: 2, db1: 1}
"""
