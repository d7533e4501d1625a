#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_exposure
short_description: How the cores of a play's hosts are used, as a table, a page and a document
version_added: 1.0.0
description:
  - Shows a table on the terminal and writes an HTML page and a JSON document on the controller - CPU usage, what that
    is of the work that a host can do, the room that is left, how long siblings were busy together, and with whose work.
    The document is beside the page, C(.json).
  - Takes what M(threadwise.smt.smt_usage) returned on all hosts of the play, those that could not be reached included.
    Run it once.
options:
  results:
    description: Name of the variable in which the result of M(threadwise.smt.smt_usage) was registered.
    type: str
    required: true
  facts:
    description:
      - Name of the variable in which the result of M(threadwise.smt.smt_facts) was registered. It says why a host was
        not looked at, and which vulnerabilities are open across threads.
    type: str
  yields:
    description: C(by_host) of M(threadwise.smt.smt_yields), whose workloads are named.
    type: dict
    default: {}
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
  - threadwise.smt.pages
  - threadwise.smt.pages.not_contacted
attributes:
  check_mode:
    support: full
    details: Shows the table without writing files.
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_usage
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Look for a minute
  threadwise.smt.smt_usage:
    seconds: 60
    windows: 30
  become: true
  register: smt_usage_result

- name: Show and write it
  threadwise.smt.smt_exposure:
    results: smt_usage_result
    dest: smt_exposure.html
  run_once: true
"""

RETURN = r"""
dest:
  description: The page.
  returned: success
  type: str
  sample: smt_exposure.html
summary:
  description: What was found, in one sentence.
  returned: success
  type: str
  sample: "3 hosts: 1 on which SMT cannot matter under this load, 2 with less room than usage says."
"""
