#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_decisions
short_description: (internal) What collected evaluations decide for each hardware class
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_policy#role); not to be called directly.
  - Reads the results of evaluations on the controller, in the directories that C(smt_policy_results) names for the
    play's hosts, and returns for each hardware class the decision about SMT, its source hosts and its age.
  - Each host counts once, by its latest run that compared SMT on and off and was no re-check, and for one hardware
    class only. Hosts that do not agree, or that declare a workload differently, leave the class undecided, and so does
    a host without which the others would say something else. C(whose) shows where a single host decides for its class,
    whether a re-check confirms that, and which results do not count.
  - When a run was taken is the time at which the controller fetched it. A result with a time in the future is refused.
  - It does not fail where there are no results or they cannot be read, because only hosts whose policy is V(auto) need
    them.
options:
  facts:
    description:
      - Name of the variable in which the result of M(threadwise.smt.smt_facts) was registered. A host decides for the
        class that these facts show. Without them it decides for the class of its latest run.
    type: str
  before:
    description: What this module returned before the facts were known. Results are read again only where the facts of a
      host show another class.
    type: dict
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
    - C(classes), hardware class to C(decision) (V(enabled), V(disabled), V(any) where SMT makes no difference that
      counts, or null), C(whose), C(sentence), C(hosts), C(runs), the latest first, C(age_days), of the oldest of them,
      C(rests_on), the kernels, microcode, mitigations, versions of this collection, governors and boost of its hosts,
      and the first and the last day, C(rechecks), what re-checks of its hosts have said since then, the latest first
      (C(host), C(run), C(day), C(age_days), C(kernel), C(mitigations) and C(state), V(holds), V(changed) or
      V(not decided)), and C(not_counted), hosts with a result of this class that are of another one,
      with the reason.
    - C(error), why nothing could be read, or null.
    - C(refused), files that could not be used, each C(file) and C(reason).
    - C(evaluated), hosts with a result that counts, and the hardware class of their latest run.
  returned: success
  type: dict
evaluated:
  description: All hosts with a result that counts.
  returned: success
  type: list
  elements: str
"""
