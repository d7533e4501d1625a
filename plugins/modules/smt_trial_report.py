#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_trial_report
short_description: The report of a trial
version_added: 1.0.0
description:
  - Builds the page and the results of a trial from its files on the controller. It contacts no host, and can be
    run again at any time, also while the trial runs.
  - Files of a host that cannot be read are a warning, and that host counts for nothing.
options:
  trial_dir:
    description: Directory of the trial on the controller.
    type: path
    required: true
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_state
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Build the report of a trial
  threadwise.smt.smt_trial_report:
    trial_dir: smt_trial_results/first
  delegate_to: localhost
"""

RETURN = r"""
page:
  description: The page.
  returned: success
  type: str
  sample: smt_trial_results/first/index.html
answer:
  description: The answer, in sentences.
  returned: success
  type: list
  elements: str
"""
