#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_status
short_description: (internal) Whether a host complies with its SMT policy
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_policy#role); not to be called directly.
  - Reads the facts of a host by one call of M(threadwise.smt.smt_facts), and by another one for a memory policy,
    compares them with the policy on the controller, and returns only the result. A host is compliant where
    M(threadwise.smt.smt_state) and M(threadwise.smt.smt_boot_args) would change no CPU and no argument.
  - Nothing is written and the facts are not kept.
options:
  policy:
    description:
      - V(enabled), V(disabled), V(auto), a mapping C(threads_per_core) to a number, or a mapping C(disabled_on) to one
        of C(node), C(package) and C(cpus).
    type: raw
  scope:
    description:
      - Whether the running system (V(runtime)), the boot arguments (V(boot)) or both are checked.
    type: str
    choices: [runtime, boot, both]
    default: runtime
  classes:
    description: Mapping of hardware classes to policies, which override O(policy) on hosts of these classes.
    type: raw
  decisions:
    description: Name of the variable in which the result of M(threadwise.smt.smt_decisions) was registered. Needed by
      V(auto).
    type: str
    default: ''
  results:
    description: C(smt_policy_results), of which V(auto) takes the decisions.
    type: str
    default: ''
  max_age:
    description: Days after which a decision is stale.
    type: int
    default: 365
  memory:
    description: The desired memory policy, as options of M(threadwise.smt.smt_memory_facts). It takes one more call on
      the host.
    type: dict
  consumers:
    description: C(smt_runtime_consumers). A service of these kinds that believes in another number of CPUs than it has
      is drift of the running system, because the role makes it right. Others are named.
    type: dict
  kubernetes:
    description: Whether the host is a node of Kubernetes, whose kubelet is right only where it is restarted.
    type: bool
    default: false
  protect:
    description: Services to protect from the OOM killer, read by the same call as O(memory).
    type: list
    elements: str
  sysroot:
    description: Directory that stands for C(/) on the host. Another value than V(/) checks a recorded tree.
    type: path
    default: /
  unreachable:
    description: Names of hosts that this controller is known not to reach. No connection to these is tried.
    type: list
    elements: str
  variables:
    description: Names of variables that have the values of options that are not given, by option. A mapping of such
      names stands for an option that is a mapping.
    type: dict
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_compliance
  - module: threadwise.smt.smt_facts
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Check a host
  threadwise.smt.smt_status:
    policy: disabled
    scope: both
  register: smt_status_result

- name: Check hosts of one hardware class against another policy
  threadwise.smt.smt_status:
    policy: disabled
    classes:
      x86_64-1s4c8t-adjacent-0f3a9c1e:
        threads_per_core: 2
"""

RETURN = r"""
threads_per_core:
  description: The most threads of a core that are online; null where that is not known.
  returned: success
  type: int
compliance:
  description: The result of the comparison. What does not apply is null.
  returned: success
  type: dict
  contains:
    status:
      description:
        - V(compliant), V(drifted), V(waived) where it differs and a waiver is in force, V(bad_policy) where no policy
          is set, it or the waiver is not valid or the host lacks what it names, or V(unknown) where facts or a decision
          are missing.
      type: str
    sentence:
      description: The differences from the policy, with the waiver; on a compliant host that there is no SMT or that a
        reboot is pending, else empty.
      type: str
      sample: "running: CPUs 4-7 are online"
    wanted:
      description: The policy that applies here.
      type: str
      sample: disabled
    scope:
      description: As in O(scope).
      type: str
    decided_by:
      description: Source and age of the evaluation that decided under V(auto).
      type: str
    hardware_class:
      description: Of this host.
      type: str
    running:
      description: The running system - C(status), C(reasons), and C(blocked_by), what blocks a change while the host
        runs.
      type: dict
    configured:
      description: The same for the next boot.
      type: dict
    memory:
      description: The same for the memory policy of the running kernel.
      type: dict
    memory_configured:
      description: The same for the memory policy of the next boot.
      type: dict
    reboot_pending:
      description: Whether the next boot has other SMT-related arguments than the running kernel.
      type: bool
    change:
      description:
        - What leads to the policy - C(running), options of M(threadwise.smt.smt_state), C(configured), options of
          M(threadwise.smt.smt_boot_args), each null where nothing is to be done, C(memory), whether the memory policy
          has to be put in force, and C(reboot), whether it comes into force by a reboot alone. Nothing is to be done
          while a waiver is in force.
      type: dict
      sample: {"running": {"state": "disabled"}, "configured": {"smt": "disabled"}, "memory": false, "reboot": false}
    decision:
      description:
        - Of the evaluations that decided under V(auto) - C(rests_on) and C(rechecks), as
          M(threadwise.smt.smt_decisions) returns them, C(stale), why it is to be measured again, a list of sentences,
          and C(measure), the hosts whose evaluation ends that. A decision that is stale counts as before. Null where no
          evaluation decided.
      type: dict
    checked:
      description: When the host was checked, of UTC; null where it was not.
      type: str
      sample: "2026-03-01T12:00:00Z"
    waiver:
      description:
        - Of the host, as C(smt_policy_waiver) has it - C(until), its last day, C(state), V(valid), V(ending) within 30
          days or V(expired), C(days_left), C(reason) and C(owner). Null without one.
      type: dict
    pending_change:
      description: That a change waits for its confirmation, as a sentence. Nothing is changed until it is confirmed or
        rolled back.
      type: str
    pending_rollback:
      description:
        - Where a rollout was interrupted after it changed the host and before the host was found healthy, what it saved
          on the host before that - C(since) when, and C(back_to), the state in a few words, each null where it is not
          known.
      type: dict
    holds_slot:
      description: The slot for a reboot that the host holds, in a sentence; null without one.
      type: str
"""
