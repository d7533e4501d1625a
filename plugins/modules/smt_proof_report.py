#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_proof_report
short_description: (internal) what came of a proof, as a table, a page and a document of each host
version_added: 1.0.0
description:
  - Used by the playbook smt_proof.yml; not to be called directly.
  - Takes what its tasks returned on all hosts of the play, those that could not be
    reached included, and the results of the evaluation of equal arms. Run it once.
options:
  facts:
    description: Name of the variable with the result of M(threadwise.smt.smt_facts).
    type: str
    required: true
  results:
    description: Name of the variable with the result of M(threadwise.smt.smt_proof_host).
    type: str
    required: true
  siblings:
    description: Name of the variable with the result of M(threadwise.smt.smt_probe).
    type: str
    required: true
  measured:
    description: Name of the variable with the result of M(threadwise.smt.smt_benchmark).
    type: str
    required: true
  run:
    description: Name of the run.
    type: str
    required: true
  dest:
    description: Directory of runs on the controller. The page and the documents are in C(proof) below that of the run.
    type: path
    required: true
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
  - threadwise.smt.pages.not_contacted
attributes:
  check_mode:
    support: full
    details: Shows the table without writing files.
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_proof_host
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Show and write what came of all hosts
  threadwise.smt.smt_proof_report:
    facts: facts
    results: proof
    siblings: siblings
    measured: measured
    run: first
    dest: smt_proof_results
  run_once: true
"""

RETURN = r"""
page:
  description: The page.
  returned: success
  type: str
summary:
  description: What came of all hosts, in one sentence.
  returned: success
  type: str
failed_parts:
  description: Of each host that was looked at, the parts that do not hold.
  returned: success
  type: dict
"""
