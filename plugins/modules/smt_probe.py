#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_probe
short_description: Find out by measuring which CPUs share a core
version_added: 1.0.0
description:
  - Lets changing halves of the CPUs compute for a twentieth of a second at a time, compares how fast each CPU is with
    and without each other one, and says which CPUs share a core, with an interval, or that it is not clear.
  - For guests whose hypervisor shows another topology than the one they run on. The kernel's topology is not used for
    measuring; it is only compared with what was measured.
  - The CPUs are busy while it runs, for some seconds to O(seconds). Nothing is switched.
  - What was measured is kept in C(/var/lib/threadwise-smt/siblings.json) until the next boot, and
    M(threadwise.smt.smt_facts) shows it.
options:
  mode:
    description:
      - V(auto) measures where a hypervisor shows a topology without SMT, or none. Where that is not possible it warns
        and does not fail.
    type: str
    choices: [auto, always, never]
    default: always
  seconds:
    description: How long it may take. What is not clear by then is returned as unclear.
    type: float
    default: 30
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
    details: Says whether it would measure.
  diff_mode:
    support: none
    details: Nothing is switched.
seealso:
  - module: threadwise.smt.smt_facts
author: threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Measure which CPUs share a core, in guests that claim to have no SMT
  threadwise.smt.smt_probe:
    mode: auto
  become: true

- name: Say where the kernel is wrong
  ansible.builtin.debug:
    msg: "CPUs {{ ansible_facts['smt']['measured']['pairs'] | join(' and ') }} share a core, and the kernel does not
      know"
  when: (ansible_facts['smt']['measured'] or {})['agrees_with_kernel'] | default(none) is false
"""

RETURN = r"""
probed:
  description: Whether the CPUs were measured, or in check mode would be.
  returned: always
  type: bool
measured:
  description: What was measured, or null.
  returned: always
  type: dict
  contains:
    cpus:
      description: CPU list of the CPUs that were measured.
      type: str
    pairs:
      description: CPU lists, one a core that several of the CPUs share.
      type: list
      elements: str
    singles:
      description: CPU list of the CPUs that share a core with no other.
      type: str
    unclear:
      description: CPU list of the CPUs whose core is not clear.
      type: str
    agrees_with_kernel:
      description: Whether the kernel's topology says the same; null when too little is clear.
      type: bool
    ratios:
      description:
        - Pairs with C(result) (V(shares), V(apart) or null for unclear), C(ratio) (the pace together as a share of the
          pace apart), and its interval, C(low) and C(high). With many CPUs only the pairs that might share.
      type: list
      elements: dict
    rounds:
      description: How many rounds it took.
      type: int
    seconds:
      description: How long it took.
      type: float
    confidence:
      description: Family-wise confidence of all statements.
      type: float
    measured_at:
      description: When, in UTC.
      type: str
ansible_facts:
  description: The facts of M(threadwise.smt.smt_facts) with what was measured.
  returned: when measured
  type: dict
"""

import signal
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.locks import HostLock
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import cache as sibling_cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings import rounds
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts


class EndedError(Exception):
    """Somebody ended the measurement."""


def main() -> None:
    """Measure which CPUs share a core."""
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": list(rounds.MODES), "default": "always"},
            "seconds": {"type": "float", "default": rounds.DEFAULT_SECONDS},
        },
        supports_check_mode=True,
    )
    fs = HostFs("/")
    facts = smt_facts.gather(fs)
    probed = rounds.wanted(module.params["mode"], facts)
    if not probed or module.check_mode:
        module.exit_json(changed=False, probed=probed, measured=None)
    signal.signal(signal.SIGTERM, _end)
    try:
        measured = measure(fs, module.params["seconds"])
    except EndedError:
        module.fail_json(msg="the measurement of which CPUs share a core was ended (SIGTERM), as smt_eval_stop does")
    except HostError as error:
        give_up(module, str(error))
    except OSError as error:
        give_up(module, f"what was measured cannot be kept in {fs.path(sibling_cache.PATH)}: {error.strerror}")
    module.exit_json(
        changed=False, probed=True, measured=measured, ansible_facts={"smt": {**facts, "measured": measured}}
    )


def _end(_number: int, _frame: object) -> "t.NoReturn":
    raise EndedError


def give_up(module: AnsibleModule, reason: str) -> None:
    """End the module without a measurement: as a failure, or in mode ``auto`` with a warning.

    Args:
        module: the running module.
        reason: why nothing was measured.
    """
    if module.params["mode"] != "auto":
        module.fail_json(msg=reason)
    module.warn(f"Which CPUs share a core was not measured: {reason}")
    module.exit_json(changed=False, probed=False, measured=None)


def measure(fs: HostFs, seconds: float) -> "dict[str, t.Any]":
    """Measure, compare with the kernel and save, while the host's lock keeps others from measuring or switching.

    Args:
        fs: the host's files.
        seconds: time limit of the measurement.

    Returns:
        The facts' ``measured``.
    """
    with HostLock("/", rounds.PURPOSE):
        kernel = topology.read_topology(fs)
        result = rounds.run(rounds.measurable(kernel.online), seconds)
        measured: dict[str, t.Any] = sibling_cache.save(
            fs, dict(result, agrees_with_kernel=rounds.compare_with_kernel(result, kernel))
        )
        return measured


if __name__ == "__main__":
    main()
