#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_boots
short_description: (internal) One result from what a host measured in several boots
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_eval#role); not to be called directly.
  - Joins, on the controller, the results of a host's boots into one, with all arms that were booted, and those that
    were switched within the boots of the baseline. The role calls it after each boot, so that a host that does not come
    back leaves what was measured before.
  - With one boot in each arm the result is marked as confounded with the reboot. With several, rounds of boots are
    compared.
options:
  run_dir:
    description: Directory of the run on the controller. Below it C(boots/RUN-boot-N/HOST.json) is read, and
      C(HOST.json) is written.
    type: path
    required: true
  run:
    description: Name of the run.
    type: str
    required: true
  arms:
    description: The arms that were asked for, as for M(threadwise.smt.smt_boot_plan).
    type: raw
    required: true
  boots:
    description: Number of boots per arm.
    type: int
    required: true
  left_out:
    description: Arms that the host cannot have, as for M(threadwise.smt.smt_boot_plan).
    type: list
    elements: dict
    default: []
  done:
    description: Number of boots so far.
    type: int
    required: true
  before:
    description: C(ansible_facts.smt) before the first boot.
    type: dict
    required: true
  after:
    description: C(ansible_facts.smt) after the last boot; without it the host is not yet booted as before.
    type: dict
  mitigations:
    description: The arguments C(mitigations) of the running kernel before the first boot and after the last one, each a
      list. They have to be equal.
    type: list
    elements: list
    default: []
  error:
    description: Why it ended early, if it did.
    type: str
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_benchmark
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Join two boots
  threadwise.smt.smt_boots:
    run_dir: smt_eval_results/20260102T030405Z
    run: 20260102T030405Z
    arms: [smt_on, smt_off]
    boots: 1
    done: 2
    before: "{{ smt_facts_before }}"
    after: "{{ ansible_facts.smt }}"
"""

RETURN = r"""
error:
  description: As it was given.
  returned: success
  type: str
path:
  description: The result's file on the controller; null where no boot left one.
  returned: success
  type: str
samples:
  description: How many samples it holds.
  returned: success
  type: int
outcome:
  description: V(completed), V(failed) or V(interrupted).
  returned: success
  type: str
restored:
  description: Whether the host is restored. C(ok), C(before), C(after) and C(differences), a sentence each; null before
    the last boot.
  returned: success
  type: dict
"""
