#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_trial_design
short_description: (internal) The design of a trial
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_trial#role); not to be called directly.
  - Draws by lot which host is in which arm in which period, announces it, and writes it down before the first switch.
    Run it once.
options:
  results:
    description: Name of the variable in which the description of each host was registered.
    type: str
    required: true
  run:
    description: Name of the trial.
    type: str
    required: true
  dest:
    description: Directory of the trials on the controller.
    type: str
    required: true
  arms:
    description: What is compared, the baseline first.
    type: list
    elements: raw
    required: true
  design:
    description: V(switchback) or V(parallel), as in the role smt_trial.
    type: str
    choices: [switchback, parallel]
    default: switchback
  periods:
    description: How many periods each host is measured for.
    type: int
    required: true
  periods_before:
    description: Of a parallel trial, so many of them come first.
    type: int
    required: true
  period:
    description: Length of a period, in seconds.
    type: int
    required: true
  settle:
    description: Seconds at the beginning of each period that are not counted. Refused where a metric of a host counts
      further back.
    type: int
    required: true
  check:
    description: Seconds between two checks.
    type: int
    required: true
  most_switched:
    description: The most hosts that are in another arm than the baseline at once, a number or a share.
    type: str
    required: true
  metrics:
    description: What the service is judged by, as in the role smt_trial.
    type: list
    elements: dict
    required: true
  traffic:
    description: Name of the metric that says how much the service is asked to do, empty where there is none.
    type: str
    default: ""
  guardrails:
    description: What sends a host back at once, as in the role smt_trial.
    type: list
    elements: dict
    default: []
  margin:
    description: Effects within this share count as none.
    type: float
    required: true
  reboot_ok:
    description: Whether hosts may be rebooted into arms that take it.
    type: bool
    default: false
  seed:
    description: Number from which the schedule is drawn; without it, by chance.
    type: int
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
- name: Draw the design
  threadwise.smt.smt_trial_design:
    results: __smt_trial_described
    run: first
    dest: smt_trial_results
    arms: [smt_on, smt_off]
    periods: 24
    periods_before: 12
    period: 300
    settle: 90
    check: 10
    most_switched: 50%
    metrics:
      - {name: p99, query: 'p99{instance="web1:9113"}', better: lower, primary: true}
    margin: 0.01
  run_once: true
"""

RETURN = r"""
begin:
  description: When the first period begins, in seconds of the controller's clock that is never set.
  returned: success
  type: float
  sample: 81234.5
hosts:
  description: The hosts that take part.
  returned: success
  type: list
  elements: str
  sample: [web1, web2]
digest:
  description: SHA-256 of C(trial.json).
  returned: success
  type: str
  sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"""
