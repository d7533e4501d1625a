#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_compliance
short_description: The verdicts on a play's hosts as a table, JSON, metrics and a page
version_added: 1.0.0
description:
  - Shows on the terminal which hosts do not comply with their SMT policy, and writes all results to files on the
    controller.
  - Sets the numbers of hosts by status as the custom statistic C(smt_compliance_counts), as
    M(ansible.builtin.set_stats) does, for AWX and ansible-runner.
  - Takes what M(threadwise.smt.smt_status) returned on all hosts of the play, those that could not be reached included.
    With other sources no host is contacted. The inventory says which hosts there are. Run it once.
options:
  source:
    description:
      - Where the statuses are from. V(push) for O(results), V(files) for O(files).
      - V(prometheus) asks one metrics server for what hosts write of themselves (the role smt_pull). How it is reached
        is in the variables C(smt_compliance_metrics_url), C(smt_compliance_metrics_token) and the like, which have the
        same names as those of the role smt_trial.
    type: str
    choices: [files, prometheus, push]
    default: push
  results:
    description: Name of the variable in which the result of M(threadwise.smt.smt_status) was registered.
    type: str
  files:
    description:
      - Files of other checks, as O(json) writes them, directories and archives of them. Names end in C(.json), C(.zip),
        C(.tar.gz) or C(.tgz).
      - The latest word on a host counts. Two that contradict each other about the same time are named, and a file that
        cannot be read, or whose call checked no host, is named and does not count.
      - A file whose path has the name of a host in it is that host's. What it says of others counts where it is worse.
    type: list
    elements: path
  label:
    description: The label of a metric that has the name of a host. A port at its end is taken off. Without it, the name
      is what the file of the host says, C(exported_host) or C(host).
    type: str
  names:
    description: Hosts of the inventory, by other names that this label has, or the C(instance) of their targets.
    type: dict
  max_age:
    description: Hours after which a host that says nothing is silent. Without it 3 with V(prometheus), and no limit
      with V(files).
    type: float
  usage:
    description:
      - Name of the variable in which the result of M(threadwise.smt.smt_usage) was registered, where the hosts were
        looked at. How much room is left is in O(json) and on the O(page) then.
    type: str
  history:
    description: Directory that keeps a line of each check, with what has changed since the one before, for
      M(threadwise.smt.smt_history). It is created if it is missing.
    type: path
  json:
    description: File for the verdicts as JSON. The name has to end in C(.json). A relative path is below the current
      directory. The file is replaced as a whole, but only if this collection wrote it.
    type: path
  metrics:
    description: File for the verdicts as metrics, for the textfile collector of node_exporter. The name has to end in
      C(.prom).
    type: path
  page:
    description: File for the verdicts as one HTML page. The name has to end in C(.html) or C(.htm).
    type: path
  junit:
    description: File for the verdicts as JUnit XML, in which each host is a test. The name has to end in C(.xml).
    type: path
  sarif:
    description: File for the verdicts as SARIF 2.1.0, in which each host that needs action is a result. The name has to
      end in C(.sarif).
    type: path
  all_of:
    description: Name of the variable that sets the pattern of all hosts that this is about, V(all) where it is not set,
      in a play that has one of them. Without this option it is about the hosts of the play.
    type: str
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
    details: Shows the table without writing files.
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_history
  - module: threadwise.smt.smt_status
  - module: threadwise.smt.smt_usage
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Make one table of the slices of a job
  threadwise.smt.smt_compliance:
    source: files
    files: [/var/lib/awx/smt]
    json: smt_compliance.json
  run_once: true

- name: Check each host
  threadwise.smt.smt_status:
    policy: disabled
  register: smt_status_result

- name: Show and keep the verdicts
  threadwise.smt.smt_compliance:
    results: smt_status_result
    page: smt_compliance.html
  run_once: true
"""

RETURN = r"""
compliant:
  description: Whether all hosts are compliant or waived.
  returned: success
  type: bool
counts:
  description: Hosts by status.
  returned: success
  type: dict
  sample: {"compliant": 3, "waived": 0, "drifted": 1, "bad_policy": 0, "unknown": 0, "unreachable": 0, "silent": 0,
    "unknown_to_server": 0}
failing:
  description: The hosts that are neither compliant nor waived, each with its C(status) and C(sentence).
  returned: success
  type: dict
files:
  description: Files that were written, in check mode that would be.
  returned: success
  type: list
  elements: str
summary:
  description: The counts as a sentence.
  returned: success
  type: str
  sample: "4 hosts: 3 compliant, 1 drifted."
"""
