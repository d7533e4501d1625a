#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_preflight
short_description: (internal) What a controller lacks, before any host is contacted
version_added: 1.0.0
description:
  - Used by the playbooks of this collection; not to be called directly.
  - Fails, in one sentence with the C(pip install) that helps, where this controller has not the Python package
    msgspec, which validates what hosts send. With O(run) it warns in one sentence of what the report will lack
    without the recommended package duckdb.
  - Fails where a host or the play has a variable with a prefix of this collection that the collection does not know, or
    one whose value has not the declared type or is not one of the declared choices. It says so in one sentence a
    variable, with the nearest known name, or what the value must be.
  - Fails where the call names a playbook of this collection and its tags leave out all tasks but this one, which has
    the tag C(always). Where a playbook of the user imports that playbook, the task is skipped then.
  - With O(run) it also fails where the run's name is not valid, or where its results could not be written.
  - Looks, before any host is asked, whether the controller has the program by which each host of the play is reached,
    and says in one sentence for all of them where it has not. Run it once.
  - Today that program is C(ssh), or what C(ansible_ssh_executable) names, of hosts with the connection
    P(ansible.builtin.ssh#connection).
options:
  run:
    description: Name of the run of an evaluation that is about to start.
    type: str
  dest:
    description: Directory on the controller that holds runs.
    type: path
    default: smt_eval_results
  serial:
    description: How many hosts are evaluated at a time, a number or a share of the hosts such as V(10%). Without it as
      many as Ansible has forks.
    type: str
  replaces:
    description: Files that the play will write, pages and JSON. Those of an earlier call are removed, so that none of
      them is beside a call that fails.
    type: list
    elements: path
    default: []
  answers:
    description: Files of M(threadwise.smt.smt_compliance) that the play will write, by the names of its options. Until
      it does, and where this task fails, they say so, and nothing of an earlier call.
    type: dict
    default: {}
  history:
    description: Directory to which M(threadwise.smt.smt_compliance) will add its check.
    type: path
  needs:
    description: Names of variables that have to be set.
    type: list
    elements: str
    default: []
  contacts_hosts:
    description: Whether the play contacts its hosts. Where it does not, nothing is needed to reach them.
    type: bool
    default: true
  report:
    description: Options of the report that is built after the evaluation; returned as they are.
    type: dict
    default: {}
  all_of:
    description: Name of the variable that sets the pattern of all hosts that this is about, V(all) where it is not set,
      in a play that has one of them. Without this option it is about the hosts of the play.
    type: str
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: See that this controller can reach the hosts
  threadwise.smt.smt_preflight:
  run_once: true
  register: smt_preflight_result

- name: See that an evaluation can start
  threadwise.smt.smt_preflight:
    run: before-the-upgrade
  run_once: true
"""

RETURN = r"""
run:
  description: The name of the run.
  returned: with O(run)
  type: str
dest:
  description: The directory that holds runs.
  returned: with O(run)
  type: str
report:
  description: The options of the report.
  returned: with O(run)
  type: dict
at_once:
  description: How many hosts are evaluated at a time; 0 for as many as Ansible has forks.
  returned: with O(run)
  type: int
unreachable_hosts:
  description: The hosts that cannot be reached from this controller, in the order of the play.
  returned: success
  type: list
  elements: str
  sample: [db1, db2]
reason:
  description: The missing program, the hosts that need it and the remedy; null when nothing is missing.
  returned: success
  type: str
  sample: "this controller has no ssh, by which 2 of 3 hosts would be reached (db1, db2): install it (Debian's package
    openssh-client), or name yours by ansible_ssh_executable"
"""
