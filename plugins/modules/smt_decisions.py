#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_decisions
short_description: What collected evaluations decide for each hardware class
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_policy#role); not to be called directly.
  - Reads the results of evaluations on the controller, in the directories that C(smt_policy_results) names for the play's hosts, and returns for each hardware
    class the decision about SMT, its source hosts and its age.
  - Each host of a class counts once, by its latest run that compared SMT on and off. Hosts that do not agree, or one that is not decided, leave
    the class undecided. C(whose) shows where a single host decides for its class.
  - When a run was taken is the time at which the controller fetched it. A result with a time in the future is refused.
  - It does not fail where there are no results or they cannot be read, because only hosts whose policy is V(auto) need them.
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
- name: What is decided
  threadwise.smt.smt_decisions:
  register: smt_decisions_result
  run_once: true
"""

RETURN = r"""
by_path:
  description:
    - Directory to what its evaluations decide.
    - C(classes), hardware class to C(decision) (V(enabled), V(disabled), V(any) where SMT makes no difference that counts, or null), C(whose), C(sentence),
      C(hosts), C(runs), the latest first, and C(age_days), of the oldest of them.
    - C(error), why nothing could be read, or null.
    - C(refused), files that could not be used, each C(file) and C(reason).
  returned: success
  type: dict
"""
