#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_yields
short_description: (internal) What second threads give on each host's hardware class
version_added: 1.0.0
description:
  - Used by the playbook C(smt_exposure.yml); not to be called directly.
  - Reads the results of evaluations on the controller. The yield of a workload is its work with SMT on, every online
    thread busy, in that with SMT off, of the latest run of each host of the class, all hosts combined.
options:
  facts:
    description: Name of the variable in which the result of M(threadwise.smt.smt_facts) was registered.
    type: str
    required: true
  directory:
    description: The directory of evaluations on the controller. Without it nothing is known.
    type: path
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_usage
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: What second threads give
  threadwise.smt.smt_yields:
    facts: smt_facts_result
    directory: smt_eval_results
  run_once: true
"""

RETURN = r"""
by_host:
  description: Host of the play to a list of C(workload), C(low) and C(high), the interval of its yield.
  returned: success
  type: dict
refused:
  description: Files that could not be used, each C(file) and C(reason). The first ones are warnings, too.
  returned: success
  type: list
  elements: dict
"""
