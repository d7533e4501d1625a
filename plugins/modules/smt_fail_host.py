#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_fail_host
short_description: (internal) Fail a host that is not as its policy wants it, or that was not evaluated
version_added: 1.0.0
description:
  - Used by the playbooks of this collection; not to be called directly.
  - Succeeds on a host that is compliant or waived. On another one it fails, or counts the host as unreachable where it
    could not be reached, so that each host has its own result in the recap of the play.
options:
  results:
    description:
      - Name of the variable in which the result of M(threadwise.smt.smt_status) or M(threadwise.smt.smt_benchmark), or
        the failure of a module before it, was registered. Needed without O(shown).
    type: str
  drifted_ok:
    description: Whether it succeeds on a host that has drifted. A rollout in check mode sets this for hosts that it
      would change.
    type: bool
    default: false
  shown:
    description: Name of the variable in which the result of M(threadwise.smt.smt_compliance) was registered, whose
      RV(threadwise.smt.smt_compliance#module:failing) decides instead.
    type: str
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
  - threadwise.smt.pages.not_contacted
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Fail the host unless it is compliant
  threadwise.smt.smt_fail_host:
    results: smt_status_result
"""

RETURN = r"""
msg:
  description: The status and what is wrong.
  returned: failure
  type: str
  sample: "drifted: running: CPUs 4-7 are online"
"""
