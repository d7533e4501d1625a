#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_trial_host
short_description: (internal) A host's part of a trial
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_trial#role); not to be called directly.
  - Looks at a host and its metrics, or holds the host in the arms of its schedule by M(threadwise.smt.smt_state),
    watches guardrails, and reads the metrics of each period.
options:
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
    description: As in the role smt_trial.
    type: str
    choices: [switchback, parallel]
    default: switchback
  reboot_timeout:
    description: Time limit of a reboot in seconds, for arms that take one.
    type: int
    default: 600
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
  check:
    description: Seconds between two checks.
    type: int
    required: true
  on_breach:
    description: What a breached guardrail ends, the part of its host or the whole trial.
    type: str
    choices: [continue, end]
    default: continue
  after_switch:
    description: A command, as a list of arguments, that makes the service follow its CPUs.
    type: list
    elements: str
    default: []
  affinity_conflicts:
    description: As in M(threadwise.smt.smt_state).
    type: str
    choices: [fail, warn]
    default: fail
  affinity_conflicts_of:
    description: As in M(threadwise.smt.smt_state).
    type: list
    elements: str
    default: [services]
  begin:
    description: When the first period of the trial begins, in seconds of the controller's clock that is never set.
    type: float
  digest:
    description: SHA-256 of C(trial.json), from M(threadwise.smt.smt_trial_design). A file that was changed since is not
      followed.
    type: str
  _step:
    description: V(describe) looks at the host and its metrics. V(follow) follows its schedule.
    type: str
    choices: [describe, follow]
    default: describe
extends_documentation_fragment:
  - threadwise.smt.attributes
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
- name: Look at the host and its metrics
  threadwise.smt.smt_trial_host:
    run: first
    dest: smt_trial_results
    arms: [smt_on, smt_off]
    metrics:
      - {name: p99, query: 'p99{instance="web1:9113"}', better: lower, primary: true}
    check: 10
"""

RETURN = r"""
hardware_class:
  description: Of the host's facts.
  returned: when it describes
  type: str
  sample: x86_64-1s4c8t-adjacent-0f6d1c2e
load:
  description: What the traffic, or the primary metric, is now.
  returned: when it describes
  type: float
  sample: 812.5
online:
  description: The host's online CPUs.
  returned: when it describes
  type: str
  sample: 0-7
looks_back:
  description: How far back a value of the metrics counts samples, at most, in V(seconds), and why, in a sentence
    (V(said)). Null where there is an obstacle.
  returned: when it describes
  type: dict
  sample: {seconds: 135.0, said: "p99 counts samples from up to 2 min 15 s before (...)"}
obstacle:
  description: Why the host cannot take part, or null.
  returned: when it describes
  type: str
reason:
  description: Why the host's part ended before its schedule, or null.
  returned: when it follows
  type: str
  sample: "the guardrail errors was breached: above 0.01 for 30 s (0.032)"
"""
