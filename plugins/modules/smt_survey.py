#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_survey
short_description: The SMT facts of a play's hosts as a table and a page
version_added: 1.0.0
description:
  - Shows a table on the terminal and writes one HTML page on the controller - hosts by hardware class, SMT state, what
    the next boot would bring, vulnerabilities that are open because of SMT, what is not known, and hosts that gave no
    facts.
  - Takes what M(threadwise.smt.smt_facts) returned on all hosts of the play, those that could not be reached included.
    Run it once.
options:
  results:
    description: Name of the variable in which the result of M(threadwise.smt.smt_facts) was registered.
    type: str
    required: true
  usage:
    description:
      - Name of the variable in which the result of M(threadwise.smt.smt_usage) was registered, where the hosts were
        looked at. How much room is left is in the table and on the page then.
    type: str
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
  - threadwise.smt.pages
  - threadwise.smt.pages.not_contacted
attributes:
  check_mode:
    support: full
    details: Shows the table without writing the page.
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_facts
  - module: threadwise.smt.smt_usage
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Read the facts
  threadwise.smt.smt_facts:
  register: smt_facts_result

- name: Show and write them
  threadwise.smt.smt_survey:
    results: smt_facts_result
    dest: smt_survey.html
  run_once: true
"""

RETURN = r"""
dest:
  description: The page.
  returned: success
  type: str
  sample: smt_survey.html
summary:
  description: What the hosts are like, in one sentence.
  returned: success
  type: str
  sample: "3 hosts: 2 with SMT on, 1 no SMT."
"""
