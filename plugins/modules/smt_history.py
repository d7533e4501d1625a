#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_history
short_description: What drifted when, and what SMT did over kernels and months, as a page and a document
version_added: 1.0.0
description:
  - Reads what checks of compliance have found over time, and the reports of evaluations, and says which hosts drifted
    when, how long that lasted, and whether the effect of SMT on a workload of a hardware class has changed.
  - The document is beside the page, C(.json). Makes no call on any host.
options:
  checks:
    description:
      - Directory of the history of checks on the controller, which smt_compliance.yml keeps
        (C(smt_compliance_history)).
    type: path
  results:
    description:
      - Directory of evaluations on the controller, such as C(smt_eval_results), or of one of its runs. Runs without a
        report are none.
    type: path
  margin:
    description: Effects within this share of 1 count as none, and so does a change of an effect by less. From 0 to
      below 1.
    type: float
    default: 0.01
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
  - threadwise.smt.pages
attributes:
  check_mode:
    support: full
    details: Says what it found without writing files.
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_compliance
  - module: threadwise.smt.smt_report
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: What drifted, and whether decisions still rest on what is so
  threadwise.smt.smt_history:
    checks: smt_checks
    results: smt_eval_results
    dest: smt_history.html
  run_once: true
"""

RETURN = r"""
dest:
  description: The page.
  returned: success
  type: str
  sample: smt_history.html
summary:
  description: What there is, in one sentence.
  returned: success
  type: str
sentences:
  description: What was found, the most important first.
  returned: success
  type: list
  elements: str
"""
